"""A whole block at once, where it is exactly as ibnetdiscover writes it: nearly every block of every scan.

Anything out of the ordinary is left to the reader of single lines (llmgw.fabric.parse), which says what is wrong.
Both give equal devices for an ordinary block; this one is three times as fast.
"""

import re

from llmgw.fabric.grammar import Seen
from llmgw.fabric.rates import KNOWN
from llmgw.fabric.scan import Device, Kind, PortLine

_IDS = r"vendid=0x([0-9a-f]{1,8})\ndevid=0x([0-9a-f]{1,8})\n(?:sysimgguid=0x([0-9a-f]{1,16})\n)?"
_ADAPTER = re.compile(
    _IDS + r"caguid=0x([0-9a-f]{1,16})\n"
    r'Ca[ \t]*(\d{1,4})[ \t]*"H-([0-9a-f]{16})"[ \t]*#[ \t]*"([^"\n]*)"\n'
    r'\[(\d{1,4})\]\(([0-9a-f]{1,16})\)[ \t]*"S-([0-9a-f]{16})"\[(\d{1,4})\][ \t]*#[ \t]*'
    r'lid (\d{1,5}) lmc \d+ "([^"\n]*)" lid (\d{1,5}) (\S+)\n?',
    re.ASCII,
).fullmatch
_BLOCK = re.compile(
    _IDS + r"(?:switch|ca|rt)guid=0x([0-9a-f]{1,16})(?:\(([0-9a-f]{1,16})\))?\n"
    r'(?:Switch[ \t]*(\d{1,4})[ \t]*"S|Ca[ \t]*(\d{1,4})[ \t]*"H|Rt[ \t]*(\d{1,4})[ \t]*"R)-([0-9a-f]{16})"'
    r'[ \t]*#[ \t]*"([^"\n]*)"(?: (base|enhanced) port 0 lid (\d{1,5}) lmc \d+)?'
    r"((?:\n\[[^\n]*)*)\n?",
    re.ASCII,
).fullmatch
# What stands between a port's number and its peer, and between the peer and its name, is looked at afterwards.
_PORTS = re.compile(
    r'^\[(\d{1,4})\]([^"\n]*)"[SHR]-([0-9a-f]{16})"\[(\d{1,4})\]([^"\n]*)"([^"\n]*)" lid (\d{1,5}) (\S+)$',
    re.MULTILINE | re.ASCII,
).findall
_SWITCH, _CA, _ROUTER = Kind.SWITCH, Kind.ADAPTER, Kind.ROUTER  # looking one up in its class takes longer


def read_block(chunk: str, first: int, seen: Seen) -> Device | None:
    """The device of a block that begins on line `first`; None where anything in it is out of the ordinary."""
    match = _ADAPTER(chunk)
    if match:
        return _adapter(match, first, seen)
    match = _BLOCK(chunk)
    if match is None:
        return None
    vendor, model, system, stated, second, as_switch, as_ca, as_rt, guid, name, port0, lid, body = match.groups()
    kind = _SWITCH if as_switch else _CA if as_ca else _ROUTER
    guids, same, hexes = seen.guids, seen.same, seen.hexes
    named = guids[second or stated]
    if (port0 is None) is (kind is _SWITCH) or guid != named or not name.strip():
        return None
    ports = int(as_switch or as_ca or as_rt)
    line = first + (4 if system else 3)
    cables = _cables(body, line, ports, seen)
    if cables is None:
        return None
    return Device(
        same[guid], kind, ports, same[name], line, hexes[vendor], hexes[model],
        guids[system] if system else "", (guids[stated], named) if second else (named,), int(lid) if lid else None,
        port0 == "enhanced" if port0 else None, "", "", cables,
    )  # fmt: skip


def _adapter(match: re.Match[str], first: int, seen: Seen) -> Device | None:
    """An adapter with one cable, to a switch: six blocks of seven."""
    vendor, model, system, stated, ports, guid, name, *ends = match.groups()
    port, own, peer, peer_port, own_lid, peer_name, lid, rate = ends
    same, numbers, hexes = seen.same, seen.numbers, seen.hexes
    number, line = numbers[port], first + (4 if system else 3)
    if guid != stated.rjust(16, "0") or not name.strip() or rate not in KNOWN or not 0 < number <= numbers[ports]:
        return None
    guid = same[guid]
    own_guid = guid if own == stated else own.rjust(16, "0")
    cable = PortLine(
        line + 1, number, same[peer], numbers[peer_port], same[peer_name], numbers[lid], KNOWN[rate],
        own_guid, "", numbers[own_lid],
    )  # fmt: skip
    if system is not None:
        system = guid if system == stated else system.rjust(16, "0")
    return Device(
        guid, _CA, numbers[ports], name, line, hexes[vendor], hexes[model], system or "", (guid,), None, None, "", "",
        {number: cable},
    )  # fmt: skip


def _cables(body: str, line: int, ports: int, seen: Seen) -> dict[int, PortLine] | None:
    """The port lines under a head on `line`; None where one is out of the ordinary."""
    found = _PORTS(body)
    if len(found) != body.count("\n"):
        return None
    same, numbers = seen.same, seen.numbers
    cables: dict[int, PortLine] = {}
    to = to_name = ""
    for port, before, peer, peer_port, between, name, lid, rate in found:
        line += 1
        if rate not in KNOWN:
            return None
        number = numbers[port]
        if peer != to or name != to_name:
            to, to_name = same[peer], name
        if between == "\t\t# " and before == "\t":
            if name is to_name:
                to_name = same[name]
            cables[number] = PortLine(line, number, to, numbers[peer_port], to_name, numbers[lid], KNOWN[rate])
            continue
        words = between.split()
        peer_guid, own_lid = "", None
        if len(words) == 2 and words[0][0] == "(" and words[0][-1] == ")":
            peer_guid = words.pop(0)[1:-1].lower().rjust(16, "0")
        elif len(words) == 5 and words[1] == "lid" and words[2].isdecimal():
            own_lid = numbers[words[2]]
        elif len(words) != 1:
            return None
        own = before.strip()
        if words[0] != "#" or (own and (own[0] != "(" or own[-1] != ")")):
            return None
        cables[number] = PortLine(
            line, number, to, numbers[peer_port], to_name, numbers[lid], KNOWN[rate],
            own[1:-1].lower().rjust(16, "0") if own else "", peer_guid, own_lid,
        )  # fmt: skip
    if len(cables) != len(found) or seen.guids.odd or (cables and not 0 < min(cables) <= max(cables) <= ports):
        return None
    return cables
