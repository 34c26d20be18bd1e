"""Layout → DOT text for `neato -n2`, which places nothing itself: every position is given.

Text from the fabric is hostile. It gets into DOT by `quoted` alone: what could steer a terminal or an XML reader
is spelled out, 128 characters at most, and backslash, quotation mark and ampersand are escaped, so that Graphviz
expands nothing (`\\N`, `&lt;`) and reads no HTML: a label is never written between angle brackets.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from llmgw.base import visible
from llmgw.fabric.drawing.palette import (
    FAINT,
    FAULT,
    FRAME,
    FRAME_LINE,
    GHOST,
    INK,
    LOOKS,
    PAPER,
    RIBBON,
    TIERS,
    UNNAMED,
    group_colour,
    rail_colour,
    rate_colour,
)
from llmgw.fabric.drawing.values import Cell, Chip, Layout, Look, Note, Swatch, Wire

LIMIT_TEXT = 128
_INCH = 72.0
_TONES = {
    "title": (INK, "bold"),
    "plain": (INK, ""),
    "head": (INK, "bold"),
    "fault": (FAULT, "bold"),
    "faint": ("#5d6b7a", ""),
    "ribbon": ("#3f5672", ""),
}


def quoted(text: str) -> str:
    """A DOT string that Graphviz shows as the text itself, whatever it holds. `visible` control characters."""
    return _in_quotes(text, backslash="\\\\")


def hint(text: str) -> str:
    """As `quoted`, for a tooltip, of which Graphviz 2 reads backslashes twice."""
    return _in_quotes(text, backslash="\\" * 4)


def _in_quotes(text: str, *, backslash: str) -> str:
    shown = visible(text)[:LIMIT_TEXT]
    return '"' + shown.replace("\\", backslash).replace('"', '\\"').replace("&", "&amp;") + '"'


def dot(layout: Layout) -> str:
    """The drawing as DOT. Equal layouts give equal text."""
    return "\n".join(_lines(layout)) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    page = _Writer(layout)
    yield "graph fabric {"
    yield f'graph [bgcolor="{PAPER}", outputorder=edgesfirst, splines=line, pad=0.12,'
    yield f' bb="0,0,{layout.width:.1f},{layout.height:.1f}", _background={page.background()}];'
    yield 'node [shape=box, style=filled, fixedsize=true, margin="0,0", fontname="sans-serif", penwidth=0.5,'
    yield f' label="", color="{INK}"];'
    yield 'edge [fontname="sans-serif"];'
    yield from page.wires(layout.wires)
    yield from page.chips(layout.chips)
    yield from page.cells(layout.cells)
    yield from page.notes(layout.notes)
    yield from page.legend(layout.legend)
    yield "}"


class _Writer:
    """Writes the parts of one layout. Graphviz counts y upwards, a layout downwards."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._mark = layout.mark
        self._next = 0

    def _name(self) -> str:
        self._next += 1
        return f"n{self._next}"

    def _at(self, x: float, y: float) -> str:
        return f'"{x:.1f},{self._layout.height - y:.1f}!"'

    def background(self) -> str:
        """Frames and ribbons, beneath everything, in xdot: colours and polygons, no text."""
        parts = []
        for frame in self._layout.frames:
            right, low = frame.x + frame.width, frame.y + frame.height
            corners = [(frame.x, frame.y), (right, frame.y), (right, low), (frame.x, low)]
            parts.append(self._polygon(corners, FRAME, FAULT if frame.faults else FRAME_LINE))
        parts += [self._polygon(ribbon.corners, RIBBON, RIBBON) for ribbon in self._layout.ribbons]
        return f'"{" ".join(parts)}"'

    def _polygon(self, corners: Sequence[tuple[float, float]], fill: str, line: str) -> str:
        points = " ".join(f"{x:.1f} {self._layout.height - y:.1f}" for x, y in corners)
        return f"C 7 -{fill} c 7 -{line} P {len(corners)} {points}"

    def wires(self, wires: Sequence[Wire]) -> Iterator[str]:
        """Each as an edge between two points of no size."""
        for wire in wires:
            a, b = self._name(), self._name()
            for name, x, y in ((a, wire.x1, wire.y1), (b, wire.x2, wire.y2)):
                yield f"{name} [pos={self._at(x, y)}, shape=point, width=0.01, style=invis];"
            colour, style = LOOKS[wire.look]
            if wire.look is Look.PLAIN:
                colour, width = "#9fb0c2", 0.25 + 0.1 * wire.cables
            else:
                width = 0.6 if wire.look is Look.FEWER else 1.6 * self._mark
            words = hint(wire.hint)
            yield f'{a} -- {b} [color="{colour}", style={style}, penwidth={width:.2f}, tooltip={words}];'
        for wire in wires:
            if wire.number:
                part = (0.24, 0.76, 0.33, 0.67)[wire.number % 4]
                x, y = wire.x1 + (wire.x2 - wire.x1) * part, wire.y1 + (wire.y2 - wire.y1) * part
                yield self._number(wire.number, x, y, LOOKS[wire.look][0])

    def _number(self, number: int, x: float, y: float, colour: str) -> str:
        return (
            f"{self._name()} [pos={self._at(x, y)}, shape=ellipse, width={0.2 * self._mark:.3f},"
            f' height={0.14 * self._mark:.3f}, label="{number}", fontsize={8 * self._mark:.1f},'
            f' fillcolor="#ffffff", color="{colour}", fontcolor="{colour}", penwidth=0.8];'
        )

    def chips(self, chips: Sequence[Chip]) -> Iterator[str]:
        """Switches, with a dashed outline where nothing proves their tier."""
        for one in chips:
            fill = TIERS[one.tier]
            extra = ""
            if one.hostless or one.look is Look.GONE:
                fill, extra = GHOST, ', style="filled,dashed"'
            if one.look is not Look.PLAIN:
                extra += f', color="{LOOKS[one.look][0]}", penwidth=2'
            yield (
                f'{self._name()} [{self._box(one.x, one.y, one.width, one.height)}, fillcolor="{fill}",'
                f" label={quoted(one.text)}, fontsize={one.font:.1f}, tooltip={hint(one.hint)}{extra}];"
            )
            if one.number:
                yield self._number(one.number, one.x + one.width, one.y, LOOKS[one.look][0])

    def cells(self, cells: Sequence[Cell]) -> Iterator[str]:
        """Adapters, those that stand out last, so that their outline is on top of their neighbours."""
        for one in sorted(cells, key=lambda cell: cell.look is not Look.PLAIN):
            fill = self._fill(one)
            if one.look is not Look.PLAIN and not one.text:
                one = self._larger(one)
            extra = (
                ""
                if one.look is Look.PLAIN
                else f', color="{LOOKS[one.look][0]}", penwidth={1.6 * self._mark:.1f}'
            )
            if one.look is Look.PLAIN:
                extra = ', color="#aab4bf"' if fill in (UNNAMED, FAINT) else ", penwidth=0"
            if one.look is Look.GONE:
                extra += ', style="filled,dashed"'
            text = one.text or (str(one.number) if one.number else "")
            if text:
                font = min(0.8 * one.height, (one.width - 1) / (0.64 * len(text)))
                extra += f', label={quoted(text)}, fontsize={font:.1f}, fontcolor="{_ink_on(fill)}"'
            yield (
                f'{self._name()} [{self._box(one.x, one.y, one.width, one.height)}, fillcolor="{fill}",'
                f" tooltip={hint(one.hint)}{extra}];"
            )
            if one.text and one.number:
                yield self._number(one.number, one.x + one.width, one.y, LOOKS[one.look][0])

    def _larger(self, cell: Cell) -> Cell:
        """A marked cell, drawn over its neighbours so that its number can be read."""
        more, higher = 4.0 * self._mark, 3.5 * self._mark
        return replace(
            cell, x=cell.x - more / 2, y=cell.y - higher / 2, width=cell.width + more, height=cell.height + higher
        )

    def _fill(self, cell: Cell) -> str:
        if cell.look is Look.GONE:
            return GHOST
        if cell.faint:
            return FAINT
        if self._layout.colouring == "plan":
            return group_colour(cell.group)
        if self._layout.colouring == "rate":
            return rate_colour(cell.rate)
        if not cell.named:
            return UNNAMED
        return rail_colour(cell.rail if self._layout.colouring == "rail" else 0)

    @staticmethod
    def _size(width: float, height: float) -> str:
        return f"width={width / _INCH:.4f}, height={height / _INCH:.4f}"

    def _box(self, x: float, y: float, width: float, height: float) -> str:
        return f"pos={self._at(x + width / 2, y + height / 2)}, {self._size(width, height)}"

    def notes(self, notes: Sequence[Note]) -> Iterator[str]:
        """Lines of text, as boxes without a line, their text at the left or in the middle."""
        for one in notes:
            colour, weight = _TONES[one.tone]
            width = 0.58 * one.font * (len(one.text) + 1)
            x = one.x - width / 2 if one.centre else one.x
            label = quoted(one.text)
            label = label if one.centre else label[:-1] + '\\l"'
            font = ', fontname="sans-serif bold"' if weight else ""
            box = self._box(x, one.y - one.font * 0.6, width, one.font * 1.2)
            yield (
                f'{self._name()} [{box}, style="", penwidth=0,'
                f' shape=box, label={label}, fontsize={one.font:.1f}, fontcolor="{colour}"{font}];'
            )

    def legend(self, swatches: Sequence[Swatch]) -> Iterator[str]:
        """Small boxes with words."""
        for one in swatches:
            box = self._box(one.x, one.y - one.size / 2, one.size * 1.5, one.size)
            yield f"{self._name()} [{box}, {self._sample(one.key)}];"
            yield from self.notes([Note(one.x + one.size * 1.9, one.y, one.text, one.size, 0, "plain")])

    @staticmethod
    def _sample(key: str) -> str:
        kind, _, value = key.partition(" ")
        if kind == "look":
            colour, style = LOOKS[Look(value)]
            return f'fillcolor="{PAPER}", color="{colour}", penwidth=1.5, style="filled,{style}"'
        fills = {
            "rail": lambda: rail_colour(int(value)),
            "rate": lambda: rate_colour(value),
            "group": lambda: group_colour(int(value)),
        }
        fill = fills[kind]() if kind in fills else UNNAMED if kind == "unnamed" else rail_colour(0)
        return f'fillcolor="{fill}", color="#aab4bf"'


def _ink_on(fill: str) -> str:
    """Black or white, whichever can be read on the colour (ITU-R BT.601 weights)."""
    red, green, blue = (int(fill[at : at + 2], 16) for at in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "#000000"
