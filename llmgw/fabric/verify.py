"""What is wrong with a fabric now, as a document (llmgw-findings/1): `llmgw fabric verify`."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from llmgw.base import Document, Value, count, moment, visible
from llmgw.fabric.fabric import Fabric, Finding, Severity
from llmgw.fabric.findings import some
from llmgw.fabric.linkinfo import DownPort
from llmgw.fabric.remembered import MissedCable
from llmgw.fabric.sides import Port


class FindingItem(Value):
    """One finding. GUID, port and node are empty where it is no one place."""

    severity: Severity
    kind: str
    text: str
    guid: str = ""
    port: int = 0
    node: str = ""


class Findings(Document):
    """Everything found, worst first. `healthy` is false where anything is worse than a note."""

    format: Literal["llmgw-findings/1"] = "llmgw-findings/1"
    fabric: str
    scanned_at: datetime
    complete: bool
    healthy: bool
    findings: tuple[FindingItem, ...]


def verify(
    fabric: Fabric,
    *,
    name: str,
    scanned_at: datetime,
    down: Sequence[DownPort] = (),
    missed: Sequence[MissedCable] = (),
    more: Sequence[Finding] = (),
) -> Findings:
    """The findings of a fabric, errors first: its own, the cables that are missed, its ports that are down, and
    `more` that the caller knows of the scan.

    Every cable is told once: a missed one with the state of its port where that is known; those of a switch that is
    gone with the switch, those of a node of which nothing is left with the node.
    """
    found = [*more, *_Absent(fabric, missed, down).findings(), *_disabled(fabric, down), *fabric.findings]
    order = list(Severity)
    found.sort(key=lambda one: order.index(one.severity))
    return Findings(
        fabric=name,
        scanned_at=scanned_at,
        complete=fabric.verdict.state == "complete",
        healthy=all(one.severity is Severity.NOTE for one in found),
        findings=tuple(
            FindingItem(
                severity=one.severity, kind=one.kind, text=one.text, guid=one.guid, port=one.port, node=one.node
            )
            for one in found
        ),
    )


_ByName = dict[str, list[MissedCable]]


@dataclass(slots=True)
class _Absent:
    """What was there and is not: switches, nodes, cables; and ports that are down for no reason told with these."""

    fabric: Fabric
    missed: Sequence[MissedCable]
    down: Sequence[DownPort]

    def findings(self) -> Iterator[Finding]:
        """Switches first, then nodes, then cables, then ports."""
        by_switch, by_node, rest = self._sorted()
        states = {(one.guid, one.port): one for one in self.down}
        for guid, cables in by_switch.items():
            label = next(end.switch for one in cables for end in one.ends if end.guid == guid)
            what = f"{label} with {count(len(cables), 'cable')}, since {_since(cables)}"
            yield Finding(Severity.ERROR, "switch gone", what, guid)
        for node, cables in by_node.items():
            ports = some(one.ends[1].words for one in cables)
            what = f"{node} with {count(len(cables), 'cable')}, since {_since(cables)}: {ports}"
            yield Finding(Severity.WARNING, "node gone", what, *cables[0].keys[0], node=node)
        for one in rest:
            yield self._cable(one, states)
        told = {end for one in self.missed for end in one.keys}
        for port in self.down:
            if port.peer and (port.guid, port.port) not in told:
                yield _port_down(self.fabric, port)

    def _sorted(self) -> tuple[_ByName, _ByName, list[MissedCable]]:
        """The missed cables by the switch that is gone, by the node that is gone, and the others."""
        by_switch: _ByName = defaultdict(list)
        by_node: _ByName = defaultdict(list)
        rest: list[MissedCable] = []
        lost = Counter(one.node for one in self.missed)
        for one in self.missed:
            gone = next(
                (end.guid for end in one.ends if end.switch and end.guid not in self.fabric.switches), None
            )
            if gone:
                by_switch[gone].append(one)
            elif one.node and one.node not in self.fabric.nodes and lost[one.node] > 1:
                by_node[one.node].append(one)
            else:
                rest.append(one)
        return by_switch, by_node, rest

    def _cable(self, one: MissedCable, states: Mapping[Port, DownPort]) -> Finding:
        state = next((states[end] for end in one.keys if end in states), None)
        what = f"{one.text}, {one.rate} until {moment(one.since)}"
        if state:
            what += f"; {_label(self.fabric, state)} port {state.port} is {state.phys.lower()}"
        kind = "port down" if state else "cable gone"
        return Finding(Severity.ERROR, kind, what, *one.keys[0], node=one.node or "")


def _since(cables: Sequence[MissedCable]) -> str:
    return moment(min(one.since for one in cables))


def _port_down(fabric: Fabric, one: DownPort) -> Finding:
    """A port of a cable that no map has missed yet: the scan that goes with its state saw only part."""
    switch = fabric.switches.get(one.peer)
    peer = f"{switch.label} port {one.peer_port}" if switch else _adapter_words(fabric, one)
    what = f"{_label(fabric, one)} port {one.port} is {one.phys.lower()}; it had a cable to {peer}"
    return Finding(Severity.ERROR, "port down", what, one.guid, one.port)


def _adapter_words(fabric: Fabric, one: DownPort) -> str:
    adapter = fabric.adapters.get((one.peer, one.peer_port))
    return adapter.label if adapter else f"{one.peer} port {one.peer_port}"


def _label(fabric: Fabric, port: DownPort) -> str:
    switch = fabric.switches.get(port.guid)
    return switch.label if switch else port.name or port.guid


def _disabled(fabric: Fabric, down: Sequence[DownPort]) -> Iterator[Finding]:
    """Ports that somebody disabled and that never had a cable: worth knowing, and no fault."""
    ports = [f"{_label(fabric, one)} port {one.port}" for one in down if not one.peer]
    if ports:
        is_are = "port is" if len(ports) == 1 else "ports are"
        yield Finding(Severity.NOTE, "ports disabled", f"{len(ports)} {is_are} disabled: {some(ports)}")


def finding_lines(findings: Findings) -> list[str]:
    """One line a finding, safe to show: `error: short cable: …`."""
    return [visible(f"{one.severity}: {one.kind}: {one.text}") for one in findings.findings]
