"""Port lines joined into cables, and where the two lines of one cable do not say the same.

ibnetdiscover prints both lines of a cable from one record each, so that they agree in everything but the rate,
which is asked of either end at its own moment. Where anything else differs the text was damaged or edited.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from llmgw.fabric.rates import KNOWN, timed_out
from llmgw.fabric.scan import Device, Kind, PortLine, Problem, Scan, Trouble, Weight

Pair = tuple[Device, PortLine, Device, PortLine]
"""One cable: device and line of end a, which has the lower GUID or the lower port of one device, then of end b."""


class OneSided(NamedTuple):
    """A port line whose far end does not say the same. `why` is a sentence's end."""

    device: Device
    line: PortLine
    why: str


class Joined(NamedTuple):
    """Every cable once, by GUID and port of its end a; the places of those with an adapter or router at an end;
    those whose lines differ in anything; and the lines that make no cable."""

    pairs: list[Pair]
    edges: list[int]
    differing: list[Pair]
    one_sided: list[OneSided]


def join(scan: Scan) -> Joined:
    """The cables of a scan."""
    pairs: list[Pair] = []
    edges: list[int] = []
    differing: list[Pair] = []
    lines = 0
    devices = scan.devices
    switch = Kind.SWITCH
    for guid in sorted(devices):
        device = devices[guid]
        is_switch = device.kind is switch
        cables = device.cables
        lines += len(cables)
        for port in sorted(cables):
            line = cables[port]
            peer = line.peer
            if peer < guid or (peer == guid and line.peer_port < port):
                continue
            other = devices.get(peer)
            mirror = other.cables.get(line.peer_port) if other else None
            if not (other and mirror) or mirror.peer != guid or mirror.peer_port != port:
                continue
            pair = (device, line, other, mirror)
            if not is_switch or other.kind is not switch:
                edges.append(len(pairs))
            if (
                line.rate is not mirror.rate
                or line.name != other.name
                or mirror.name != device.name
                or line.lid != (other.lid if mirror.own_lid is None else mirror.own_lid)
                or mirror.lid != (device.lid if line.own_lid is None else line.own_lid)
                or line.peer_guid != mirror.port_guid
                or mirror.peer_guid != line.port_guid
            ):
                differing.append(pair)
            pairs.append(pair)
            lines += mirror is line
    return Joined(pairs, edges, differing, [] if lines == 2 * len(pairs) else list(_one_sided(scan)))


def _one_sided(scan: Scan) -> Iterator[OneSided]:
    for guid, device in scan.devices.items():
        for line in device.cables.values():
            other = scan.devices.get(line.peer)
            if other is None:
                yield OneSided(device, line, "which is not in the text")
                continue
            mirror = other.cables.get(line.peer_port)
            if mirror is None:
                yield OneSided(device, line, "whose block does not have that port")
            elif mirror.peer != guid or mirror.peer_port != line.port:
                yield OneSided(device, line, f"which line {mirror.line} cables to something else")


def contradictions(pairs: Iterable[Pair]) -> Iterator[Problem]:
    """Where the lines of a cable differ, or a line differs from the head of the device that it names."""
    for a, a_line, b, b_line in pairs:
        if a_line.rate != b_line.rate:
            yield from _rates(a_line, b_line)
        if a_line.name != b.name:
            yield _names(a_line, b)
        if b_line.name != a.name:
            yield _names(b_line, a)
        if a_line.peer_guid != b_line.port_guid or b_line.peer_guid != a_line.port_guid:
            yield from _port_guids(a_line, b_line)
        if (a_lid := a.lid if a_line.own_lid is None else a_line.own_lid) != b_line.lid:
            yield from _lids(b_line, a, a_lid)
        if (b_lid := b.lid if b_line.own_lid is None else b_line.own_lid) != a_line.lid:
            yield from _lids(a_line, b, b_lid)


def _rates(one: PortLine, other: PortLine) -> Iterator[Problem]:
    """Ends that differ in width trained at different moments; a speed is the same at both ends, always."""
    if timed_out(one.rate) or timed_out(other.rate) or not one.rate or not other.rate:
        return  # already reported with its line
    same_speed = one.rate in KNOWN and one.rate.partition("x")[2] == other.rate.partition("x")[2]
    weight = Weight.NOTE if same_speed else Weight.PARTIAL
    what = f"{one.rate} here, {other.rate} on line {other.line}"
    yield Problem(one.line, Trouble.RATES_DIFFER, weight, what)


def _names(line: PortLine, device: Device) -> Problem:
    """A node-name map renames adapters on port lines only; one letter more, less or other is no renaming."""
    what = f"here the device of line {device.line} has another name"
    if device.kind is Kind.SWITCH or _one_letter(line.name, device.name):
        return Problem(line.line, Trouble.NAMES_DIFFER, Weight.PARTIAL, what, line.name[:200])
    return Problem(line.line, Trouble.MAPPED_NAME, Weight.NOTE, what, line.name[:200])


def _one_letter(one: str, other: str) -> bool:
    """Whether one letter changed, added or lost makes one name of the other."""
    short, long = sorted((one, other), key=len)
    same = next((place for place, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return len(long) - len(short) < 2 and short[same + (len(long) == len(short)) :] == long[same + 1 :]


def _port_guids(one: PortLine, other: PortLine) -> Iterator[Problem]:
    for line, far in ((one, other), (other, one)):
        if line.peer_guid and far.port_guid and line.peer_guid != far.port_guid:
            what = f"the port is {line.peer_guid} here, {far.port_guid} on line {far.line}"
            yield Problem(line.line, Trouble.GUIDS_DIFFER, Weight.PARTIAL, what)


def _lids(line: PortLine, device: Device, lid: int | None) -> Iterator[Problem]:
    what = f"{_lid_words(line.lid)} here, {_lid_words(lid)} by the block of line {device.line}"
    yield Problem(line.line, Trouble.LIDS_DIFFER, Weight.PARTIAL, what)


def _lid_words(lid: int | None) -> str:
    return "none" if lid is None else str(lid)
