r"""The line forms of ibnetdiscover's default output, as infiniband-diags (rdma-core 65) prints them.

Everything between tokens may be tabs, blanks or nothing: copies from terminals lose them. A description ends at
the last quotation mark of its line, since the tool escapes none inside.
"""

import hashlib
import re
from typing import NamedTuple

from llmgw.fabric.rates import KNOWN
from llmgw.fabric.scan import Kind, PortLine

# [p][ext n](guid) "H-guid"[rp][ext n](guid) # lid n lmc n "      what follows is the description
_PORT_FRONT = re.compile(
    r"\s*\[(\d{1,5})\](?:\[ext (\d{1,5})\])?\s*(?:\(([0-9A-Fa-f]*)\))?\s*"
    r'"[SHR?]-([^"]*)"\s*\[(\d{1,5})\](?:\[ext \d{1,5}\])?\s*(?:\(([0-9A-Fa-f]*)\))?\s*'
    r'#\s*(?:lid\s*(\d{0,9})\s*lmc\s*\d*\s*)?"',
    re.ASCII,
).match
_PORT_TAIL = re.compile(r"\s*lid\s*(\d{0,9})(?:\s+|$)(?:(\S+)(.*))?", re.DOTALL | re.ASCII).fullmatch
_PORT_REST = re.compile(r"(?:\s*(?:s=\d+|w=\d+|v=\d+|slot \d+|\(scp\)))*\s*")
_HEAD_FRONT = re.compile(r'\s*(Switch|Ca|Rt|\?\?\?)\s*(\d{1,5})\s*"([SHR?])-([^"]*)"\s*#\s*"', re.ASCII)
_SWITCH_TAIL = re.compile(r"\s*(base|enhanced)\s+port\s+0\s+lid\s*(\d{0,9})\s*lmc\s*\d*\s*")
_OTHER_TAIL = re.compile(r"(?:\s*\(scp\))?\s*")
_GUIDS = re.compile(r"0x([0-9a-fA-F]+)\s*(?:\(([0-9a-fA-F]+)\))?\s*(?:#\s?(.*))?")


_KIND_OF_WORD = {"Switch": Kind.SWITCH, "Ca": Kind.ADAPTER, "Rt": Kind.ROUTER, "???": Kind.UNKNOWN}


class HeadParts(NamedTuple):
    """A device's head line taken apart. `id` is as written; `tail` is what could not be read at the end."""

    kind: Kind
    ports: int
    letter: str
    id: str
    name: str
    lid: int | None
    enhanced: bool | None
    tail: str


class Guids(dict[str, str]):
    """GUIDs by their written form, each made 16 lower-case digits once.

    A written form that is no GUID gets one made up (`stand_in`) and stands in `odd`.
    """

    def __init__(self) -> None:
        super().__init__({"": ""})
        self.odd: set[str] = set()

    def __missing__(self, text: str) -> str:
        guid = guid16(text)
        if guid is None:
            self.odd.add(text)
            guid = stand_in(text)
        self[text] = guid
        return guid


class Same(dict[str, str]):
    """One copy of equal texts: a description stands on dozens of lines."""

    def __missing__(self, text: str) -> str:
        self[text] = text
        return text


class Numbers(dict[str, int]):
    """Numbers by their digits: looking one up takes a third of the time of working it out."""

    def __missing__(self, text: str) -> int:
        self[text] = number = int(text)
        return number


class Hexes(dict[str, int]):
    """Numbers by their hexadecimal digits."""

    def __missing__(self, text: str) -> int:
        self[text] = number = int(text, 16)
        return number


class Seen:
    """The GUIDs, descriptions and numbers of one text, each kept once."""

    def __init__(self) -> None:
        self.guids = Guids()
        self.same = Same()
        self.numbers = Numbers()
        self.hexes = Hexes()


def port_line(line: str, number: int, seen: Seen) -> tuple[PortLine, str] | None:
    """A port line taken apart, and what stood after its rate that is not known there; None where it is none."""
    guids, same = seen.guids, seen.same
    head, _, tail = line.rpartition('"')
    front = _PORT_FRONT(head)
    if front is None:
        return None
    port, ext, own, peer, peer_port, peer_guid, own_lid = front.groups()
    words = tail.split()
    rest = ""
    if len(words) == 3 and words[0] == "lid" and words[1].isdecimal() and len(words[1]) < 10:
        lid, rate = words[1], words[2]
    else:
        match = _PORT_TAIL(tail)
        if match is None:
            return None
        lid, rate, rest = match.groups("")
    read = PortLine(
        number,
        int(port),
        guids[peer],
        int(peer_port),
        same[head[front.end() :]],
        int(lid) if lid else None,
        KNOWN.get(rate) or same[rate],
        guids[own] if own else "",
        guids[peer_guid] if peer_guid else "",
        int(own_lid) if own_lid else None,
        int(ext) if ext else 0,
    )
    return read, "" if _PORT_REST.fullmatch(rest) else rest.strip()


def head_parts(line: str) -> HeadParts | None:
    """The parts of a `Switch`, `Ca`, `Rt` or `???` line; None where it is none."""
    head, _, tail = line.rpartition('"')
    front = _HEAD_FRONT.match(head)
    if front is None:
        return None
    word, ports, letter, guid = front.groups()
    kind, name = _KIND_OF_WORD[word], head[front.end() :]
    if kind is Kind.SWITCH and (match := _SWITCH_TAIL.fullmatch(tail)):
        lid = int(match[2]) if match[2] else None
        return HeadParts(kind, int(ports), letter, guid, name, lid, match[1] == "enhanced", "")
    read = kind is not Kind.SWITCH and _OTHER_TAIL.fullmatch(tail)
    return HeadParts(kind, int(ports), letter, guid, name, None, None, "" if read else tail.strip())


def guid16(text: str) -> str | None:
    """A GUID as 16 lower-case hex digits; None where the text is none. Printed ones may lack leading zeros."""
    guid = text.rjust(16, "0").lower()
    return guid if len(guid) == 16 and not guid.strip("0123456789abcdef") and text else None


def stand_in(text: str) -> str:
    """A GUID made up for an id that is none (hand-made files): `ffff` and twelve digits, always the same."""
    return "ffff" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def guids_and_comment(text: str) -> tuple[tuple[str, ...], str] | None:
    """What a `…guid=` line holds: one or two GUIDs, then a comment; None where it holds something else."""
    match = _GUIDS.fullmatch(text.strip())
    if match is None or len(match[1]) > 16 or len(match[2] or "") > 16:
        return None
    first, second, comment = match.groups()
    guids = [guid16(one) for one in (first, second) if one]
    return tuple(guid for guid in guids if guid), (comment or "").strip()
