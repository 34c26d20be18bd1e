"""A drawing of a fabric: what stands where, with no word about colours or file formats.

Lengths are points, 72 to an inch; x grows to the right and y downwards from the upper left corner. The command
line turns a Layout into Graphviz text, a web page may draw the same value on a canvas: msgspec.json.encode writes
it, keys are GUIDs and ports.
"""

from enum import StrEnum

from msgspec import Struct


class Look(StrEnum):
    """How something stands out. PLAIN does not."""

    PLAIN = "plain"
    SHORT = "short"
    OFF_RAIL = "off rail"
    FEWER = "fewer cables than its neighbours"
    ADDED = "added"
    GONE = "gone"
    MOVED = "moved"
    RECOVERED = "recovered"


class Cell(Struct, frozen=True, gc=False):
    """An adapter, drawn under its leaf. `text` is written into it where it is wide enough, else empty.

    `group` numbers the replica that its node serves, from 0; -1 is none. `number` is that of the fault or change
    in the list beneath, 0 for none. A faint one is not what the drawing is about.
    """

    guid: str
    port: int
    x: float
    y: float
    width: float
    height: float
    text: str
    hint: str
    rail: int
    rate: str
    look: Look
    number: int
    group: int
    named: bool
    faint: bool


class Chip(Struct, frozen=True, gc=False):
    """A switch. `text` is its label made short for its place, `hint` says all that is known."""

    guid: str
    tier: str
    x: float
    y: float
    width: float
    height: float
    text: str
    font: float
    hint: str
    rail: int
    look: Look
    number: int
    hostless: bool


class Wire(Struct, frozen=True, gc=False):
    """A cable, or several alike between the same two, from (x1, y1) to (x2, y2)."""

    x1: float
    y1: float
    x2: float
    y2: float
    look: Look
    number: int
    rate: str
    cables: int
    hint: str


class Ribbon(Struct, frozen=True, gc=False):
    """All cables between two rows of switches that follow the pattern, as one shape and one sentence."""

    corners: tuple[tuple[float, float], ...]
    text: str


class Frame(Struct, frozen=True, gc=False):
    """A pod."""

    pod: str
    x: float
    y: float
    width: float
    height: float
    faults: int


class Note(Struct, frozen=True, gc=False):
    """A line of text that begins at x (`centre` 0) or is centred there (1), its middle at y."""

    x: float
    y: float
    text: str
    font: float
    centre: int
    tone: str


class Swatch(Struct, frozen=True, gc=False):
    """One entry of the legend: a small box at (x, y) and words beside it.

    Keys: `rail 3`, `rate 4xHDR`, `group 0`, `state ok`, `look short`, `unnamed`, `other`.
    """

    x: float
    y: float
    size: float
    key: str
    text: str


class Layout(Struct, frozen=True, gc=False):
    """A whole drawing. `legend` says what the colours mean that it has.

    `mark` is how much larger than life numbers and outlines are to be drawn: large pages are looked at from afar.
    """

    width: float
    height: float
    mark: float
    title: str
    colouring: str
    frames: tuple[Frame, ...]
    ribbons: tuple[Ribbon, ...]
    wires: tuple[Wire, ...]
    chips: tuple[Chip, ...]
    cells: tuple[Cell, ...]
    notes: tuple[Note, ...]
    legend: tuple[Swatch, ...]
