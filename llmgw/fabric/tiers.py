"""Which switches are leaves, spines and cores: by their distance from the nearest adapter.

Two things blur the distance. Service hosts cabled to a spine would make it a leaf: a switch whose adapters are
fewer than a quarter of its cables, beside one that has three times as many adapters, is none. And a leaf that
has lost all its hosts is as far from any adapter as a core switch is: it can be told only by its neighbours.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from llmgw.fabric.names import says_aggregation
from llmgw.fabric.scan import Device, Kind

AGGREGATION_MODEL = 0xCF09
"""Device id of the SHARP aggregation node inside a switch, the same from Switch-IB 2 to Quantum-2."""

_FEW = 4
_MANY_MORE = 3


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who is cabled to a switch: adapters by count (aggregation nodes left out), other switches by cables."""

    adapters: Mapping[str, int]
    switches: Mapping[str, Mapping[str, int]]


def neighbours(switches: Iterable[Device], adapters: Collection[str]) -> Neighbours:
    """What surrounds every switch. `adapters` are the GUIDs of adapters, without aggregation nodes.

    A cable from a switch to itself makes no neighbour.
    """
    own = {switch.guid: switch for switch in switches}
    below: dict[str, int] = {}
    around: dict[str, dict[str, int]] = {}
    for guid, switch in own.items():
        near: dict[str, int] = {}
        hosts = 0
        for peer, number in Counter([line.peer for line in switch.cables.values()]).items():
            if peer in own:
                near[peer] = number
            elif peer in adapters:
                hosts += number
        near.pop(guid, None)
        around[guid] = near
        if hosts:
            below[guid] = hosts
    return Neighbours(below, around)


def is_service_spine(guid: str, near: Neighbours) -> bool:
    """Whether the switch has adapters but is no leaf: few among its cables, beside a switch with many more."""
    own = near.adapters.get(guid, 0)
    cables = own + sum(near.switches[guid].values())
    if not own or own * _FEW >= cables:
        return False
    return any(near.adapters.get(other, 0) >= _MANY_MORE * own for other in near.switches[guid])


def distances(near: Neighbours) -> dict[str, int]:
    """Each switch's distance: 1 for leaves. Where no switch has an adapter all are leaves; 0 is out of reach."""
    edge = [guid for guid in near.switches if near.adapters.get(guid) and not is_service_spine(guid, near)]
    edge = edge or [guid for guid in near.switches if near.adapters.get(guid)] or list(near.switches)
    found = dict.fromkeys(edge, 1)
    distance = 1
    while edge:
        distance += 1
        further = {other: None for guid in edge for other in near.switches[guid] if other not in found}
        found.update(dict.fromkeys(further, distance))
        edge = list(further)
    return {guid: found.get(guid, 0) for guid in near.switches}


def hostless(near: Neighbours, distance: Mapping[str, int]) -> frozenset[str]:
    """Switches that may be leaves without hosts, or stand above such: nothing shows that they are core switches.

    Those three away are if some leaf touches all that they touch: a core switch joins spines of which no leaf has
    all. In no fat tree is a switch four away.
    """
    return frozenset(
        guid
        for guid, far in distance.items()
        if far == 0 or far > 3 or (far == 3 and _stands_like_a_leaf(guid, near, distance))
    )


def _stands_like_a_leaf(guid: str, near: Neighbours, distance: Mapping[str, int]) -> bool:
    own = near.switches[guid].keys()
    first = min(own, key=lambda other: len(near.switches[other]))
    return any(
        distance[other] == 1 and own <= near.switches[other].keys()
        for other in near.switches[first]
        if other != guid
    )


def is_aggregation(device: Device, peer: Device, peer_port: int) -> bool:
    """Whether an adapter is the aggregation node of the switch it is cabled to.

    It is by its model; or by its description where it shares the switch's system GUID or sits on its last port.
    """
    if peer.kind is not Kind.SWITCH:
        return False
    if device.model == AGGREGATION_MODEL:
        return True
    inside = (device.system and device.system == peer.system) or peer_port == peer.ports
    return bool(inside) and says_aggregation(device.name)
