"""Rails: which adapter of a node is its first, second, Nth, and whether it is cabled where the others' are.

Neither GUIDs nor the numbers in device names count adapters: mlx5_0,1,2,3,6,7,8,9 are rails 1 to 8. What counts
is the natural order of the names among those that the hosts of a class have (the ruler), so that a host that has
lost one does not shift the rest; or the PCI address, which is what NCCL sorts by, where nodes have reported it.

Whether rails are cabled apart is seen from the cables too. A class of hosts whose adapters all go to one leaf has
no rails to be off; its layout is no fault.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from llmgw.fabric.names import host_class, natural_order

_ALIGNED = 0.75
"""Share of a class's adapters that must be where its rails say, for the others to be called off their rail."""

_SMALL = 3
"""Hosts of a class of fewer are taken into one with the same adapters, if they have as many as this themselves."""


class Spot(Struct, frozen=True, gc=False):
    """One adapter of a named node: where it is cabled, and the two names that can order it. `key` is the caller's."""

    key: int
    node: str
    device: str
    port: int
    pci: str
    leaf: str


class Place(NamedTuple):
    """An adapter's rail, from 1 (None: not known), and whether it is cabled to another rail's leaf."""

    rail: int | None
    off: bool


@dataclass(frozen=True, slots=True)
class Rails:
    """`places` by the spots' keys; `leaves` is each leaf's rail where it has one; `count` is 0 where there are none.

    `missing` are the devices that a node lacks, of those that its class has, with their rail.
    """

    places: Mapping[int, Place]
    leaves: Mapping[str, int]
    count: int
    missing: Mapping[str, tuple[tuple[str, int], ...]]


_Word = tuple[str, int]
"""What orders an adapter: its PCI address or device name, and its port."""


class _Host(NamedTuple):
    """A node's adapters in order, and the words that order them."""

    name: str
    by_pci: bool
    words: tuple[_Word, ...]
    spots: tuple[Spot, ...]


class _Class(NamedTuple):
    """Hosts alike. `full` of them have all words of the ruler.

    `groups` tells for each place on the ruler which of a host's leaves it goes to: 0, 1, 2… where all are apart.
    `seats` is each adapter's place on the ruler, from 0; `leaves` is the group of most adapters on each leaf.
    """

    hosts: list[_Host]
    ruler: tuple[_Word, ...]
    full: int
    groups: tuple[int, ...]
    seats: dict[int, int]
    leaves: dict[str, int]


def find_rails(spots: Iterable[Spot]) -> Rails:
    """The rails of a fabric. Spots are those of adapters whose node is known, one for each port with a cable."""
    classes = _classes(_hosts(list(spots)))
    leaf_of = {spot.key: spot.leaf for one in classes for host in one.hosts for spot in host.spots}
    railed = [one for one in classes if _is_railed(one, leaf_of)]
    several = sum(len(one.seats) for one in classes if len(one.ruler) > 1)
    missing = _missing(classes)
    if not railed or 2 * sum(len(one.seats) for one in railed) <= several:
        places = {key: Place(seat + 1, off=False) for one in classes for key, seat in one.seats.items()}
        return Rails(places, {}, 0, missing)
    units = _Units(railed[0].groups)
    places = {}
    for one in railed:
        places |= units.add(one, leaf_of)
    leaves = {leaf: rail for leaf, unit in units.leaves.items() if (rail := units.rail(unit)) is not None}
    for one in classes:
        if one not in railed:
            places |= {
                key: Place(leaves.get(leaf_of[key], seat + 1), off=False) for key, seat in one.seats.items()
            }
    return Rails(places, leaves, len(railed[0].ruler), missing)


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

    def add(self, one: _Class, leaf_of: Mapping[int, str]) -> dict[int, Place]:
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

    def _rail_of(self, one: _Class, seat: int, unit_of: Mapping[int, int]) -> int | None:
        rail = self.rail(unit_of.get(one.groups[seat]))
        return rail if rail is not None or len(one.ruler) != len(self._groups) else seat + 1

    def _units_of(self, one: _Class, leaf_of: Mapping[int, str]) -> dict[int, int]:
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


