"""The cables between a pod's leaves and spines: one shape for the pattern, and lines for what breaks it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmgw.base import count
from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.pods import Pattern
from llmgw.fabric.drawing.values import Look, Note, Ribbon, Wire
from llmgw.fabric.fabric import Cable, Fabric

_Pairs = Mapping[tuple[str, str], Sequence[Cable]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the cables of a pod end: the middle of each leaf's and spine's box, and the heights between them."""

    leaves: Mapping[str, float]
    spines: Mapping[str, float]
    low: float
    high: float

    def between(self, leaf: str, spine: str) -> tuple[float, float, float, float]:
        """From a leaf to a spine."""
        return self.leaves[leaf], self.high, self.spines[spine], self.low


def ribbon(pattern: Pattern, rows: Rows, *, leaf: float) -> tuple[Ribbon, Note]:
    """The shape of the pattern and its sentence. `leaf` is the width of a leaf's box."""
    left, right = min(rows.leaves.values()) - leaf / 2, max(rows.leaves.values()) + leaf / 2
    above = list(rows.spines.values())
    corners = ((min(above) - 6, rows.low), (max(above) + 6, rows.low), (right, rows.high), (left, rows.high))
    width = (right - left + max(above) - min(above)) / 2
    font = min(9.0, max(4.0, width / (0.6 * len(pattern.text))))
    middle = Note((left + right) / 2, (rows.low + rows.high) / 2, pattern.text, font, 1, "ribbon")
    return Ribbon(corners, pattern.text), middle


def wires(fabric: Fabric, ask: Ask, pairs: _Pairs, pattern: Pattern, rows: Rows) -> Iterator[Wire]:
    """Marked cables, pairs that have fewer cables than others or none, cables that are gone; or all pairs."""
    names = {guid: fabric.switches[guid].label for guid in (*rows.leaves, *rows.spines)}
    for (leaf, spine), cables in pairs.items():
        place, two = rows.between(leaf, spine), f"{names[leaf]} - {names[spine]}"
        yield from _marked(ask, cables, place, two)
        fewer = (leaf, spine) in pattern.odd
        if fewer or ask.every_cable or leaf in pattern.apart:
            hint = f"{two}: {count(len(cables), 'cable')}, others have {pattern.usual}"
            look = Look.FEWER if fewer else Look.PLAIN
            yield Wire(*place, look, 0, cables[0].rate, len(cables), hint)
    for (leaf, spine), number in pattern.odd.items():
        if not number:
            hint = f"no cable from {names[leaf]} to {names[spine]}, others have {pattern.usual}"
            yield Wire(*rows.between(leaf, spine), Look.FEWER, 0, "", 0, hint)
    yield from _gone(ask, rows, names)


def _marked(
    ask: Ask, cables: Sequence[Cable], place: tuple[float, float, float, float], two: str
) -> Iterator[Wire]:
    for cable in cables:
        mark = ask.marks.cables.get(((cable.a, cable.a_port), (cable.b, cable.b_port)))
        if mark:
            hint = f"{two}, ports {cable.a_port} and {cable.b_port}: {cable.rate}, its kind {cable.expected}"
            yield Wire(*place, mark.look, mark.number, cable.rate, 1, hint)


def _gone(ask: Ask, rows: Rows, names: Mapping[str, str]) -> Iterator[Wire]:
    for (a, b), mark in ask.marks.cables.items():
        leaf, spine = (a[0], b[0]) if a[0] in rows.leaves else (b[0], a[0])
        if mark.look is Look.GONE and leaf in rows.leaves and spine in rows.spines:
            hint = f"gone: {names[a[0]]} port {a[1]} - {names[b[0]]} port {b[1]}"
            yield Wire(*rows.between(leaf, spine), mark.look, mark.number, "", 1, hint)
