"""A whole page: title and core switches on top, pods in rows, what is left over, the list of what is marked."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.base import count
from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.bands import core_rows, left_over, stubs
from llmgw.fabric.drawing.legend import legend
from llmgw.fabric.drawing.place import DOTS, NAMES, Parts, PodPlace, adapters_below
from llmgw.fabric.drawing.pods import is_fat_tree, pods, trunks
from llmgw.fabric.drawing.values import Layout, Note
from llmgw.fabric.fabric import Cable, Fabric
from llmgw.fabric.topology import summary

_SHAPE = 1.5
"""Width to height that a page should come near to."""

_GAP = 10.0
_NARROWEST = 460.0
_NAMES_UP_TO = 200
"""Adapters up to which each is written out with its node's name."""

_LINE = 1.35
"""Height of a line, in sizes of its font."""


def lay_out(fabric: Fabric, ask: Ask) -> Layout | None:
    """The drawing of a fabric, or of the part that was asked for; None where it is no fat tree (see mesh)."""
    every = trunks(fabric)
    if not is_fat_tree(fabric, every):
        return None
    wanted = ask.switches if ask.switches is not None else frozenset(fabric.switches)
    between = {ends: cables for ends, cables in every.items() if wanted.issuperset(ends)}
    below = adapters_below(fabric, wanted)
    scale = NAMES if sum(map(len, below.values())) <= _NAMES_UP_TO else DOTS
    if _marked_above(fabric, ask):
        scale = replace(scale, above=12.0)
    of_lower: dict[str, dict[str, Sequence[Cable]]] = defaultdict(dict)
    for (lower, upper), cables in sorted(between.items()):
        of_lower[lower][upper] = cables
    placed = [
        PodPlace(fabric, pod, ask=ask, between=of_lower, below=below, scale=scale)
        for pod in pods(fabric, between, wanted)
    ]
    return _Page(fabric, ask, between, wanted).laid_out(placed)


def _marked_above(fabric: Fabric, ask: Ask) -> bool:
    """Whether a marked cable leads from a spine to no leaf: it is drawn as a stub on the spine."""
    tiers = {guid: switch.distance for guid, switch in fabric.switches.items()}
    ends = [{tiers.get(a[0], 0), tiers.get(b[0], 0)} for a, b in ask.marks.cables]
    return any(2 in two and 1 not in two for two in ends)


@dataclass(frozen=True, slots=True)
class _Fonts:
    """Sizes of text that belongs to the page: they grow with it, so that a page fitted to a screen can be read."""

    title: float
    line: float

    @classmethod
    def of(cls, width: float) -> "_Fonts":
        return cls(min(34.0, max(12.0, width / 62)), min(13.0, max(6.5, width / 165)))


