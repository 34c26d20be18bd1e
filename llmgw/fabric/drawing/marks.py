"""What stands out in a drawing: faults as they are, or what changed since an older map, numbered for a list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llmgw.fabric.diff import Change, Changes
from llmgw.fabric.drawing.values import Look
from llmgw.fabric.fabric import Fabric, Severity
from llmgw.fabric.topology import LinkItem, Topology

Port = tuple[str, int]
Ends = tuple[Port, Port]

_LIST = 48
"""Lines of the list under a drawing. Further faults are marked without a number."""

_LOOKS = {
    Change.SWITCH_GONE: Look.GONE,
    Change.SWITCH_NEW: Look.ADDED,
    Change.NODE_GONE: Look.GONE,
    Change.NODE_NEW: Look.ADDED,
    Change.ADAPTER_GONE: Look.GONE,
    Change.ADAPTER_NEW: Look.ADDED,
    Change.CABLE_GONE: Look.GONE,
    Change.CABLE_NEW: Look.ADDED,
    Change.CABLE_MOVED: Look.MOVED,
    Change.SHORT: Look.SHORT,
    Change.RATE: Look.SHORT,
    Change.RECOVERED: Look.RECOVERED,
    Change.RAIL: Look.OFF_RAIL,
    Change.RENAMED: Look.MOVED,
}


class Mark(NamedTuple):
    """How something stands out, and its number in the list; 0 where it has none."""

    look: Look
    number: int


class GoneAdapter(NamedTuple):
    """An adapter of the older map, to be drawn where it was."""

    port: Port
    leaf: str
    leaf_port: int
    label: str


class GoneSwitch(NamedTuple):
    """A switch of the older map, with those that it was cabled to."""

    guid: str
    label: str
    tier: str
    neighbours: tuple[str, ...]


@dataclass(slots=True)
class Marks:
    """Marks by what they stand on, and the list that explains their numbers."""

    adapters: dict[Port, Mark] = field(default_factory=dict)
    switches: dict[str, Mark] = field(default_factory=dict)
    cables: dict[Ends, Mark] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    gone_adapters: list[GoneAdapter] = field(default_factory=list)
    gone_switches: list[GoneSwitch] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    group_names: list[str] = field(default_factory=list)

    def add(self, text: str) -> int:
        """The number of a new line of the list; 0 where the list is full."""
        self.lines.append(text)
        return len(self.lines) if len(self.lines) <= _LIST else 0

    def listed(self) -> list[str]:
        """The list as it is to be written, with how many lines it leaves out."""
        numbered = [f"{number}  {text}" for number, text in enumerate(self.lines[:_LIST], 1)]
        more = len(self.lines) - _LIST
        return [*numbered, f"and {more} more"] if more > 0 else numbered


def fault_marks(fabric: Fabric) -> Marks:
    """Short cables and adapters off their rail; in the list alone what has no place and is worse than a note."""
    marks = Marks()
    ends = {(cable.a, cable.a_port): cable for cable in fabric.cables if cable.degraded}
    for finding in fabric.findings:
        if finding.severity is Severity.NOTE:
            continue
        number = marks.add(f"{finding.kind}: {finding.text}")
        key = (finding.guid, finding.port)
        if finding.kind == "short cable" and key in ends:
            cable = ends[key]
            other = (cable.b, cable.b_port)
            at = next((end for end in (key, other) if end in fabric.adapters), None)
            if at:
                marks.adapters[at] = Mark(Look.SHORT, number)
            else:
                marks.cables[key, other] = Mark(Look.SHORT, number)
        elif key in fabric.adapters:
            marks.adapters[key] = Mark(Look.OFF_RAIL, number)
        elif finding.guid in fabric.switches:
            marks.switches[finding.guid] = Mark(Look.SHORT, number)
    return marks


def change_marks(fabric: Fabric, old: Topology, changes: Changes) -> Marks:
    """What changed from the older map to this one. What is gone is to be drawn where it was."""
    marks = Marks()
    before = {(end.guid, end.port): link for link in old.links for end in (link.a, link.b)}
    now = {end: cable for cable in fabric.cables for end in ((cable.a, cable.a_port), (cable.b, cable.b_port))}
    gone = _gone_adapters(fabric, old, before)
    for change in changes.changes:
        number = marks.add(f"{change.kind}: {change.text}")
        mark, key = Mark(_LOOKS[change.kind], number), (change.guid, change.port)
        if change.adapters:
            for end in change.adapters:
                _adapter(marks, fabric, gone, (end.guid, end.port), mark)
        elif key in fabric.adapters or change.kind is Change.ADAPTER_GONE:
            _adapter(marks, fabric, gone, key, mark)
        elif change.kind is Change.SWITCH_GONE:
            _gone_switch(marks, change.guid, old, mark)
        elif change.kind is Change.CABLE_GONE and key in before:
            link = before[key]
            marks.cables[(link.a.guid, link.a.port), (link.b.guid, link.b.port)] = mark
        elif key in now:
            cable = now[key]
            marks.cables[(cable.a, cable.a_port), (cable.b, cable.b_port)] = mark
        elif change.guid in fabric.switches:
            marks.switches[change.guid] = mark
    return marks


def _adapter(marks: Marks, fabric: Fabric, gone: Mapping[Port, GoneAdapter], key: Port, mark: Mark) -> None:
    """Marks an adapter that is there, or one that is to be drawn where it was."""
    if key not in fabric.adapters and key not in gone:
        return
    marks.adapters[key] = mark
    if key not in fabric.adapters:
        marks.gone_adapters.append(gone[key])


def _gone_adapters(fabric: Fabric, old: Topology, before: Mapping[Port, LinkItem]) -> dict[Port, GoneAdapter]:
    """The older map's adapters that this one has not, each with the place that it was cabled to."""
    found = {}
    for adapter in old.adapters:
        key = (adapter.guid, adapter.port)
        if key not in fabric.adapters and (link := before.get(key)):
            far = link.b if (link.a.guid, link.a.port) == key else link.a
            label = f"{adapter.node or adapter.description} {adapter.device}".strip()
            found[key] = GoneAdapter(key, far.guid, far.port, label)
    return found


def _gone_switch(marks: Marks, guid: str, old: Topology, mark: Mark) -> None:
    switch = next(one for one in old.switches if one.guid == guid)
    around = [
        far.guid for link in old.links for near, far in ((link.a, link.b), (link.b, link.a)) if near.guid == guid
    ]
    marks.switches[guid] = mark
    marks.gone_switches.append(GoneSwitch(guid, switch.name, switch.tier, tuple(dict.fromkeys(around))))


def replica_groups(marks: Marks, replicas: Mapping[str, Sequence[str]]) -> Marks:
    """The same marks, with where replicas are: `replicas` has the nodes of each. Replicas keep their order.

    A node of several replicas is drawn as the first's.
    """
    for number, (replica, nodes) in enumerate(replicas.items()):
        marks.group_names.append(replica)
        for node in nodes:
            marks.groups.setdefault(node, number)
    return marks
