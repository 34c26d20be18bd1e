"""Classes of hosts: which adapters a host of its kind has, and which of them is the first, second, Nth.

Neither GUIDs nor the numbers in device names count adapters: mlx5_0,1,2,3,6,7,8,9 are rails 1 to 8. What counts
is the natural order of the names among those that the hosts of a class have (the ruler), so that a host that has
lost one does not shift the rest; or the PCI address, which is what NCCL sorts by, where nodes have reported it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from llmgw.fabric.names import host_class, natural_order

_RARER = 3
"""A larger set of adapters is the ruler where the most common one has at most this many times its hosts."""

_SMALL = 3
"""Hosts of a class of fewer are taken into one with the same adapters, if they have as many as this themselves."""


class Spot(Struct, frozen=True, gc=False):
    """One adapter of a named node: where it is cabled, and the words that can order it. `key` is the caller's."""

    key: int
    node: str
    device: str
    port: int
    pci: str
    leaf: str


Word = tuple[str, int]
"""What orders an adapter: its PCI address or device name, and its port."""


class Host(NamedTuple):
    """A node's adapters in order, and the words that order them."""

    name: str
    by_pci: bool
    words: tuple[Word, ...]
    spots: tuple[Spot, ...]


class HostClass(NamedTuple):
    """Hosts alike. `full` of them have all words of the ruler.

    `groups` tells for each place on the ruler which of a host's leaves it goes to: 0, 1, 2… where all are apart.
    `seats` is each adapter's place on the ruler, from 0; `leaves` is the group of most adapters on each leaf.
    """

    hosts: list[Host]
    ruler: tuple[Word, ...]
    full: int
    groups: tuple[int, ...]
    seats: dict[int, int]
    leaves: dict[str, int]


def _hosts(spots: Sequence[Spot]) -> list[Host]:
    """Every node with its adapters in order: by PCI address where all are known, by device name otherwise."""
    by_name, by_address = _words(spots), _addresses(spots)
    of_node: dict[str, list[Spot]] = defaultdict(list)
    for spot in spots:
        of_node[spot.node].append(spot)
    hosts = []
    for node, own in of_node.items():
        by_pci = bool(by_address) and all(spot.pci for spot in own)
        words = by_address if by_pci else by_name
        placed = sorted([(*words[spot.pci if by_pci else spot.device, spot.port], spot.key, spot) for spot in own])
        order = tuple([word for _, word, _, _ in placed])
        if len(set(order)) == len(own) and ("", 1) not in order:
            hosts.append(Host(node, by_pci, order, tuple([spot for _, _, _, spot in placed])))
    return hosts


def _addresses(spots: Iterable[Spot]) -> dict[Word, tuple[int, Word]]:
    """Each PCI address and port with its place in order, and itself."""
    found = sorted({(spot.pci, spot.port) for spot in spots if spot.pci})
    return {word: (place, word) for place, word in enumerate(found)}


def _words(spots: Iterable[Spot]) -> dict[Word, tuple[int, Word]]:
    """Each device name and port with its place in natural order, and under the name that orders it.

    HCA-N and mlx5_(N-1) are one thing under the names of two releases of rdma-ndd: so it is where a leaf has both.
    """
    devices: dict[str, set[str]] = defaultdict(set)
    ports = set()
    for spot in spots:
        devices[spot.device].add(spot.leaf)
        ports.add((spot.device, spot.port))
    folded = {device: _folded(device) for device in devices}
    both = any(
        folded[device] != device and leaves & devices.get(folded[device], set())
        for device, leaves in devices.items()
    )
    names = {(device, port): (folded[device] if both else device, port) for device, port in ports}
    order = sorted(set(names.values()), key=lambda word: (natural_order(word[0]), word))
    places = {word: place for place, word in enumerate(order)}
    return {written: (places[word], word) for written, word in names.items()}


def _folded(device: str) -> str:
    number = device.removeprefix("HCA-")
    return f"mlx5_{int(number) - 1}" if number != device and number.isdecimal() and len(number) < 5 else device


def host_classes(spots: Sequence[Spot]) -> list[HostClass]:
    """The classes of the hosts that have these adapters, the one with most adapters first."""
    hosts = _hosts(spots)
    members: dict[tuple[object, ...], list[Host]] = defaultdict(list)
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


def _like(host: Host, classes: Sequence[list[Host]]) -> list[Host] | None:
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


def _class(hosts: list[Host]) -> HostClass:
    count = Counter(host.words for host in hosts)
    rulers = _rulers(count)
    ruler = rulers[0]
    seats: dict[int, int] = {}
    patterns: Counter[tuple[int, ...]] = Counter()
    for host in hosts:
        own = _ruler_for(host, rulers)
        if own is None:
            continue
        for seat, spot in enumerate(host.spots):
            seats[spot.key] = seat if own is host.words else own.index(host.words[seat])
        if len(host.spots) == len(ruler):
            patterns[_pattern([spot.leaf for spot in host.spots])] += 1
    groups = min(patterns, key=lambda groups: (-patterns[groups], groups))
    votes = Counter(
        (spot.leaf, groups[seats[spot.key]]) for host in hosts for spot in host.spots if spot.key in seats
    )
    return HostClass(hosts, ruler, count[ruler], groups, seats, _majorities(votes))


def _rulers(count: Mapping[tuple[Word, ...], int]) -> list[tuple[Word, ...]]:
    """The sets of adapters that hosts of a class have, the ruler first.

    That is the most common one, or a larger one that contains it and is not much rarer: where a leaf is gone, half
    of a small cluster may lack the adapters that were on it.
    """
    found = sorted(count, key=lambda words: (-count[words], -len(words), words))
    usual = set(found[0])
    larger = [words for words in found if usual < set(words) and _RARER * count[words] >= count[found[0]] > 1]
    ruler = max(larger, key=lambda words: (len(words), count[words]), default=found[0])
    return [ruler, *(words for words in found if words != ruler)]


def _ruler_for(host: Host, rulers: Sequence[tuple[Word, ...]]) -> tuple[Word, ...] | None:
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


def missing(classes: Iterable[HostClass]) -> dict[str, tuple[tuple[str, int], ...]]:
    """What nodes lack of what most of their class have in full: device and rail, by node."""
    found = {}
    for one in classes:
        if len(one.hosts) < _SMALL or 2 * one.full < len(one.hosts):
            continue
        for host in one.hosts:
            if len(host.words) < len(one.ruler) and set(host.words) < set(one.ruler):
                lacks = [(word[0], seat + 1) for seat, word in enumerate(one.ruler) if word not in host.words]
                found[host.name] = tuple(lacks)
    return found