class _Page:
    """Puts a fabric's parts on one page."""

    def __init__(
        self,
        fabric: Fabric,
        ask: Ask,
        between: Mapping[tuple[str, str], Sequence[Cable]],
        wanted: frozenset[str],
    ) -> None:
        self._fabric, self._ask, self._between, self._wanted = fabric, ask, between, wanted
        self._parts = Parts.empty()
        self._lines = ask.marks.listed()

    def laid_out(self, placed: Sequence[PodPlace]) -> Layout:
        """The page whose rows of pods come nearest to the shape of a screen."""
        rows = min(_rowings(placed), key=lambda rows: abs(math.log(self._shape(rows) / _SHAPE)) + _emptiness(rows))
        width, parts = _width(rows), self._parts
        fonts = _Fonts.of(width)
        y = self._head(width, fonts)
        y = core_rows(self._fabric, self._ask, parts, self._between, wanted=self._wanted, width=width, y=y)
        for row in rows:
            x = _GAP
            for pod in row:
                pod.put(parts, x, y)
                x += pod.width + _GAP
            y += max((pod.height for pod in row), default=0.0) + _GAP
        y = left_over(self._fabric, self._ask, parts, wanted=self._wanted, width=width, y=y)
        stubs(self._fabric, self._ask, parts)
        y = self._list(width, y, fonts)
        return Layout(
            width=width,
            height=y,
            mark=min(2.2, max(1.0, width / 1150)),
            title=self._ask.title,
            colouring=self._ask.colouring,
            frames=tuple(parts.frames),
            ribbons=tuple(parts.ribbons),
            wires=tuple(parts.wires),
            chips=tuple(parts.chips),
            cells=tuple(parts.cells),
            notes=tuple(parts.notes),
            legend=legend(self._ask, parts, x=_GAP, y=self._legend_y(fonts), size=fonts.line, width=width),
        )

    def _shape(self, rows: Sequence[Sequence[PodPlace]]) -> float:
        """Width to height of the page with these rows."""
        width = _width(rows)
        fonts = _Fonts.of(width)
        height = 4 * fonts.title + sum(max((pod.height for pod in row), default=0.0) + _GAP for row in rows)
        return width / (height + _list_rows(width, fonts, self._lines) * fonts.line * _LINE + 40)

    @staticmethod
    def _legend_y(fonts: _Fonts) -> float:
        return _GAP + fonts.title * 2.2 + 0.3 * fonts.line

    def _head(self, width: float, fonts: _Fonts) -> float:
        figures = summary(self._fabric)
        tiers = [count(figures.leaves, "leaf", "leaves"), count(figures.spines, "spine")]
        if figures.cores:
            tiers.append(count(figures.cores, "core switch", "core switches"))
        adapters = f"{figures.adapters:,} adapters of {count(figures.nodes, 'node')}"
        cables = f"{figures.links:,} cables, {figures.degraded} short; {figures.off_rail} off rail"
        words = f"{', '.join(tiers)}; {adapters}; {cables}"
        title = min(fonts.title, width / (0.65 * max(len(self._ask.title), 1)))
        plain = min(fonts.title * 0.6, width / (0.6 * len(words)))
        self._parts.notes.append(Note(_GAP, _GAP + fonts.title * 0.6, self._ask.title, title, 0, "title"))
        self._parts.notes.append(Note(_GAP, _GAP + fonts.title * 1.5, words, plain, 0, "plain"))
        return self._legend_y(fonts) + 1.6 * fonts.line + _GAP

    def _list(self, width: float, y: float, fonts: _Fonts) -> float:
        """What the numbers stand for, in columns."""
        rows = _list_rows(width, fonts, self._lines)
        columns = -(-len(self._lines) // rows) if rows else 1
        room = (width - 2 * _GAP) / columns
        letters = int(room / (0.56 * fonts.line)) - 1
        for place, text in enumerate(self._lines):
            column, row = divmod(place, rows)
            shown = text if len(text) <= letters else text[: letters - 1] + "…"
            at = y + (row + 0.6) * fonts.line * _LINE
            self._parts.notes.append(Note(_GAP + column * room, at, shown, fonts.line, 0, "plain"))
        return y + rows * fonts.line * _LINE + _GAP


def _width(rows: Sequence[Sequence[PodPlace]]) -> float:
    return max(max(sum(pod.width + _GAP for pod in row) for row in rows) + _GAP, _NARROWEST)


def _list_rows(width: float, fonts: _Fonts, lines: Sequence[str]) -> int:
    """Rows of the list, with columns wide enough for nearly all of its lines."""
    lengths = sorted(map(len, lines))
    usual = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 1
    columns = max(1, min(len(lines), int(width / (0.56 * fonts.line * (usual + 3)))))
    return -(-len(lines) // columns)


def _emptiness(rows: Sequence[Sequence[PodPlace]]) -> float:
    """The share of the rows that no pod fills."""
    widths = [sum(pod.width for pod in row) for row in rows]
    return 1 - sum(widths) / (max(widths) * len(widths)) if any(widths) else 0.0


def _rowings(pods: Sequence[PodPlace]) -> list[list[list[PodPlace]]]:
    """Every way of filling rows with pods in order, by the width of the first one, two, three of them."""
    if not pods:
        return [[[]]]
    widest = max(pod.width for pod in pods)
    limits = {sum(pod.width for pod in pods[:number]) for number in range(1, len(pods) + 1)} | {widest}
    return [_rows(pods, limit * 1.001) for limit in sorted(limits) if limit >= widest]


def _rows(pods: Sequence[PodPlace], limit: float) -> list[list[PodPlace]]:
    rows: list[list[PodPlace]] = [[]]
    for pod in pods:
        if rows[-1] and sum(one.width for one in rows[-1]) + pod.width > limit:
            rows.append([])
        rows[-1].append(pod)
    return rows
