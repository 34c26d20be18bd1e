"""The lock: one row that says who changes the site now, kept alive by a heartbeat."""

import getpass
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from llmgw.base import LlmgwError, LockedError, Value, duration, moment
from llmgw.store.database import State, open_state

HEARTBEAT_S = 10.0
EXPIRES_S = 60.0
POLL_S = 0.5


class Holder(Value):
    """Who holds the lock. `born` is the process's start, clock ticks after boot: a pid used again differs in it."""

    token: str
    user: str
    host: str
    pid: int
    born: int
    command: str
    since: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, pid {self.pid}, since {self.since}: {self.command}"


@dataclass(frozen=True, slots=True)
class Held:
    """The lock as it stands in the store."""

    holder: Holder
    expires: float

    def broken(self, *, now: float, host: str, born: int | None) -> str:
        """Why the holder may be passed over; empty while it lives. `born` is its pid's on this host, None: gone."""
        if self.holder.host == host:
            return "" if born == self.holder.born else f"its process {self.holder.pid} is gone"
        return (
            f"its last sign of life was {duration(now - self.expires + EXPIRES_S)} ago"
            if now > self.expires
            else ""
        )


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock as its owner has it. `lost` is set when somebody broke it: stop before the next step."""

    holder: Holder
    lost: threading.Event = field(default_factory=threading.Event)


def held(state: State) -> Held | None:
    """Who holds the lock."""
    row = state.one("SELECT holder, expires FROM lock")
    return Held(Holder.model_validate_json(row[0]), float(row[1])) if row else None


@contextmanager
def locked(
    state: State, command: str, *, wait_s: float = 0.0, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Lock]:
    """Hold the lock while inside. A holder that is dead is passed over and `tell` gets a line about it.

    LockedError, naming the holder, where another still has it after `wait_s` seconds.
    """
    holder = _me(command)
    _take(state, holder, wait_s=wait_s, tell=tell)
    lock, ended = Lock(holder), threading.Event()
    heart = threading.Thread(target=_beat, args=(state, lock, ended), name="llmgw-lock", daemon=True)
    heart.start()
    try:
        yield lock
    finally:
        ended.set()
        heart.join()
        # A row that the disk does not let go of is passed over by the next command: this process is gone then.
        with suppress(LlmgwError), state.change() as connection:
            connection.execute("DELETE FROM lock WHERE json_extract(holder, '$.token') = ?", (holder.token,))


def _me(command: str) -> Holder:
    pid = os.getpid()
    return Holder(
        token=token_hex(8),
        user=getpass.getuser(),
        host=socket.gethostname(),
        pid=pid,
        born=process_born(pid) or 0,
        command=command,
        since=moment(datetime.now(UTC)),
    )


def process_born(pid: int) -> int | None:
    """A process's start, clock ticks after boot (proc_pid_stat(5), field 22); None where that pid is free."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _take(state: State, holder: Holder, *, wait_s: float, tell: Callable[[str], None]) -> None:
    deadline = time.monotonic() + wait_s
    told = False
    while (other := _try_take(state, holder, tell=tell)) is not None:
        if time.monotonic() >= deadline:
            raise LockedError(
                f"the site is locked by {other}", hint="llmgw lock show; llmgw lock break if it will not come back"
            )
        if not told:
            tell(f"waiting for the lock of {other}")
            told = True
        time.sleep(POLL_S)


def _try_take(state: State, holder: Holder, *, tell: Callable[[str], None]) -> Holder | None:
    """None when the lock was taken, else who has it."""
    with state.change() as connection:
        found = held(state)
        if found:
            why = found.broken(now=time.time(), host=holder.host, born=process_born(found.holder.pid))
            if not why:
                return found.holder
            tell(f"took over the lock of {found.holder}: {why}")
        connection.execute(
            "INSERT OR REPLACE INTO lock VALUES (1, ?, ?, ?)",
            (holder.model_dump_json(), time.time(), time.time() + EXPIRES_S),
        )
    return None


def _beat(state: State, lock: Lock, ended: threading.Event) -> None:
    """Push the lock's end away while its owner lives; on a connection of its own.

    The lock is lost when somebody broke it, or when no beat was written for so long that others may take it soon.
    """
    last = time.monotonic()
    while not ended.wait(HEARTBEAT_S):
        try:
            still = _beat_once(state.path, lock.holder.token)
        except LlmgwError:
            still = time.monotonic() - last < EXPIRES_S - 2 * HEARTBEAT_S
        else:
            last = time.monotonic()
        if not still:
            lock.lost.set()
            return


def _beat_once(path: Path, token: str) -> bool:
    """Whether the lock is still the token's; its end is pushed away then."""
    own = open_state(path)
    try:
        with own.change() as connection:
            done = connection.execute(
                "UPDATE lock SET heartbeat = ?, expires = ? WHERE json_extract(holder, '$.token') = ?",
                (time.time(), time.time() + EXPIRES_S, token),
            )
        return done.rowcount > 0
    finally:
        own.close()


def break_lock(state: State) -> Holder | None:
    """Take the lock away from whoever holds it; who that was."""
    with state.change() as connection:
        found = held(state)
        connection.execute("DELETE FROM lock")
    return found.holder if found else None
