"""Rails: which adapter of a node is its Nth, and whether it is cabled where the others' Nth are.

Whether rails are cabled apart is seen from the cables: a class of hosts whose adapters all go to one leaf has no
rails to be off, and its layout is no fault.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmgw.fabric.host_classes import HostClass, Spot, host_classes, missing

_ALIGNED = 0.75
"""Share of a class's adapters that must be where its rails say, for the others to be called off their rail."""


class Place(NamedTuple):
    """An adapter's rail, from 1 (None: not known), and whether it is cabled to another rail's leaf."""

    rail: int | None
    off: bool


@dataclass(frozen=True, slots=True)
class Rails:
    """`places` by the spots' keys; `leaves` has each leaf's rail where it has one; `count` is 0 without rails.

    `missing` are the devices that a node lacks, of those that its class has, with their rail.
    """

    places: Mapping[int, Place]
    leaves: Mapping[str, int]
    count: int
    missing: Mapping[str, tuple[tuple[str, int], ...]]


def find_rails(spots: Iterable[Spot]) -> Rails:
    """The rails of a fabric. Spots are those of adapters whose node is known, one for each port with a cable."""
    classes = host_classes(list(spots))
    leaf_of = {spot.key: spot.leaf for one in classes for host in one.hosts for spot in host.spots}
    railed = [one for one in classes if _is_railed(one, leaf_of)]
    several = sum(len(one.seats) for one in classes if len(one.ruler) > 1)
    if not railed or 2 * sum(len(one.seats) for one in railed) <= several:
        places = {key: Place(seat + 1, off=False) for one in classes for key, seat in one.seats.items()}
        return Rails(places, {}, 0, missing(classes))
    units = _Units(railed[0].groups)
    placed = {key: place for one in railed for key, place in units.add(one, leaf_of).items()}
    leaves = {leaf: rail for leaf, unit in units.leaves.items() if (rail := units.rail(unit)) is not None}
    for one in classes:
        for key, seat in one.seats.items():
            if key not in placed:
                placed[key] = Place(leaves.get(leaf_of[key], seat + 1), off=False)
    return Rails(placed, leaves, len(railed[0].ruler), missing(classes))


class _Units:
    """The rails that are cabled apart, learned from the largest class and then from the others.

    A unit is a set of rails that share their leaves, mostly of one rail. `leaves` has each leaf's unit.
    """

    def __init__(self, groups: Sequence[int]) -> None:
        self._groups = groups
        self.leaves: dict[str, int] = {}

    def rail(self, unit: int | None) -> int | None:
        """The rail of a unit of one; None for a unit of several."""
        return self._groups.index(unit) + 1 if unit is not None and self._groups.count(unit) == 1 else None

    def add(self, one: HostClass, leaf_of: Mapping[int, str]) -> dict[int, Place]:
        """The places of a class's adapters, after its leaves that had no unit got theirs."""
        unit_of = self._units_of(one, leaf_of)
        for leaf, group in one.leaves.items():
            if group in unit_of:
                self.leaves.setdefault(leaf, unit_of[group])
        off = {
            key
            for key, seat in one.seats.items()
            if (unit := unit_of.get(one.groups[seat])) is not None and self.leaves.get(leaf_of[key], unit) != unit
        }
        if len(off) > (1 - _ALIGNED) * len(one.seats):
            off = set()
        rails = [self._rail_of(one, seat, unit_of) for seat in range(len(one.ruler))]
        on_place, off_place = [Place(rail, off=False) for rail in rails], [Place(rail, off=True) for rail in rails]
        return {key: off_place[seat] if key in off else on_place[seat] for key, seat in one.seats.items()}

    def _rail_of(self, one: HostClass, seat: int, unit_of: Mapping[int, int]) -> int | None:
        rail = self.rail(unit_of.get(one.groups[seat]))
        return rail if rail is not None or len(one.ruler) != len(self._groups) else seat + 1

    def _units_of(self, one: HostClass, leaf_of: Mapping[int, str]) -> dict[int, int]:
        """Which unit each of the class's groups is: the one of most of its adapters' leaves.

        A group that meets no leaf with a unit is the unit of its own number where the class has as many as the
        largest one, and no unit at all otherwise.
        """
        met: dict[int, Counter[int]] = defaultdict(Counter)
        for key, seat in one.seats.items():
            unit = self.leaves.get(leaf_of[key])
            if unit is not None:
                met[one.groups[seat]][unit] += 1
        found = {group: max(count, key=lambda unit: (count[unit], -unit)) for group, count in met.items()}
        if len(set(one.groups)) == len(set(self._groups)):
            for group in one.groups:
                found.setdefault(group, group)
        return found


def _is_railed(one: HostClass, leaf_of: Mapping[int, str]) -> bool:
    """Whether the class's rails go to leaves of their own, but for a few adapters."""
    if len(set(one.groups)) < 2:
        return False
    right = sum(one.leaves.get(leaf_of[key]) == one.groups[seat] for key, seat in one.seats.items())
    return right >= _ALIGNED * len(one.seats)
