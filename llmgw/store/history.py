"""The event log, and the inventory as it was last read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llmgw.base import moment
from llmgw.store.database import State

KEEP_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in one line."""

    at: str
    kind: str
    subject: str
    message: str
    by: str


def record(state: State, kind: str, subject: str, message: str, *, by: str) -> None:
    """Add an event; the oldest beyond KEEP_EVENTS go."""
    with state.change() as connection:
        cursor = connection.execute(
            "INSERT INTO history (at, kind, subject, message, by) VALUES (?, ?, ?, ?, ?)",
            (moment(datetime.now(UTC)), kind, subject, message, by),
        )
        connection.execute("DELETE FROM history WHERE id <= ?", (int(cursor.lastrowid or 0) - KEEP_EVENTS,))


def events(state: State, *, limit: int, subject: str = "", since: datetime | None = None) -> list[Event]:
    """Up to `limit` of the newest events, oldest first; of one subject, or since a time."""
    rows = state.rows(
        """SELECT at, kind, subject, message, by FROM history WHERE (? = '' OR subject = ?) AND at >= ?
           ORDER BY id DESC LIMIT ?""",
        subject,
        subject,
        moment(since) if since else "",
        limit,
    )
    return [Event(*row) for row in reversed(rows)]


@dataclass(frozen=True, slots=True)
class KeptListing:
    """The inventory as it was last read, and what it was read from."""

    at: str
    fingerprint: str
    listing: dict[str, Any]


def save_listing(state: State, listing: Mapping[str, Any], fingerprint: str, *, now: datetime) -> None:
    """Remember the inventory, without its secrets, for commands that need not or must not read it again."""
    with state.change() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO inventory VALUES (1, ?, ?, ?)", (moment(now), fingerprint, json.dumps(listing))
        )


def last_listing(state: State) -> KeptListing | None:
    """The inventory that was last read."""
    row = state.one("SELECT at, fingerprint, listing FROM inventory")
    return KeptListing(row[0], row[1], json.loads(row[2])) if row else None
