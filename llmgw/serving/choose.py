"""Which endpoint gets a request: pure functions of what is under way where."""

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

UNBOUNDED = 1 << 30


class Candidate(Protocol):
    """An endpoint that takes new requests, as a choice sees it.

    `in_flight` requests are under way there by this process and `elsewhere` by others; it takes them up to `cap`.
    `share` is its weight times how warm it is. `seed` is a 64-bit number that its URL always gives.
    """

    @property
    def in_flight(self) -> int: ...
    @property
    def elsewhere(self) -> int: ...
    @property
    def cap(self) -> int: ...
    @property
    def share(self) -> float: ...
    @property
    def seed(self) -> int: ...


C = TypeVar("C", bound=Candidate)


def least_in_flight(candidates: Sequence[C], turn: int) -> C | None:
    """The one with the fewest requests for its share. Equals take turns by their shares, as `turn` counts up.

    None where all are at their cap.
    """
    if len(candidates) == 1:
        only = candidates[0]
        return only if only.in_flight + only.elsewhere < only.cap else None
    equals: list[C] = []
    lowest = math.inf
    for candidate in candidates:
        under_way = candidate.in_flight + candidate.elsewhere
        if under_way < candidate.cap:
            score = under_way / candidate.share
            if score < lowest:
                lowest = score
                equals = [candidate]
            elif score == lowest:
                equals.append(candidate)
    return equals[0] if len(equals) == 1 else _in_turn(equals, turn) if equals else None


_GOLDEN = 0.6180339887498949


def _in_turn(equals: Sequence[C], turn: int) -> C:
    """One of them, each in proportion to its share: multiples of the golden ratio fall evenly on the unit line."""
    point = (turn * _GOLDEN) % 1.0 * sum(one.share for one in equals)
    for one in equals:
        point -= one.share
        if point < 0:
            return one
    return equals[-1]


def power_of_two(candidates: Sequence[C], first: float, second: float) -> C | None:
    """The less loaded of two drawn at random: `first` and `second` are numbers from 0 up to 1.

    Where both are at their cap, the least loaded of all. Source: Mitzenmacher, The Power of Two Choices in
    Randomized Load Balancing, 2001.
    """
    count = len(candidates)
    if count < 3:
        return least_in_flight(candidates, int(first * count))
    one = int(first * count)
    two = (one + 1 + int(second * (count - 1))) % count
    return least_in_flight((candidates[one], candidates[two]), 0) or least_in_flight(candidates, one)


def by_affinity(candidates: Sequence[C], key: int, bound: float) -> C | None:
    """The key's own endpoint by rendezvous hashing, or the next of its order that is not too loaded.

    None has more than `bound` times its part of all requests under way. A change of one endpoint among n moves
    about 1/n of the keys. Sources: Thaler and Ravishankar, 1998 (weighted form: Schindelhauer and Schomaker,
    2005); Mirrokni, Thorup and Zadimoghaddam, Consistent Hashing with Bounded Loads, 2016.
    """
    total = sum(candidate.in_flight + candidate.elsewhere for candidate in candidates) + 1
    shares = sum(candidate.share for candidate in candidates)
    best: C | None = None
    highest = -math.inf
    for candidate in candidates:
        room = math.ceil(bound * total * candidate.share / shares)
        if candidate.in_flight + candidate.elsewhere < min(room, candidate.cap):
            score = candidate.share / -math.log(unit(key ^ candidate.seed))
            if score > highest:
                best, highest = candidate, score
    return best or least_in_flight(candidates, key)


def unit(number: int) -> float:
    """A number above 0 and below 1 that 64 bits give, all of them stirred (the finalizer of splitmix64)."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    number ^= number >> 31
    return ((number >> 11) + 0.5) / (1 << 53)


def hashed(data: bytes) -> int:
    """64 bits of a session's name, a prompt's beginning or a URL; the same in every process."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def warmth(age_s: float, window_s: float) -> float:
    """How much of its weight an endpoint has that joined `age_s` ago: from 0.1, straight up to 1 after `window_s`.

    Source: Envoy's slow start, whose least weight is 10 % as well.
    """
    if age_s >= window_s:
        return 1.0
    return max(0.1, age_s / window_s)
