"""What is wrong with a fabric now, as a document (llmgw-findings/1): `llmgw fabric verify`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from llmgw.base import Document, Value, visible
from llmgw.fabric.fabric import Fabric, Finding, Severity
from llmgw.fabric.linkinfo import DownPort


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


def verify(fabric: Fabric, *, name: str, scanned_at: datetime, down: Sequence[DownPort] = ()) -> Findings:
    """The findings of a fabric and its ports that are down, errors first."""
    found = [*_down(fabric, down), *fabric.findings]
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


def _down(fabric: Fabric, down: Sequence[DownPort]) -> list[Finding]:
    return [
        Finding(
            Severity.ERROR,
            "port down",
            f"{_switch(fabric, one)} port {one.port} is {one.phys.lower()}{_peer(fabric, one)}",
            one.guid,
            one.port,
        )
        for one in down
    ]


def _switch(fabric: Fabric, port: DownPort) -> str:
    switch = fabric.switches.get(port.guid)
    return switch.label if switch else port.name or port.guid


def _peer(fabric: Fabric, port: DownPort) -> str:
    if not port.peer:
        return ""
    switch = fabric.switches.get(port.peer)
    what = f"{switch.label} port {port.peer_port}" if switch else f"{port.peer} port {port.peer_port}"
    return f"; it had a cable to {what}"


def finding_lines(findings: Findings) -> list[str]:
    """One line a finding, safe to show: `error: short cable: …`."""
    return [visible(f"{one.severity}: {one.kind}: {one.text}") for one in findings.findings]
