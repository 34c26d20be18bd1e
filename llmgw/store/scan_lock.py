"""One scan at a time: a lock of its own beside the store, so that scans never wait for an apply, nor it for them.

The kernel lets go of it when its holder ends, however it ends; a store is on no network file system.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmgw.base import LockedError

POLL_S = 0.2


@contextmanager
def scanning(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of scans of the store at `path` while inside. LockedError, naming the process that has it, where
    another still does after `wait_s` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(_lock_file(path), "r+", encoding="ascii", errors="replace", opener=_private) as file:
        until = time.monotonic() + wait_s
        while not _taken(file.fileno()):
            if time.monotonic() >= until:
                raise LockedError(f"another scan is under way: process {file.read(20).strip() or '?'}")
            time.sleep(POLL_S)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.scan-lock")


def _private(name: str, _flags: int) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