def _majorities(votes: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """The group with most of the votes of each leaf. A leaf where two are level has none."""
    of_leaf: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (leaf, group), number in votes.items():
        of_leaf[leaf].append((number, group))
    found = {}
    for leaf, count in of_leaf.items():
        count.sort(reverse=True)
        if len(count) == 1 or count[1][0] < count[0][0]:
            found[leaf] = count[0][1]
    return found


def _is_railed(one: _Class, leaf_of: Mapping[int, str]) -> bool:
    """Whether the class's rails go to leaves of their own, but for a few adapters."""
    if len(set(one.groups)) < 2:
        return False
    right = sum(one.leaves.get(leaf_of[key]) == one.groups[seat] for key, seat in one.seats.items())
    return right >= _ALIGNED * len(one.seats)


def _hosts(spots: Sequence[Spot]) -> list[_Host]:
    """Every node with its adapters in order: by PCI address where all are known, by device name otherwise."""
    word_of = _words(spots)
    of_node: dict[str, list[Spot]] = defaultdict(list)
    for spot in spots:
        of_node[spot.node].append(spot)
    hosts = []
    for node, own in of_node.items():
        by_pci = all(spot.pci for spot in own)
        words = {(spot.pci if by_pci else word_of[spot.device], spot.port): spot for spot in own}
        if len(words) == len(own) and ("", 1) not in words:
            order = sorted(words) if by_pci else sorted(words, key=lambda word: (natural_order(word[0]), word[1]))
            hosts.append(_Host(node, by_pci, tuple(order), tuple(words[word] for word in order)))
    return hosts


def _words(spots: Iterable[Spot]) -> dict[str, str]:
    """Each device name under the one that orders it.

    HCA-N and mlx5_(N-1) are one thing under the names of two releases of rdma-ndd: so taken where one leaf has both.
    """
    devices: dict[str, set[str]] = defaultdict(set)
    for device, leaf in {(spot.device, spot.leaf) for spot in spots}:
        devices[device].add(leaf)
    folded = {device: _folded(device) for device in devices}
    both = any(
        folded[device] != device and leaves & devices.get(folded[device], set())
        for device, leaves in devices.items()
    )
    return folded if both else {device: device for device in devices}


def _folded(device: str) -> str:
    number = device.removeprefix("HCA-")
    return f"mlx5_{int(number) - 1}" if number != device and number.isdecimal() and len(number) < 5 else device


def _classes(hosts: Sequence[_Host]) -> list[_Class]:
    """The classes of hosts, the largest first."""
    members: dict[tuple[object, ...], list[_Host]] = defaultdict(list)
    for host in hosts:
        members[host_class(host.name), host.by_pci].append(host)
    large = [own for own in members.values() if len(own) >= _SMALL]
    for key, few in list(members.items()):
        if len(few) < _SMALL:
            for host in members.pop(key):
                alike = _like(host, large)
                if alike is None:
                    members[(host.words, host.by_pci) if len(host.spots) >= _SMALL else key].append(host)
                else:
                    alike.append(host)
    made = [_class(own) for own in members.values()]
    return sorted(made, key=lambda one: (-len(one.seats), natural_order(one.hosts[0].name)))


def _like(host: _Host, classes: Sequence[list[_Host]]) -> list[_Host] | None:
    """The first class of which some host has all adapters that this one has, and few more."""
    size, words = len(host.words), set(host.words)
    for own in classes:
        for other in own:
            if (
                size >= _SMALL
                and host.by_pci is other.by_pci
                and len(other.words) * 3 <= size * 4
                and words <= set(other.words)
            ):
                return own
    return None


def _class(hosts: list[_Host]) -> _Class:
    count = Counter(host.words for host in hosts)
    rulers = sorted(count, key=lambda words: (-count[words], -len(words), words))
    ruler = rulers[0]
    seats: dict[int, int] = {}
    patterns: Counter[tuple[int, ...]] = Counter()
    for host in hosts:
        own = _ruler_for(host, rulers)
        if own is None:
            continue
        for seat, (word, spot) in enumerate(zip(host.words, host.spots, strict=True)):
            seats[spot.key] = seat if own is host.words else own.index(word)
        if len(host.spots) == len(ruler):
            patterns[_pattern([spot.leaf for spot in host.spots])] += 1
    groups = min(patterns, key=lambda groups: (-patterns[groups], groups))
    votes = Counter(
        (spot.leaf, groups[seats[spot.key]]) for host in hosts for spot in host.spots if spot.key in seats
    )
    return _Class(hosts, ruler, count[ruler], groups, seats, _majorities(votes))


def _ruler_for(host: _Host, rulers: Sequence[tuple[_Word, ...]]) -> tuple[_Word, ...] | None:
    """The class's ruler where it has all the host's words, the host's own where it is as long, or another's."""
    size = len(rulers[0])
    if len(host.words) == size:
        return host.words
    words = set(host.words)
    return next((ruler for ruler in rulers if len(ruler) == size and words <= set(ruler)), None)


def _pattern(leaves: Sequence[str]) -> tuple[int, ...]:
    """Which of the leaves are the same: leaf-a, leaf-b, leaf-a is 0, 1, 0."""
    order: dict[str, int] = {}
    return tuple(order.setdefault(leaf, len(order)) for leaf in leaves)


def _missing(classes: Iterable[_Class]) -> dict[str, tuple[tuple[str, int], ...]]:
    """What nodes lack of what most of their class have in full: device and rail, by node."""
    missing = {}
    for one in classes:
        if len(one.hosts) < _SMALL or 2 * one.full < len(one.hosts):
            continue
        for host in one.hosts:
            if len(host.words) < len(one.ruler) and set(host.words) < set(one.ruler):
                lacks = [(word[0], seat + 1) for seat, word in enumerate(one.ruler) if word not in host.words]
                missing[host.name] = tuple(lacks)
    return missing
