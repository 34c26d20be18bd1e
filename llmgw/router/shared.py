"""Numbers that several router processes share: requests under way, and the windows of the keys' limits.

One piece of anonymous memory, which the supervisor makes and every worker maps. A label (an endpoint's URL, a
key's id) gets a slot by its digest. Of requests under way each process writes a number of its own and reads the
others', so no lock is needed and a process that dies takes its count with it. A key's window is one for all; it
is read and changed under flock(2), which the kernel gives back when the holder dies.
"""

import fcntl
import hashlib
import mmap
import os
from collections.abc import MutableSequence
from contextlib import AbstractContextManager
from types import TracebackType

from llmgw.base import LlmgwError
from llmgw.serving.limits import CELLS

ENDPOINT_SLOTS = 4096
KEY_SLOTS = 8192
_LABEL = 2  # numbers that hold a label's digest


def size_for(workers: int) -> int:
    """Bytes of the memory; pages that nobody writes cost nothing."""
    return 8 * (ENDPOINT_SLOTS * (_LABEL + workers) + KEY_SLOTS * (_LABEL + workers + CELLS))


def make_memory(workers: int) -> int:
    """The descriptor of fresh memory, all zero, that children inherit."""
    number = os.memfd_create("llmgw-router", 0)
    os.truncate(number, size_for(workers))
    return number


class _FileLock:
    """flock(2) on an open file description of this process alone."""

    def __init__(self, path: str) -> None:
        self._number = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> None:
        fcntl.flock(self._number, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._number, fcntl.LOCK_UN)


class _Slots:
    """Slots of equal width in the memory, found by the label's digest, taken in the order of need."""

    def __init__(self, numbers: memoryview, first: int, count: int, width: int, lock: _FileLock) -> None:
        self._numbers = numbers
        self._first = first
        self._count = count
        self._width = width
        self._lock = lock
        self._known: dict[str, memoryview] = {}

    def of(self, label: str) -> memoryview:
        """The label's numbers, those of its digest left out."""
        found = self._known.get(label)
        if found is None:
            with self._lock:
                found = self.of_locked(label)
        return found

    def of_locked(self, label: str) -> memoryview:
        """The same, for a caller that holds the lock."""
        found = self._known.get(label)
        if found is None:
            found = self._known[label] = self._find(label)
        return found

    def _find(self, label: str) -> memoryview:
        raw = hashlib.blake2b(label.encode(), digest_size=16).digest()
        high, low = (int.from_bytes(half, "little", signed=True) or 1 for half in (raw[:8], raw[8:]))
        for step in range(self._count):
            at = self._first + ((high + step) % self._count) * self._width
            if self._numbers[at] == self._numbers[at + 1] == 0:
                self._numbers[at], self._numbers[at + 1] = high, low
            if self._numbers[at] == high and self._numbers[at + 1] == low:
                return self._numbers[at + _LABEL : at + self._width]
        raise LlmgwError(f"more than {self._count} labels in the workers' shared memory")

    def clear_column(self, column: int) -> None:
        for slot in range(self._count):
            at = self._first + slot * self._width
            if self._numbers[at]:
                self._numbers[at + _LABEL + column] = 0


class SharedMemory:
    """One worker's view of the memory: SharedCounts for endpoints, Meters for keys."""

    def __init__(self, number: int, *, workers: int, own: int) -> None:
        self.own = own
        self._workers = workers
        numbers = memoryview(mmap.mmap(number, size_for(workers))).cast("q")
        lock = _FileLock(f"/proc/self/fd/{number}")
        self.lock: AbstractContextManager[object] | None = lock
        width = _LABEL + workers
        self._endpoints = _Slots(numbers, 0, ENDPOINT_SLOTS, width, lock)
        self._keys = _Slots(numbers, ENDPOINT_SLOTS * width, KEY_SLOTS, width + CELLS, lock)
        self._endpoints.clear_column(own)
        self._keys.clear_column(own)

    def row(self, label: str) -> MutableSequence[int]:
        return self._endpoints.of(label)[: self._workers]  # type: ignore[return-value]

    def window(self, key_id: str) -> MutableSequence[int]:
        return self._keys.of_locked(key_id)[self._workers :]  # type: ignore[return-value]

    def under_way(self, key_id: str) -> int:
        return sum(self._keys.of_locked(key_id)[: self._workers])

    def change(self, key_id: str, by: int) -> None:
        self._keys.of_locked(key_id)[self.own] += by
