"""What the tool wrote to stderr: which lines mean that the scan missed something, and what.

A lost answer names the directed route that was asked: the ports to leave by, hop after hop, from the scanning
node's own port. Walking that route through what the scan did find says which device is the unknown one.
Attributes of management packets: InfiniBand Architecture Specification, volume 1, 14.2.5 (NodeDescription 0x10,
NodeInfo 0x11, SwitchInfo 0x12, PortInfo 0x15).
"""

import re
from collections.abc import Iterable

from llmgw.fabric.scan import Device, Problem, Scan, Trouble, Weight

_LOST = re.compile(r".*DR path slid \d+; dlid \d+; (?P<path>[\d,]+) Attr 0x(?P<attr>[0-9a-fA-F]+):(?P<port>\d+)\)")
_WARNING = re.compile(
    r".*?(?:\bbad status -?\d+;|\bibwarn: \[|\bibpanic: \[|\bIBWARN\b|query_smp\.c:\d+;"
    r"|\bWARNING failed to parse)",
    re.IGNORECASE,
)
_GAVE_UP = re.compile(r".*?\bibpanic: \[\d+\]|.*\bdiscover failed\b|.*[Cc]an't open UMAD port|.*Failed to open ")
_SIMULATOR = re.compile(r"ibwarn: \[\d+\] sim_\w+: attached as client ")
"""What ibsim's client library says whenever it is used."""

_NODE_DESCRIPTION, _NODE_INFO, _SWITCH_INFO, _PORT_INFO = 0x10, 0x11, 0x12, 0x15


def is_warning(line: str) -> bool:
    """Whether infiniband-diags wrote the line to stderr, wherever it was found."""
    return _WARNING.match(line[:500]) is not None


def lines_of(stderr: str) -> list[tuple[int, str]]:
    """The lines of a stderr that is apart from the scan, without numbers (0), blank ones left out."""
    return [(0, line.strip()[:500]) for line in stderr.splitlines()[:20_000] if line.strip()]


def judge_stderr(lines: Iterable[tuple[int, str]], scan: Scan) -> list[Problem]:
    """A problem for each line: PARTIAL for lost answers and warnings, REJECTED where the tool gave up."""
    return [_judged(number, line, scan) for number, line in lines]


def _judged(number: int, line: str, scan: Scan) -> Problem:
    if _GAVE_UP.match(line):
        return Problem(number, Trouble.TOOL_FAILED, Weight.REJECTED, line, line[:200])
    if lost := _LOST.match(line):
        path = [int(part) for part in lost["path"].split(",") if part]
        what = _lost_what(path, int(lost["attr"], 16), int(lost["port"]), scan)
        return Problem(number, Trouble.NO_ANSWER, Weight.PARTIAL, what, line[:200])
    if "failed to parse node name map" in line:
        return Problem(number, Trouble.TOOL, Weight.NOTE, "the node name map was not used", line[:200])
    if is_warning(line) and not _SIMULATOR.match(line):
        return Problem(number, Trouble.TOOL, Weight.PARTIAL, line, line[:200])
    return Problem(number, Trouble.SAID, Weight.NOTE, line, line[:200])


def _lost_what(path: list[int], attribute: int, port: int, scan: Scan) -> str:
    """In words: what did not answer, and so what is not known."""
    device, left = _walk(path, scan)
    route = ",".join(map(str, path))
    if device is None:
        return f"something on the route {route}: the scanning node is not in the text"
    name = device.name.strip() or device.guid
    if left:
        further = f", {len(left) - 1} hops before what was asked" if len(left) > 1 else ""
        return f"the device behind {name} port {left[0]} is unknown (route {route}{further})"
    if attribute == _NODE_DESCRIPTION:
        return f"{name} did not tell its name (route {route})"
    if attribute in (_SWITCH_INFO, _PORT_INFO):
        of_port = f" port {port}" if attribute == _PORT_INFO else ""
        return f"{name}{of_port} did not tell its state: what is behind it may be unknown (route {route})"
    return f"{name} did not answer (route {route})"


def _walk(path: list[int], scan: Scan) -> tuple[Device | None, list[int]]:
    """The last device on the route that the scan knows, and the ports of the route that lead on from there."""
    device = scan.devices.get(scan.header.node)
    for step, port in enumerate(path[1:], 1):
        cable = device.cables.get(port) if device else None
        following = scan.devices.get(cable.peer) if cable else None
        if following is None:
            return device, path[step:]
        device = following
    return device, []
