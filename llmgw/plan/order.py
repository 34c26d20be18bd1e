"""The order of actions: which waits for which, without circles, and the ids that they get."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any


class Waits:
    """A graph of what waits for what, by key. It never holds a circle that `wish` made."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.before: dict[str, set[str]] = {key: set() for key in keys}

    def must(self, key: str, first: str) -> None:
        """`key` waits for `first`, whatever follows from that."""
        if key != first:
            self.before[key].add(first)

    def wish(self, key: str, first: str) -> bool:
        """`key` waits for `first` unless that makes a circle; whether it now does."""
        if key == first or self.reaches(first, key):
            return False
        self.before[key].add(first)
        return True

    def reaches(self, key: str, other: str) -> bool:
        """Whether `key` waits for `other`, directly or not."""
        seen, waiting = {key}, [key]
        while waiting:
            here = waiting.pop()
            if here == other:
                return True
            for first in self.before[here]:
                if first not in seen:
                    seen.add(first)
                    waiting.append(first)
        return False

    def circle(self, rank: Mapping[str, tuple[Any, ...]]) -> list[str]:
        """The keys of one circle, the same one each time; empty where there is none."""
        left = {key: set(first) for key, first in self.before.items()}
        ready = [key for key, first in left.items() if not first]
        after = _turned(self.before)
        while ready:
            done = ready.pop()
            del left[done]
            for key in after[done]:
                left[key].discard(done)
                if not left[key]:
                    ready.append(key)
        if not left:
            return []
        here = min(left, key=rank.__getitem__)
        path: list[str] = []
        while here not in path:
            path.append(here)
            here = min((first for first in left[here] if first in left), key=rank.__getitem__)
        return path[path.index(here) :]


def _turned(before: Mapping[str, set[str]]) -> dict[str, list[str]]:
    after: dict[str, list[str]] = {key: [] for key in before}
    for key, firsts in before.items():
        for first in firsts:
            after[first].append(key)
    return after


def in_order(waits: Waits, rank: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The keys so that each follows what it waits for, else by rank. Circles must be broken before."""
    left = {key: len(first) for key, first in waits.before.items()}
    after = _turned(waits.before)
    ready = [(rank[key], key) for key, number in left.items() if not number]
    heapify(ready)
    order = []
    while ready:
        _, key = heappop(ready)
        order.append(key)
        for other in after[key]:
            left[other] -= 1
            if not left[other]:
                heappush(ready, (rank[other], other))
    return order


def shortest(waits: Waits, key: str) -> list[str]:
    """What `key` waits for directly, without what that waits for anyway."""
    first = sorted(waits.before[key])
    return [one for one in first if not any(other != one and waits.reaches(other, one) for other in first)]
