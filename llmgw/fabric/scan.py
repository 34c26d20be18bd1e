"""What one scan's text says, line by line: devices, their ports with a peer, and what could not be read.

The text is that of infiniband-diags' ibnetdiscover(8). A Scan holds it as it is: nothing is corrected, and two
lines that contradict each other both stand. Judging is llmgw.fabric.judge, meaning is llmgw.fabric.analyse.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from msgspec import Struct

LIMIT_BYTES = 256 << 20
"""A longer text is refused. 80,000 adapters in a three-tier fabric write about 70 MB."""

LIMIT_PROBLEMS = 1000
"""Problems kept one by one. What is beyond is counted, and the count has the weight of the worst of it."""


class Weight(IntEnum):
    """What a problem does to the map."""

    NOTE = 0
    PARTIAL = 1
    REJECTED = 2


class Trouble(StrEnum):
    """Kinds of problem, in the words that lists show."""

    NO_ANSWER = "no answer"
    TOOL = "tool's warning"
    TOOL_FAILED = "tool failed"
    SAID = "said on stderr"
    NOISE = "not part of the scan"
    UNKNOWN_LINE = "unknown line"
    UNREAD_PORT = "unread port line"
    UNREAD_HEAD = "unread device line"
    BAD_GUID = "not a GUID"
    UNKNOWN_RATE = "unknown rate"
    NO_RATE = "no rate"
    NO_NAME = "no description"
    NO_LID = "switch without LID"
    NO_MODEL = "device without devid"
    NO_HEADER = "no header"
    NO_SCANNER = "scanning node missing"
    PORT_TWICE = "port listed twice"
    PORT_RANGE = "port number out of range"
    GUIDS_DIFFER = "GUIDs differ"
    NAMES_DIFFER = "names differ"
    LIDS_DIFFER = "LIDs differ"
    RATES_DIFFER = "rates differ"
    MAPPED_NAME = "name from a map"
    ONE_SIDED = "cable with one end"
    DEVICE_TWICE = "device listed twice"
    TWO_SCANS = "two scans in one text"
    OTHER_FORM = "another output"
    NO_SCAN = "not a scan"
    NO_SWITCH = "no switch"
    CUT_OFF = "cut off"
    TOO_LARGE = "too large"
    MORE = "more problems"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was not as it should be. `line` counts from 1 in the text; 0 is no line of it.

    `shown` is that line as it was, 200 characters at most: hostile until escaped.
    """

    line: int
    kind: Trouble
    weight: Weight
    message: str
    shown: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.kind}: {self.message}" if self.message else f"{where}{self.kind}"


class Kind(StrEnum):
    """What a device is, by the letter of its id: H and S and R, and ? for a type the tool does not know."""

    ADAPTER = "H"
    SWITCH = "S"
    ROUTER = "R"
    UNKNOWN = "?"


class PortLine(Struct, frozen=True, gc=False):
    """One port that has a peer. A Struct, which is made ten times as fast as a frozen dataclass: a large fabric
    has half a million of these.

    `name` is the peer's description as this line has it. `rate` stands as written (`4xHDR`, `?????`, a word of
    the future), empty where the line had none. LIDs are None where the line had none. `port_guid` is this
    port's own, which only adapters' and routers' lines have; `peer_guid` is the peer's port GUID, which lines
    towards them have; both are empty otherwise. `ext` is the label outside a chassis (option -g), 0 for none.
    """

    line: int
    port: int
    peer: str
    peer_port: int
    name: str
    lid: int | None
    rate: str
    port_guid: str = ""
    peer_guid: str = ""
    own_lid: int | None = None
    ext: int = 0


class Device(Struct, frozen=True, gc=False):
    """One block of the text.

    `name` is the NodeDescription between its quotes, blanks kept. `vendor` and `model` are vendid and devid, 0
    where the text has none; `system` is the system image GUID, empty where it has none; `stated` are the GUIDs
    of the switchguid or caguid line. `ports` is the number of ports that the device has; `cables` those with a
    peer, by port number. `lid` is a switch's own. `chassis` and `slot` are the comments of option -g.
    """

    guid: str
    kind: Kind
    ports: int
    name: str
    line: int
    vendor: int
    model: int
    system: str
    stated: tuple[str, ...]
    lid: int | None
    enhanced: bool | None
    chassis: str
    slot: str
    cables: Mapping[int, PortLine]


@dataclass(frozen=True, slots=True)
class Header:
    """What the text says of itself. Empty fields are those it does not have.

    `generated` is the scanning node's local time as it printed it, with no zone. `tool` is ibnetdiscover, or
    ibdiagnet for its dump of the same kind. `cut` is whether the text ends inside a line.
    """

    generated: str = ""
    node: str = ""
    port_guid: str = ""
    tool: str = ""
    line: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole text. `devices` by GUID, in the text's order; `problems` by line.

    `warned` are the lines of the text that the tool wrote to stderr, with their numbers.
    """

    header: Header
    devices: Mapping[str, Device]
    problems: tuple[Problem, ...]
    warned: tuple[tuple[int, str], ...] = ()
    lines: int = 0
