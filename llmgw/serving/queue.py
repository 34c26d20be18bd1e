"""Requests that wait for an endpoint: bounded, and fair between keys."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Each key has its own line, and the lines take turns: a key with a thousand waiting delays another by one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, key: str, item: T) -> T | None:
        """Who has to go: nobody, or, with the queue full, the last of the longest line or the newcomer."""
        if self._length < self._limit:
            self._append(key, item)
            return None
        longest = max(self._lines, key=lambda name: len(self._lines[name]), default=key)
        if len(self._lines.get(longest, ())) <= len(self._lines.get(key, ())) + 1:
            return item
        displaced = self._lines[longest].pop()
        self._length -= 1
        self._append(key, item)
        return displaced

    def _append(self, key: str, item: T) -> None:
        self._lines.setdefault(key, deque()).append(item)
        self._length += 1

    def pop(self) -> T | None:
        """The first of the line whose turn it is; None where nobody waits."""
        if not self._lines:
            return None
        key, line = next(iter(self._lines.items()))
        item = line.popleft()
        self._length -= 1
        if line:
            self._lines.move_to_end(key)
        else:
            del self._lines[key]
        return item

    def remove(self, key: str, item: T) -> None:
        """Takes out one that no longer waits; nothing where it is not there."""
        line = self._lines.get(key)
        if line is None or item not in line:
            return
        line.remove(item)
        self._length -= 1
        if not line:
            del self._lines[key]
