"""The last facts of every node, who is silent, and what admins asked of nodes."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from llmgw.base import moment
from llmgw.observed import Facts, NodeFacts, lean_facts
from llmgw.plan import Cordon
from llmgw.store.database import State


def save_facts(state: State, answered: Mapping[str, NodeFacts], silent: Iterable[str], *, now: datetime) -> None:
    """Replace the facts of the nodes that answered, and remember since when the others have not."""
    with state.change() as connection:
        connection.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?, ?)",
            [(node, moment(facts.seen_at), facts.model_dump_json()) for node, facts in answered.items()],
        )
        connection.executemany("DELETE FROM silent WHERE node = ?", [(node,) for node in answered])
        connection.executemany(
            """INSERT INTO silent VALUES (?, (SELECT at FROM facts WHERE node = ?)) ON CONFLICT DO NOTHING""",
            [(node, node) for node in silent],
        )
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('asked_at', ?)", (moment(now),))


def load_facts(state: State, nodes: Iterable[str]) -> Facts:
    """What is known of these nodes. `asked_at` is the last time that any were asked."""
    known = dict(state.rows("SELECT node, facts FROM facts"))
    names = list(nodes)
    return Facts(
        asked_at=_asked_at(state),
        nodes={name: NodeFacts.model_validate_json(known[name]) for name in names if name in known},
        silent=_silent(state, names),
    )


def load_lean_facts(state: State, nodes: Iterable[str]) -> Facts:
    """As load_facts, without what a plan has no use for: sites of thousands of nodes are read in little memory."""
    names = list(nodes)
    asked_at, silent = _asked_at(state), _silent(state, names)
    wanted = set(names)
    rows = ((node, facts) for node, facts in state.each("SELECT node, facts FROM facts") if node in wanted)
    return lean_facts(rows, asked_at=asked_at, silent=silent)


def _asked_at(state: State) -> datetime:
    asked = state.one("SELECT value FROM meta WHERE key = 'asked_at'")
    return datetime.fromisoformat(asked[0]) if asked else datetime(1970, 1, 1, tzinfo=UTC)


def _silent(state: State, nodes: Iterable[str]) -> dict[str, datetime | None]:
    """Those of the nodes that did not answer when last asked or never did, and since when."""
    known = {node for (node,) in state.rows("SELECT node FROM facts")}
    quiet = dict(state.rows("SELECT node, since FROM silent"))
    return {
        name: datetime.fromisoformat(quiet[name]) if quiet.get(name) else None
        for name in nodes
        if name in quiet or name not in known
    }


def set_cordon(state: State, cordon: Cordon) -> None:
    """Take a node out of placement, or change the reason."""
    with state.change() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO cordons VALUES (?, ?, ?, ?, ?)",
            (cordon.node, cordon.kind, cordon.reason, cordon.by, moment(cordon.at)),
        )


def remove_cordon(state: State, node: str) -> bool:
    """Give a node back to placement; whether it had been taken out."""
    with state.change() as connection:
        return connection.execute("DELETE FROM cordons WHERE node = ?", (node,)).rowcount > 0


def cordons(state: State) -> dict[str, Cordon]:
    """The nodes that are out of placement."""
    rows = state.rows("SELECT node, kind, reason, by, at FROM cordons ORDER BY node")
    return {
        node: Cordon(node, kind, reason, by, datetime.fromisoformat(at)) for node, kind, reason, by, at in rows
    }
