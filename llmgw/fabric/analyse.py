"""A judged scan → Fabric: owners, tiers, rails, short cables, domains and pods, and what is wrong."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from llmgw.base import natural
from llmgw.base.bulk import collector_at_rest
from llmgw.fabric.domains import clusters, components
from llmgw.fabric.fabric import Adapter, Cable, Domain, Fabric, Switch
from llmgw.fabric.findings import findings
from llmgw.fabric.host_classes import Spot
from llmgw.fabric.hostlists import label_list
from llmgw.fabric.judge import Reading
from llmgw.fabric.kinds import Measured, measure
from llmgw.fabric.labels import chassis_of, domain_ids, pod_ids, switch_labels
from llmgw.fabric.names import host_class, natural_order
from llmgw.fabric.owners import KnownPort, Owner, Seen, owners
from llmgw.fabric.pairs import Pair
from llmgw.fabric.paths import Domain as KnownDomain
from llmgw.fabric.rails import Place, Rails, find_rails
from llmgw.fabric.scan import Device, Kind, PortLine
from llmgw.fabric.tiers import Neighbours, distances, hostless, is_aggregation, neighbours


class _End(Struct, frozen=True, gc=False):
    """An adapter's port with a cable: the cable's place in the list of pairs, and what it is cabled to."""

    device: Device
    line: PortLine
    pair: int
    peer: Device


def analyse(
    reading: Reading,
    *,
    hosts: Collection[str] = (),
    ports: Mapping[str, KnownPort] | None = None,
    earlier: Mapping[str, KnownDomain] | None = None,
) -> Fabric:
    """What a scan means. A rejected one too, as far as it goes: the verdict is part of the Fabric.

    `hosts` are the inventory's names. `ports` are the adapters that nodes have reported, by port GUID. `earlier`
    are the domains of the last map of this fabric: domains and pods that are still there keep their ids.
    """
    with collector_at_rest():
        return _analysed(reading, hosts, ports or {}, earlier or {})


def _analysed(
    reading: Reading,
    hosts: Collection[str],
    ports: Mapping[str, KnownPort],
    earlier: Mapping[str, KnownDomain],
) -> Fabric:
    pairs, devices = reading.pairs, reading.scan.devices.values()
    ends, aggregation = _ends(pairs, reading.edges)
    chips = [device for device in devices if device.kind is Kind.SWITCH]
    near = neighbours(chips, {end.device.guid for end in ends})
    distance = distances(near)
    owned, misfits = owners([_seen(end) for end in ends], hosts, ports)
    classes = {
        end.device.guid: host_class(owner.claims or owner.node or "")
        for end, owner in zip(ends, owned, strict=True)
    }
    measured = measure(pairs, devices, class_of=classes, tier_of=distance)
    rails = find_rails(_spots(ends, owned))
    switches = _switches(chips, near, distance, rails)
    adapters = _adapters(ends, owned, measured, rails)
    nodes = _by_node(adapters)
    fabric = Fabric(
        verdict=reading.verdict,
        generated=reading.scan.header.generated,
        scanned_from=reading.scan.header.node,
        switches=switches,
        adapters={(one.guid, one.port): one for one in adapters},
        cables=_cables(pairs, measured),
        domains=_domains(nodes, near, switches, earlier),
        rails=rails.count,
        nodes=nodes,
        aggregation=tuple(sorted(aggregation)),
        routers=tuple(device.guid for device in devices if device.kind is Kind.ROUTER),
        missing=rails.missing,
    )
    return findings(fabric, near, misfits)


def _ends(pairs: Sequence[Pair], edges: Iterable[int]) -> tuple[list[_End], frozenset[str]]:
    """The adapters' ends of cables, and the GUIDs of aggregation nodes, which are none."""
    found: list[_End] = []
    aggregation = set()
    card = Kind.ADAPTER
    for index in edges:
        a, a_line, b, b_line = pairs[index]
        if a.kind is card:
            if is_aggregation(a, b, a_line.peer_port):
                aggregation.add(a.guid)
            else:
                found.append(_End(a, a_line, index, b))
        if b.kind is card:
            if is_aggregation(b, a, b_line.peer_port):
                aggregation.add(b.guid)
            else:
                found.append(_End(b, b_line, index, a))
    return found, frozenset(aggregation)


def _seen(end: _End) -> Seen:
    return Seen(end.device.guid, end.line.port, end.line.port_guid, end.device.name)


def _spots(ends: Sequence[_End], owned: Sequence[Owner]) -> list[Spot]:
    return [
        Spot(index, owner.node, owner.device, end.line.port, owner.pci, end.peer.guid)
        for index, (end, owner) in enumerate(zip(ends, owned, strict=True))
        if owner.node
    ]


