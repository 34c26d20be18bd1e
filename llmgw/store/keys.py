"""Clients' keys: their digests and limits, who made them and when, and which were revoked. Never a key itself."""

from dataclasses import dataclass
from datetime import datetime

from llmgw.base import LlmgwError, moment
from llmgw.serving import ClientKey
from llmgw.store.database import State


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A client's key as the store knows it; `revoked_at` is empty while it is good."""

    key: ClientKey
    made_at: str
    made_by: str
    revoked_at: str


def add_key(state: State, key: ClientKey, *, by: str, now: datetime) -> None:
    """Keep a new key. LlmgwError where one of its id was ever made: ids stand in ledgers and are not used again."""
    with state.change() as connection:
        if connection.execute("SELECT 1 FROM client_keys WHERE id = ?", (key.id,)).fetchone():
            raise LlmgwError(
                f"there is a key {key.id} already", hint="llmgw keys list shows all; name another --id"
            )
        connection.execute(
            "INSERT INTO client_keys VALUES (?, ?, ?, ?, '')", (key.id, key.model_dump_json(), moment(now), by)
        )


def revoke_key(state: State, key_id: str, *, now: datetime) -> bool:
    """Mark a key as revoked, for good; whether it was good before. LlmgwError where there is none of that id."""
    with state.change() as connection:
        row = connection.execute("SELECT revoked_at FROM client_keys WHERE id = ?", (key_id,)).fetchone()
        if row is None:
            raise LlmgwError(f"there is no key {key_id}", hint="llmgw keys list")
        connection.execute(
            "UPDATE client_keys SET revoked_at = ? WHERE id = ? AND revoked_at = ''", (moment(now), key_id)
        )
    return not row[0]


def all_keys(state: State) -> list[KeptKey]:
    """Every key that was ever made, the oldest first."""
    rows = state.rows("SELECT key, made_at, made_by, revoked_at FROM client_keys ORDER BY made_at, id")
    return [KeptKey(ClientKey.model_validate_json(key), *rest) for key, *rest in rows]
