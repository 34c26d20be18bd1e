"""The SQLite file: where it may lie, how it is opened, and what its disk refuses."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from llmgw.base import LlmgwError, RefusedError
from llmgw.store.filesystem import network_filesystem

BUSY_S = 30.0
_OF_THE_DISK = {
    sqlite3.SQLITE_BUSY: "another llmgw has been writing for half a minute: llmgw lock show",
    sqlite3.SQLITE_CORRUPT: "it is damaged: put a backup of it in its place, or move it away and scan anew",
    sqlite3.SQLITE_CANTOPEN: "look at its folder and its file system",
    sqlite3.SQLITE_FULL: "make room on its file system, then go on: llmgw apply --resume, or llmgw plan",
    sqlite3.SQLITE_IOERR: "look at its file system: dmesg says more",
    sqlite3.SQLITE_READONLY: "make it writable, or name another place with --state or LLMGW_STATE",
}
"""SQLite's primary result codes (sqlite.org/rescode.html) that are no fault of a statement, and what to do."""
_HEADER = b"SQLite format 3\0"  # sqlite.org/fileformat2.html, 1.3
VERSION = 3
"""The schema's version: how many of schema.STEPS a store has had, in its `user_version`."""


@dataclass(frozen=True, slots=True)
class State:
    """An open store. All that the package does with it stands in functions of its modules."""

    path: Path
    connection: sqlite3.Connection
    _one: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the right to write from its first line (BEGIN IMMEDIATE).

        One thread at a time is inside. LlmgwError where the disk does not take it: nothing of it has happened then.
        """
        with self._one, self._mendable():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.commit()
            except BaseException:
                self.connection.rollback()
                raise

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._mendable():
            return list(self.connection.execute(sql, values).fetchall())

    def each(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one after the other: those that are too many or too long to have at once."""
        with self._mendable():
            yield from self.connection.execute(sql, values)

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        with self._mendable():
            row: tuple[Any, ...] | None = self.connection.execute(sql, values).fetchone()
        return row

    @contextmanager
    def _mendable(self) -> Iterator[None]:
        """What the disk refuses, as an error that an operator can mend. A wrong statement stays a bug."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            hint = _OF_THE_DISK.get(getattr(error, "sqlite_errorcode", -1) & 0xFF)
            if hint is None:
                raise
            raise LlmgwError(f"{self.path}: {error}", hint=hint) from None

    def close(self) -> None:
        self.connection.close()


def open_state(path: Path) -> State:
    """The store at `path`, made there (mode 0600) where there is none, brought to this version's schema.

    RefusedError where the file system is a network's or the file a newer llmgw's; LlmgwError where the file is
    no store or cannot be written.
    """
    _refuse_network(path)
    _make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        state = State(path, connection)
        _migrate(state)
    except sqlite3.DatabaseError as error:
        raise LlmgwError(f"{path}: is not a store of llmgw that can be opened: {error}") from None
    return state


def _refuse_network(path: Path) -> None:
    kind = network_filesystem(path)
    if kind:
        raise RefusedError(
            f"{path} is on {kind}: SQLite's write-ahead log does not work on a network file system",
            hint="put the state on a local disk: --state /var/lib/llmgw/state.db or LLMGW_STATE",
        )


_looked_at: set[tuple[int, int]] = set()
_looking = threading.Lock()


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, so that it is 0600 whatever the umask; its -wal and -shm take its mode.

    Once a process, and before its first connection: to close any descriptor of the file takes away the locks of every
    connection of the process, and another process that then ends would take the log from under them
    (sqlite.org/howtocorrupt.html, 2.2).
    """
    with _looking:
        try:
            known = path.lstat()
            if (known.st_dev, known.st_ino) in _looked_at:
                if stat.S_IMODE(known.st_mode) & 0o077:
                    path.chmod(0o600)
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _misplaced(path, error) from None
        found = _look_at(path)
        _looked_at.add((found.st_dev, found.st_ino))


def _look_at(path: Path) -> os.stat_result:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _misplaced(path, error) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or os.pread(descriptor, len(_HEADER), 0) not in (b"", _HEADER):
            raise LlmgwError(
                f"{path}: is not a store of llmgw", hint="name one, or a new file: --state, LLMGW_STATE"
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return found


def _misplaced(path: Path, error: OSError) -> LlmgwError:
    return LlmgwError(f"{path}: {error.strerror}", hint="choose another place with --state or LLMGW_STATE")


def _migrate(state: State) -> None:
    version = _version(state)
    if version > VERSION:
        raise RefusedError(
            f"{state.path} was written by a newer llmgw (schema {version}, this one knows {VERSION})",
            hint="use that llmgw, or restore a backup made with this one",
        )
    if version == VERSION:
        return
    if version == 0 and state.one("SELECT 1 FROM sqlite_master"):
        raise LlmgwError(
            f"{state.path}: is another program's database",
            hint="name a store of llmgw, or a new file, with --state",
        )
    from llmgw.store.schema import bring_up  # sqlite-utils is slow to import, and most runs find nothing to do

    with state.change() as connection:
        before = _version(state)  # another process may have been first
        bring_up(connection, before)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        if not before:
            connection.execute("INSERT INTO meta VALUES ('lineage', ?), ('serial', '0')", (token_hex(8),))


def _version(state: State) -> int:
    row = state.one("PRAGMA user_version")
    return int(row[0]) if row else 0


def lineage(state: State) -> str:
    """The store's identity: made with it, never changed."""
    return _meta(state, "lineage")


def serial(state: State) -> int:
    """How many times an apply has changed what runs."""
    return int(_meta(state, "serial"))


def count_change(state: State) -> int:
    """The serial, one higher from now on. Part of a change that is under way, where one is."""
    statement = "UPDATE meta SET value = value + 1 WHERE key = 'serial'"
    if state.connection.in_transaction:
        state.connection.execute(statement)
    else:
        with state.change() as connection:
            connection.execute(statement)
    return serial(state)


def _meta(state: State, key: str) -> str:
    row = state.one("SELECT value FROM meta WHERE key = ?", key)
    if row is None:
        raise LlmgwError(f"{state.path}: has no {key}", hint="restore a backup: llmgw state backup makes them")
    return str(row[0])


def backup(state: State, target: Path) -> None:
    """A whole copy of the store at `target`, made while it may be in use, and checked. Replaces nothing."""
    if target.exists():
        raise LlmgwError(f"{target}: exists already", hint="name a file that does not exist")
    _make_private(target)
    copy = sqlite3.connect(target)
    try:
        state.connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        verdict = copy.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        copy.close()
    if verdict != "ok":
        target.unlink()
        raise LlmgwError(f"{state.path}: is damaged: {verdict}")
