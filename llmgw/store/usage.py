"""The usage ledger: what each key took of each model, minute by minute, in one SQLite file on the router host."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmgw.base import LlmgwError
from llmgw.store.filesystem import network_filesystem

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    minute INTEGER NOT NULL, tenant TEXT NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL,
    profile TEXT NOT NULL, operation TEXT NOT NULL,
    requests INTEGER NOT NULL, failed INTEGER NOT NULL, prompt INTEGER NOT NULL, completion INTEGER NOT NULL,
    cached INTEGER NOT NULL, estimated INTEGER NOT NULL,
    PRIMARY KEY (minute, tenant, key_id, model, profile, operation)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, failed = failed + excluded.failed,
    prompt = prompt + excluded.prompt, completion = completion + excluded.completion,
    cached = cached + excluded.cached, estimated = estimated + excluded.estimated
"""
_FIELDS = ("tenant", "key_id", "model", "profile", "operation")
_SUMS = ("requests", "failed", "prompt", "completion", "cached", "estimated")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Requests and tokens of one key, model, profile and operation in one minute (of those since 1970).

    `failed` are requests that did not end well. `estimated` are those of the tokens that no engine told: of
    streams that were cut off, at one token an event and four bytes of prompt a token.
    """

    minute: int
    tenant: str
    key_id: str
    model: str
    profile: str
    operation: str
    requests: int
    failed: int
    prompt: int
    completion: int
    cached: int
    estimated: int

    def values(self) -> tuple[int | str, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)


class UsageLedger:
    """Opens the file for each batch, so that it can be moved away, and several processes can write to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self) -> None:
        """Makes the file, mode 0600; LlmgwError where that cannot be, or a newer llmgw wrote it."""
        kind = network_filesystem(self._path)
        if kind:
            raise LlmgwError(
                f"{self._path}: is on a network file system ({kind})", hint="give --usage a local file"
            )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            with self._open() as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version > _VERSION:
                    raise LlmgwError(f"{self._path}: was written by a newer llmgw (version {version})")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA user_version = {_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise LlmgwError(f"{self._path}: the usage ledger cannot be opened: {error}") from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=5.0, isolation_level=None)) as db:
            yield db

    def add(self, rows: Iterable[UsageRow]) -> None:
        """Adds one batch, all of it or none. sqlite3.Error where the disk refuses: the caller keeps the rows."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany(_ADD, [row.values() for row in rows])
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def totals(self, *, since: int, until: int, by: tuple[str, ...]) -> list[UsageRow]:
        """Sums over minutes from `since` up to, not with, `until`, for each combination of the fields in `by`.

        Fields that are not in `by` are empty texts; `minute` is `since`. Most tokens first. LlmgwError where the
        file cannot be read as a ledger.
        """
        unknown = set(by) - set(_FIELDS)
        if unknown:
            raise ValueError(f"usage has no {', '.join(sorted(unknown))}")
        columns = ", ".join(name if name in by else "''" for name in _FIELDS)
        group = f"GROUP BY {', '.join(by)}" if by else ""
        sums = ", ".join(f"SUM({name})" for name in _SUMS)
        query = (  # the only names in it are those of _FIELDS and _SUMS
            f"SELECT ?, {columns}, {sums} FROM usage WHERE minute >= ? AND minute < ? {group}"  # noqa: S608
            " HAVING SUM(requests) > 0 ORDER BY SUM(prompt) + SUM(completion) DESC"
        )
        try:
            with self._open() as db:
                return [UsageRow(*row) for row in db.execute(query, (since, since, until))]
        except sqlite3.Error as error:
            raise LlmgwError(f"{self._path}: is not a usage ledger that can be read: {error}") from None

    def forget(self, before: int) -> int:
        """Deletes the minutes before that one; how many rows there were."""
        with self._open() as db:
            return db.execute("DELETE FROM usage WHERE minute < ?", (before,)).rowcount
