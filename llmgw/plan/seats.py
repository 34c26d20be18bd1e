"""Which GPUs and which TCP ports a rank gets on its node."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from llmgw.base import LlmgwError
from llmgw.observed import Gpu

_TRIES = 13_000  # C(16, 8) = 12,870 sets of eight GPUs of sixteen
Layout = tuple[tuple[int, int | None, tuple[int, ...]], ...]
"""Of each GPU its index, its NUMA node and the GPUs that it has NVLink to."""


def layout_of(gpus: Sequence[Gpu]) -> Layout:
    """What the choice of GPUs on a node depends on."""
    return tuple((gpu.index, gpu.numa, gpu.nvlink) for gpu in gpus)


class GpuDesk:
    """Chooses GPUs. Equal questions, of which a large site asks many, are answered once."""

    def __init__(self) -> None:
        self._known: dict[tuple[frozenset[int], int, Layout, frozenset[int]], tuple[int, ...]] = {}

    def choose(
        self, free: Collection[int], number: int, layout: Layout, *, late: Collection[int] = ()
    ) -> tuple[int, ...]:
        """`number` of the free GPUs, by index, rising.

        Those come first that need no wait (`late` ones do), then sets within one NUMA node and linked by
        NVLink, then aligned blocks (0-3 rather than 2-5), then those that break up the fewest other blocks,
        then the lowest. LlmgwError where there are too few.
        """
        if len(free) < number:
            raise LlmgwError(f"{number} GPUs asked of {len(free)}")
        key = frozenset(free), number, layout, frozenset(late) & frozenset(free)
        if key not in self._known:
            have = sorted(free)
            details = {index: (numa, links) for index, numa, links in layout}
            self._known[key] = min(_sets(have, number), key=lambda chosen: _gpu_key(chosen, have, details, key[3]))
        return self._known[key]

    def choose_alike(
        self, nodes: Sequence[tuple[Collection[int], Layout, Collection[int]]], number: int
    ) -> list[tuple[int, ...]]:
        """As choose on each of several nodes (free, layout, late ones); the same indices on all where possible.

        GPUs of equal index are on equal rails, so equal indices keep the traffic between two ranks on one rail.
        """
        common = set(nodes[0][0]).intersection(*(free for free, _, _ in nodes[1:]))
        late = {index for _, _, waiting in nodes for index in waiting}
        if len(common) >= number:
            chosen = self.choose(common, number, nodes[0][1], late=late)
            return [chosen for _ in nodes]
        return [self.choose(free, number, layout, late=waiting) for free, layout, waiting in nodes]


def _sets(have: Sequence[int], number: int) -> Iterable[tuple[int, ...]]:
    """All sets of so many, or where those are too many the rows of neighbours."""
    count = 1
    for n in range(number):
        count = count * (len(have) - n) // (n + 1)
    if count <= _TRIES:
        return combinations(have, number)
    return (tuple(have[at : at + number]) for at in range(len(have) - number + 1))


def _gpu_key(
    chosen: tuple[int, ...],
    have: Sequence[int],
    details: Mapping[int, tuple[int | None, tuple[int, ...]]],
    late: Collection[int],
) -> tuple[object, ...]:
    waits = sum(index in late for index in chosen)
    numa = {details[index][0] for index in chosen if index in details}
    unlinked = sum(b not in details[a][1] for a, b in combinations(chosen, 2) if a in details)
    block = 1 << (len(chosen) - 1).bit_length()
    crossed = chosen[0] // block != chosen[-1] // block
    return waits, len(numa), unlinked, crossed, _broken(chosen, have), chosen


def _broken(chosen: tuple[int, ...], have: Sequence[int]) -> int:
    """The size of the free aligned blocks (of 2, 4, 8, 16) that taking the chosen ones breaks up."""
    free = set(have)
    total = 0
    for size in (2, 4, 8, 16):
        for block in {index // size for index in chosen}:
            members = range(block * size, (block + 1) * size)
            if free.issuperset(members):
                total += size
    return total


class PortDesk:
    """Gives out rows of TCP ports on one node, the lowest first."""

    def __init__(self, rows: Sequence[tuple[int, int]]) -> None:
        self._rows = list(rows)

    def take(self, number: int) -> int:
        """The first of `number` ports one after the other. LlmgwError where no row is long enough."""
        for place, (first, length) in enumerate(self._rows):
            if length >= number:
                self._rows[place] = first + number, length - number
                return first
        raise LlmgwError(f"no {number} TCP ports one after the other are free")

    def take_at(self, first: int, number: int) -> bool:
        """Takes exactly these where they are free; whether they were."""
        for place, (start, length) in enumerate(self._rows):
            if start <= first and first + number <= start + length:
                rest = (first + number, start + length - first - number)
                self._rows[place : place + 1] = [(start, first - start), rest]
                return True
        return False
