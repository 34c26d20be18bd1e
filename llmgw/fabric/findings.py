"""What is wrong with a fabric now, and what a person should know of it, worst first."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llmgw.base import count, natural
from llmgw.fabric.fabric import Cable, Fabric, Finding, Severity, Standing, Tier
from llmgw.fabric.scan import Weight
from llmgw.fabric.tiers import Neighbours, is_service_spine

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
_NAMES = 8
"""Names that a sentence lists before it says how many more there are."""


def findings(fabric: Fabric, near: Neighbours, misfits: Sequence[Finding]) -> Fabric:
    """The fabric with its findings: what the scan missed, short cables, adapters off their rail, and the rest."""
    found = [
        *_scan(fabric),
        *misfits,
        *_short(fabric),
        *_off_rail(fabric),
        *_missing(fabric),
        *_unnamed(fabric),
        *_layout(fabric, near),
    ]
    return replace(fabric, findings=tuple(sorted(found, key=lambda one: _ORDER[one.severity])))


def cable_words(fabric: Fabric, cable: Cable) -> str:
    """`gpu07 mlx5_2/1 - leaf-c port 11`: both ends as people call them, an adapter's first."""
    return " - ".join(two_ends(fabric, cable))


def two_ends(fabric: Fabric, cable: Cable) -> tuple[str, str]:
    """What people call the ends of a cable, an adapter's first."""
    a, b = (cable.a, cable.a_port), (cable.b, cable.b_port)
    first, second = (b, a) if b in fabric.adapters and a not in fabric.adapters else (a, b)
    return end_words(fabric, *first), end_words(fabric, *second)


def end_words(fabric: Fabric, guid: str, port: int) -> str:
    """`leaf-c port 11` for a switch, `gpu07 mlx5_2/1` for an adapter, the GUID and port of anything else."""
    if switch := fabric.switches.get(guid):
        return f"{switch.label} port {port}"
    adapter = fabric.adapters.get((guid, port))
    return adapter.label if adapter else f"{guid} port {port}"


def some(names: Iterable[str]) -> str:
    """The first names in natural order, and how many more there are."""
    own = natural(set(names))
    more = f" and {len(own) - _NAMES} more" if len(own) > _NAMES else ""
    return ", ".join(own[:_NAMES]) + more


def _scan(fabric: Fabric) -> Iterator[Finding]:
    verdict = fabric.verdict
    if verdict.state == "complete":
        return
    for problem in verdict.problems:
        if problem.weight is not Weight.NOTE:
            yield Finding(Severity.WARNING, f"scan {verdict.state}", str(problem))


def _short(fabric: Fabric) -> Iterator[Finding]:
    for cable in fabric.cables:
        if cable.degraded:
            adapter = fabric.adapters.get((cable.a, cable.a_port)) or fabric.adapters.get((cable.b, cable.b_port))
            what = f"{cable_words(fabric, cable)} runs at {cable.rate}, its kind at {cable.expected}"
            node = adapter.node if adapter and adapter.node else ""
            yield Finding(Severity.ERROR, "short cable", what, cable.a, cable.a_port, node)


def _off_rail(fabric: Fabric) -> Iterator[Finding]:
    for adapter in fabric.adapters.values():
        if adapter.off_rail:
            leaf = fabric.switches[adapter.leaf]
            there = f", the leaf of rail {leaf.rail}" if leaf.rail else ""
            place = f"{leaf.label} port {adapter.leaf_port}{there}"
            what = f"{adapter.label} is rail {adapter.rail}, but cabled to {place}"
            yield Finding(Severity.ERROR, "off rail", what, adapter.guid, adapter.port, adapter.node or "")


def _missing(fabric: Fabric) -> Iterator[Finding]:
    lacking: dict[tuple[str, int], list[str]] = defaultdict(list)
    for node, lacks in fabric.missing.items():
        for device, rail in lacks:
            lacking[device, rail].append(node)
    for (device, rail), nodes in sorted(lacking.items(), key=lambda item: item[0][1]):
        what = f"{count(len(nodes), 'node')} without {device} (rail {rail}): {some(nodes)}"
        yield Finding(Severity.WARNING, "adapter missing", what, node=nodes[0] if len(nodes) == 1 else "")


def _unnamed(fabric: Fabric) -> Iterator[Finding]:
    nobody = [one for one in fabric.adapters.values() if one.standing is Standing.UNNAMED]
    if nobody:
        leaves = some(fabric.switches[one.leaf].label for one in nobody if one.leaf)
        what = f"{count(len(nobody), 'adapter')} whose description names no host, on {leaves}"
        yield Finding(Severity.NOTE, "unnamed adapters", what)


def _layout(fabric: Fabric, near: Neighbours) -> Iterator[Finding]:
    if not fabric.rails and any(len(own) > 1 for own in fabric.nodes.values()):
        yield Finding(Severity.NOTE, "no rails", "not a rail-aligned layout: adapters of a node share their leaf")
    for switch in fabric.switches.values():
        if switch.hostless:
            what = (
                f"{switch.label}: no live adapter below, so that it may be a leaf without hosts or a core switch"
            )
            yield Finding(Severity.NOTE, "no live adapter below", what, switch.guid)
        elif (
            switch.tier is not Tier.LEAF and near.adapters.get(switch.guid) and is_service_spine(switch.guid, near)
        ):
            what = f"{switch.label}: {count(near.adapters[switch.guid], 'adapter')} on a {switch.tier} switch"
            yield Finding(Severity.NOTE, "hosts above the leaves", what, switch.guid)
    for cable in fabric.cables:
        if cable.a == cable.b:
            what = f"{cable_words(fabric, cable)}: a cable from a switch to itself"
            yield Finding(Severity.NOTE, "self cable", what, cable.a, cable.a_port)