def _switches(
    chips: Sequence[Device], near: Neighbours, distance: Mapping[str, int], rails: Rails
) -> dict[str, Switch]:
    labels, chassis = switch_labels({chip.guid: chip.name for chip in chips}), chassis_of(chips)
    bare = hostless(near, distance)
    found = [
        Switch(
            guid=chip.guid,
            name=chip.name,
            label=labels[chip.guid],
            lid=chip.lid or 0,
            ports=chip.ports,
            model=chip.model,
            distance=distance[chip.guid],
            rail=rails.leaves.get(chip.guid),
            chassis=chassis.get(chip.guid),
            hostless=chip.guid in bare,
        )
        for chip in chips
    ]
    found.sort(key=lambda one: (one.distance, natural_order(one.label), one.guid))
    return {one.guid: one for one in found}


def _adapters(
    ends: Sequence[_End], owned: Sequence[Owner], measured: Sequence[Measured], rails: Rails
) -> list[Adapter]:
    found = []
    for index, (end, owner) in enumerate(zip(ends, owned, strict=True)):
        place = rails.places.get(index) or Place(rails.leaves.get(end.peer.guid), off=False)
        adapter = Adapter(
            guid=end.device.guid,
            port=end.line.port,
            port_guid=end.line.port_guid,
            device=owner.device,
            node=owner.node,
            claims=owner.claims,
            standing=owner.standing,
            description=end.device.name,
            model=end.device.model,
            leaf=end.peer.guid if end.peer.kind is Kind.SWITCH else "",
            leaf_port=end.line.peer_port,
            rail=place.rail,
            off_rail=place.off,
            rate=measured[end.pair].rate,
            expected=measured[end.pair].expected,
            pci=owner.pci,
        )
        found.append(adapter)
    names = {name: place for place, name in enumerate(natural({one.node or one.description for one in found}))}
    words = {word: place for place, word in enumerate(natural({one.device for one in found}))}
    found.sort(
        key=lambda one: (
            one.node is None,
            names[one.node or one.description],
            words[one.device],
            one.guid,
            one.port,
        )
    )
    return found


def _by_node(adapters: Iterable[Adapter]) -> dict[str, tuple[Adapter, ...]]:
    """Each named node's adapters, in the order of their rails, then of their names."""
    nodes: dict[str, list[Adapter]] = defaultdict(list)
    for adapter in adapters:
        if adapter.node:
            nodes[adapter.node].append(adapter)
    return {node: tuple(sorted(own, key=lambda one: one.rail or 1 << 30)) for node, own in nodes.items()}


def _cables(pairs: Sequence[Pair], measured: Sequence[Measured]) -> tuple[Cable, ...]:
    return tuple(
        [
            Cable(a.guid, a_line.port, b.guid, b_line.port, rate, expected, degraded)
            for (a, a_line, b, b_line), (rate, expected, degraded) in zip(pairs, measured, strict=True)
        ]
    )


def _domains(
    nodes: Mapping[str, Sequence[Adapter]],
    near: Neighbours,
    switches: Mapping[str, Switch],
    earlier: Mapping[str, KnownDomain],
) -> dict[str, Domain]:
    """Leaf domains by id, in natural order of their leaves."""
    labels = {guid: switch.label for guid, switch in switches.items()}
    found = clusters({node: [one.leaf for one in own if one.leaf] or [""] for node, own in nodes.items()})
    leaf_sets = [
        sorted((leaf for leaf in leaves if leaf), key=lambda leaf: (natural_order(labels[leaf]), leaf))
        for _, leaves in found
    ]
    order = sorted(
        range(len(found)),
        key=lambda at: [natural_order(labels[leaf]) for leaf in leaf_sets[at]] or [natural_order(found[at][0][0])],
    )
    leaf_sets = [leaf_sets[at] for at in order]
    ids = domain_ids(leaf_sets, labels, earlier)
    pods = _pods(dict(zip(ids, leaf_sets, strict=True)), near, switches, earlier)
    return {
        one: Domain(
            one, label_list([labels[leaf] for leaf in leaves]) or one, pods[one], tuple(leaves), found[at][0]
        )
        for one, leaves, at in zip(ids, leaf_sets, order, strict=True)
    }


def _pods(
    leaves_of: Mapping[str, Sequence[str]],
    near: Neighbours,
    switches: Mapping[str, Switch],
    earlier: Mapping[str, KnownDomain],
) -> dict[str, str]:
    """Each domain's pod: domains of which most leaves meet at spines."""
    meet = components(near.switches, {guid: switch.distance for guid, switch in switches.items()})
    found = clusters(
        {one: [meet.get(leaf, leaf) for leaf in leaves] or [one] for one, leaves in leaves_of.items()}
    )
    rank = {one: place for place, one in enumerate(leaves_of)}
    members = sorted(([*names] for names, _ in found), key=lambda names: min(rank[name] for name in names))
    ids = pod_ids([[leaf for name in names for leaf in leaves_of[name]] for names in members], earlier)
    return {name: pod for names, pod in zip(members, ids, strict=True) for name in names}
