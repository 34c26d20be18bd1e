"""Which switches are drawn together: a pod's leaves and spines, and how regularly they are cabled."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llmgw.fabric.domains import components
from llmgw.fabric.fabric import Cable, Fabric, Switch
from llmgw.fabric.names import natural_order
from llmgw.fabric.rates import nominal

_FAT_TREE = 0.9
"""Share of the cables between switches that must join neighbouring tiers."""


@dataclass(slots=True)
class Pod:
    """Leaves in drawing order, each with its domain's id (empty for none), and the spines over them."""

    id: str
    leaves: list[tuple[str, str]] = field(default_factory=list)
    spines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The cables between a pod's leaves and spines.

    `usual` is how many join one pair mostly. `odd` are the pairs (leaf, spine) that have fewer, with their number,
    0 for none at all; empty where so many are odd that there is no pattern. `apart` are leaves that have less than
    half of their group's spines: they are cabled in a way of their own.
    """

    text: str
    usual: int
    odd: Mapping[tuple[str, str], int]
    apart: frozenset[str] = frozenset()


def trunks(fabric: Fabric) -> dict[tuple[str, str], list[Cable]]:
    """Cables between two switches by their GUIDs, the one nearer to the adapters first; none to itself."""
    found: dict[tuple[str, str], list[Cable]] = defaultdict(list)
    for cable in fabric.cables:
        a, b = fabric.switches.get(cable.a), fabric.switches.get(cable.b)
        if a and b and a.guid != b.guid:
            lower, upper = (a, b) if (a.distance, a.guid) <= (b.distance, b.guid) else (b, a)
            found[lower.guid, upper.guid].append(cable)
    return found


def is_fat_tree(fabric: Fabric, between: Mapping[tuple[str, str], Sequence[Cable]]) -> bool:
    """Whether nearly all cables between switches go one tier up. A lone switch is a fat tree."""
    if not fabric.switches:
        return True
    rise = [
        (fabric.switches[upper].distance - fabric.switches[lower].distance, len(cables))
        for (lower, upper), cables in between.items()
    ]
    every = sum(number for _, number in rise)
    return sum(number for step, number in rise if step == 1) >= _FAT_TREE * every


def pods(fabric: Fabric, between: Mapping[tuple[str, str], Sequence[Cable]], wanted: Collection[str]) -> list[Pod]:
    """The pods of the wanted switches, in natural order.

    Leaves stand by domain, then as the domain has them (by rail); spines by name.
    """
    around: dict[str, set[str]] = {guid: set() for guid in fabric.switches}
    for lower, upper in between:
        around[lower].add(upper)
        around[upper].add(lower)
    distance = {guid: switch.distance for guid, switch in fabric.switches.items()}
    meets = components(around, distance)
    found: dict[str, Pod] = {}
    pod_of: dict[str, str] = {}
    by_component: dict[str, str] = {}
    for domain in fabric.domains.values():
        pod = found.setdefault(domain.pod, Pod(domain.pod))
        for leaf in domain.leaves:
            if leaf not in pod_of and distance.get(leaf) == 1:
                pod_of[leaf] = domain.pod
                by_component.setdefault(meets[leaf], domain.pod)
                pod.leaves.append((leaf, domain.id))
    for leaf in (guid for guid, far in distance.items() if far == 1 and guid not in pod_of):
        name = by_component.setdefault(meets[leaf], f"pod-{len(found) + 1}")
        found.setdefault(name, Pod(name)).leaves.append((leaf, ""))
        pod_of[leaf] = name
    for guid, far in distance.items():
        below = Counter(pod_of[near] for near in around[guid] if near in pod_of) if far == 2 else None
        if below:
            name = min(below, key=lambda pod: (-below[pod], natural_order(pod)))
            found[name].spines.append(guid)
    for pod in found.values():
        pod.leaves = [(leaf, domain) for leaf, domain in pod.leaves if leaf in wanted]
        pod.spines = rank(fabric.switches, (spine for spine in pod.spines if spine in wanted))
    kept = [pod for pod in found.values() if pod.leaves or pod.spines]
    return sorted(kept, key=lambda pod: natural_order(pod.id))


def own_pairs(
    pod: Pod, between: Mapping[str, Mapping[str, Sequence[Cable]]]
) -> dict[tuple[str, str], Sequence[Cable]]:
    """The pod's pairs of leaf and spine with their cables, in drawing order. `between` is by lower, then upper."""
    spines = set(pod.spines)
    return {
        (leaf, spine): cables
        for leaf, _ in pod.leaves
        for spine, cables in between.get(leaf, {}).items()
        if spine in spines
    }


