"""The store's tables, and the step from each version of the schema to the next."""

import sqlite3
from collections.abc import Callable

from sqlite_utils import Database

_FIRST = (
    """CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT""",
    """CREATE TABLE lock (id INTEGER PRIMARY KEY CHECK (id = 1), holder TEXT NOT NULL, heartbeat REAL NOT NULL,
            expires REAL NOT NULL) STRICT""",
    """CREATE TABLE scans (id INTEGER PRIMARY KEY, fabric TEXT NOT NULL, at TEXT NOT NULL, source TEXT NOT NULL,
            verdict TEXT NOT NULL, problems TEXT NOT NULL, raw BLOB NOT NULL, stderr TEXT NOT NULL,
            topology BLOB, paths BLOB, linkinfo BLOB) STRICT""",
    "CREATE INDEX scans_by_fabric ON scans (fabric, id)",
    "CREATE TABLE fabrics (name TEXT PRIMARY KEY, map INTEGER, partial INTEGER, last INTEGER NOT NULL) STRICT",
    "CREATE TABLE facts (node TEXT PRIMARY KEY, at TEXT NOT NULL, facts TEXT NOT NULL) STRICT",
    "CREATE TABLE silent (node TEXT PRIMARY KEY, since TEXT) STRICT",
    """CREATE TABLE cordons (node TEXT PRIMARY KEY, kind TEXT NOT NULL, reason TEXT NOT NULL, by TEXT NOT NULL,
            at TEXT NOT NULL) STRICT""",
    """CREATE TABLE plans (id TEXT PRIMARY KEY, consumed_at TEXT NOT NULL, by TEXT NOT NULL, state TEXT NOT NULL,
            plan TEXT NOT NULL) STRICT""",
    """CREATE TABLE journal (id INTEGER PRIMARY KEY, plan TEXT NOT NULL, action TEXT NOT NULL,
            phase TEXT NOT NULL, begun_at TEXT NOT NULL, ended_at TEXT, outcome TEXT, message TEXT) STRICT""",
    "CREATE INDEX journal_by_plan ON journal (plan, id)",
    "CREATE TABLE specs (mark TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT",
    """CREATE TABLE published (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL,
            endpoints TEXT NOT NULL) STRICT""",
    "CREATE TABLE engine_keys (replica TEXT PRIMARY KEY, key TEXT NOT NULL) STRICT",
    """CREATE TABLE conditions (replica TEXT NOT NULL, plan TEXT NOT NULL, action TEXT NOT NULL,
            health TEXT NOT NULL, since TEXT NOT NULL, why TEXT NOT NULL, tokens INTEGER, suspect INTEGER NOT NULL,
            PRIMARY KEY (replica, plan, action)) STRICT""",
    """CREATE TABLE failures (replica TEXT PRIMARY KEY, count INTEGER NOT NULL, last TEXT NOT NULL,
            next TEXT NOT NULL) STRICT""",
    """CREATE TABLE history (id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            message TEXT NOT NULL, by TEXT NOT NULL) STRICT""",
    """CREATE TABLE inventory (id INTEGER PRIMARY KEY CHECK (id = 1), at TEXT NOT NULL,
            fingerprint TEXT NOT NULL, listing TEXT NOT NULL) STRICT""",
)


def _tables(db: Database) -> None:
    for statement in _FIRST:
        db.execute(statement)


def _scans_seen_again(db: Database) -> None:
    """A scan that says what the one before said is no new row: it was seen `times` times, from first_at to at."""
    scans = db.table("scans")
    for column in ("first_at", "digest", "summary"):
        scans.add_column(column, str, not_null_default="")
    scans.add_column("times", int, not_null_default=1)
    scans.add_column("changes", str, not_null_default="[]")
    scans.add_column("devices", bytes)
    db.table("fabrics").add_column("missed", str, not_null_default="[]")
    db.execute("UPDATE scans SET first_at = at")


def _client_keys(db: Database) -> None:
    """Clients' keys by their digests, as keys.json holds them; revoked ones stay, for their ids stand in ledgers."""
    columns = {"id": str, "key": str, "made_at": str, "made_by": str, "revoked_at": str}
    db.table("client_keys").create(columns, pk="id", not_null=set(columns), strict=True)


STEPS: tuple[Callable[[Database], None], ...] = (_tables, _scans_seen_again, _client_keys)
"""A store of version n has had the first n."""


def bring_up(connection: sqlite3.Connection, version: int) -> None:
    """The steps that a store of that version has not had. Part of the transaction that is under way."""
    db = Database(connection, execute_plugins=False)
    for step in STEPS[version:]:
        step(db)
