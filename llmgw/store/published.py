"""What was last published, and the keys that llmgw makes for its engines."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from secrets import token_urlsafe

from llmgw.serving import Endpoint, EndpointsFile, EngineKeys, ServedModel
from llmgw.store.database import State


def endpoints(state: State) -> EndpointsFile | None:
    """The endpoint file of the last generation; None before the first."""
    row = state.one("SELECT endpoints FROM published")
    return EndpointsFile.read(row[0], "the store") if row else None


def next_generation(
    state: State,
    change: Callable[[Sequence[Endpoint]], Iterable[Endpoint]],
    models: Callable[[Sequence[Endpoint]], Iterable[ServedModel]],
    *,
    now: datetime,
) -> EndpointsFile:
    """The endpoint file after `change`, one generation higher, remembered before anybody is given it."""
    with state.change() as connection:
        before = endpoints(state)
        after = tuple(change(before.endpoints if before else ()))
        made = EndpointsFile(
            generation=before.generation + 1 if before else 1,
            written=now,
            models=tuple(models(after)),
            endpoints=after,
        )
        connection.execute(
            "INSERT OR REPLACE INTO published VALUES (1, ?, ?)", (made.generation, made.model_dump_json())
        )
    return made


def engine_key(state: State, replica: str) -> str:
    """The replica's own key, made at the first call: 256 random bits."""
    with state.change() as connection:
        connection.execute(
            "INSERT INTO engine_keys VALUES (?, ?) ON CONFLICT DO NOTHING", (replica, token_urlsafe(32))
        )
    row = state.one("SELECT key FROM engine_keys WHERE replica = ?", replica)
    assert row is not None
    return str(row[0])


def engine_keys(state: State, replicas: Iterable[str]) -> EngineKeys:
    """The keys of these replicas, for engine-keys.json."""
    known = dict(state.rows("SELECT replica, key FROM engine_keys"))
    return EngineKeys(keys={replica: known[replica] for replica in sorted(set(replicas)) if replica in known})


def all_engine_keys(state: State) -> list[str]:
    """Every engine key ever made, for masking them in logs."""
    return [row[0] for row in state.rows("SELECT key FROM engine_keys")]