def pattern(between: Mapping[tuple[str, str], Sequence[Cable]]) -> Pattern:
    """How a pod's leaves and spines are cabled, in a sentence. `between` has the pod's own pairs."""
    if not between:
        return Pattern("", 0, {})
    pairs = {ends: len(cables) for ends, cables in between.items()}
    groups, apart = _groups(pairs)
    regular = {ends: number for ends, number in pairs.items() if ends[0] not in apart}
    cables, usual = sum(pairs.values()), Counter(regular.values()).most_common(1)[0][0]
    rates = Counter(cable.rate for own in between.values() for cable in own)
    rate = nominal(max(rates, key=lambda one: (rates[one], one)))
    odd = {
        (leaf, spine): pairs.get((leaf, spine), 0)
        for below, above in groups
        for leaf in below
        for spine in above
        if pairs.get((leaf, spine), 0) < usual
    }
    if len(odd) * 4 > len(pairs):
        return Pattern(f"{cables:,} cables between {len(pairs):,} leaf–spine pairs, {rate}", usual, {}, apart)
    sizes = {(len(below), len(above)) for below, above in groups}
    shape = " and ".join(f"{a} × {b}" for a, b in sorted(sizes)) if len(sizes) < 3 else "leaf–spine"
    several = f"{len(groups)} groups of {shape}" if len(groups) > 1 else shape
    lack = f", {len(odd)} with fewer" if odd else ""
    return Pattern(f"{several} pairs × {usual} = {cables:,} cables, {rate}{lack}", usual, odd, apart)


def _groups(pairs: Iterable[tuple[str, str]]) -> tuple[list[tuple[list[str], list[str]]], frozenset[str]]:
    """Leaves and spines that are joined by pairs, one group for each rail in a rail-optimised pod; and the leaves
    that are left out of the groups, since they have less than half of the spines of theirs."""
    around: dict[str, set[str]] = defaultdict(set)
    distance: dict[str, int] = {}
    for leaf, spine in pairs:
        around[leaf].add(spine)
        around[spine].add(leaf)
        distance[leaf], distance[spine] = 1, 2
    meets = components(around, distance)
    found: dict[str, tuple[list[str], list[str]]] = {}
    for guid, far in distance.items():
        found.setdefault(meets[guid], ([], []))[far - 1].append(guid)
    apart = {leaf for below, above in found.values() for leaf in below if 2 * len(around[leaf]) < len(above)}
    groups = [([leaf for leaf in below if leaf not in apart], above) for below, above in found.values()]
    return groups, frozenset(apart)


def short_labels(labels: Sequence[str]) -> list[str]:
    """Labels without what all of them have in common: `A09-LEAF-04-01`, `A09-LEAF-04-02` become `04-01`, `04-02`.

    Only whole words between dashes, dots and blanks go, and never all of a label.
    """
    parts = [label.replace(" ", "-").split("-") for label in labels]
    if len(parts) < 2 or len({len(words) for words in parts}) != 1:
        return list(labels)
    keep = [place for place in range(len(parts[0])) if len({words[place] for words in parts}) > 1]
    if not keep:
        return list(labels)
    return ["-".join(words[place] for place in keep) for words in parts]


def rank(switches: Mapping[str, Switch], guids: Iterable[str]) -> list[str]:
    """GUIDs in natural order of their labels."""
    return sorted(guids, key=lambda guid: (natural_order(switches[guid].label), guid))
