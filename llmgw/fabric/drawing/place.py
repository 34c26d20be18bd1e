"""One pod of a fat tree in its place: spines over leaves over adapters. The tree is its own layout.

What makes it readable at ten thousand adapters: adapters are small cells under their leaf, in the order of its
ports, so that a node's adapters stand in one line across its leaves; the regular cables between leaves and spines
are one shape with a sentence, and only what breaks the pattern is a line; nothing is drawn across pods.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw.base import count
from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.figures import CHIP_HEIGHT, cell, chip, gone_cell
from llmgw.fabric.drawing.pods import Pod, own_pairs, pattern, short_labels
from llmgw.fabric.drawing.values import Cell, Chip, Frame, Note, Ribbon, Wire
from llmgw.fabric.drawing.wiring import Rows, ribbon, wires
from llmgw.fabric.fabric import Adapter, Cable, Fabric
from llmgw.fabric.names import natural_order

_PAD = 8.0
_READABLE = 6.0
"""Size of a label below which its short form is taken."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of one drawing, points.

    `columns` of cells stand under a leaf; `written` cells hold their node's name; `above` is room over the spines.
    """

    cell: tuple[float, float]
    columns: int
    leaf: float
    ribbon: float
    head: float
    written: bool
    above: float = 0.0


DOTS = Scale((9.0, 6.5), 2, 24.0, 44.0, 12.0, written=False)
NAMES = Scale((70.0, 11.0), 1, 76.0, 60.0, 10.0, written=True)


@dataclass(slots=True)
class Parts:
    """What has been placed so far."""

    frames: list[Frame]
    ribbons: list[Ribbon]
    wires: list[Wire]
    chips: list[Chip]
    cells: list[Cell]
    notes: list[Note]

    @classmethod
    def empty(cls) -> "Parts":
        """Nothing yet."""
        return cls([], [], [], [], [], [])


class PodPlace:
    """One pod: how large it is, and its parts once it has got a place."""

    def __init__(
        self,
        fabric: Fabric,
        pod: Pod,
        *,
        ask: Ask,
        between: Mapping[str, Mapping[str, Sequence[Cable]]],
        below: Mapping[str, Sequence[Adapter]],
        scale: Scale,
    ) -> None:
        self._fabric, self._pod, self._ask, self._scale = fabric, pod, ask, scale
        self._pairs = own_pairs(pod, between)
        self._pattern = pattern(self._pairs)
        self._below = {leaf: below.get(leaf, ()) for leaf, _ in pod.leaves}
        self._on_spines = {spine: below[spine] for spine in pod.spines if spine in below}
        self._gone = [one for one in ask.marks.gone_adapters if one.leaf in self._below]
        self._slots = self._port_slots()
        self._leaf_x = self._columns()
        self._leaves_width = self._leaf_x[-1] + scale.leaf if self._leaf_x else 0.0
        self._cells_height = -(-max(len(self._slots), 1) // scale.columns) * (scale.cell[1] + 2)
        highest = max(map(len, self._on_spines.values()), default=0)
        self._above = max(highest * (scale.cell[1] + 2), scale.above)
        spine = 20.0 if len(pod.spines) > 4 else 60.0
        self._inner = max(self._leaves_width, len(pod.spines) * spine, 150.0)
        self.width = self._inner + 2 * _PAD
        middle = scale.ribbon + 2 * CHIP_HEIGHT if pod.spines else CHIP_HEIGHT
        self.height = scale.head + 8 + self._above + middle + 6 + self._cells_height + 12 + _PAD

    def put(self, parts: Parts, x: float, y: float) -> None:
        """Places the pod with its upper left corner at (x, y)."""
        scale, left = self._scale, x + _PAD
        top = y + scale.head + 8 + self._above
        leaves_y = top + (CHIP_HEIGHT + scale.ribbon if self._pod.spines else 0.0)
        cells_y = leaves_y + CHIP_HEIGHT + 4
        margin = (self._inner - self._leaves_width) / 2
        leaf_at = {leaf: left + margin + at for (leaf, _), at in zip(self._pod.leaves, self._leaf_x, strict=True)}
        spine_at, spine = self._spine_boxes(left)
        self._frame(parts, x, y)
        self._chips(parts, spine_at, top, spine)
        self._chips(parts, {leaf: at + 1 for leaf, at in leaf_at.items()}, leaves_y, scale.leaf - 2)
        self._cells(parts, leaf_at, spine_at, cells_y, top)
        self._domains(parts, leaf_at, cells_y + self._cells_height + 5)
        if spine_at and leaf_at:
            rows = Rows(
                {leaf: at + scale.leaf / 2 for leaf, at in leaf_at.items()},
                {guid: at + spine / 2 for guid, at in spine_at.items()},
                top + CHIP_HEIGHT + 1,
                leaves_y - 1,
            )
            self._cables(parts, rows)

    def _columns(self) -> list[float]:
        """Where each leaf begins, with a gap between domains."""
        found, at, last = [], 0.0, self._pod.leaves[0][1] if self._pod.leaves else ""
        for _, domain in self._pod.leaves:
            at += 5.0 if domain != last else 0.0
            last = domain
            found.append(at)
            at += self._scale.leaf
        return found

    def _spine_boxes(self, left: float) -> tuple[dict[str, float], float]:
        """Where each spine's box begins, and how wide they are."""
        spines = self._pod.spines
        pitch = min(self._inner / max(len(spines), 1), 90.0)
        start = left + (self._inner - pitch * len(spines)) / 2
        return {guid: start + pitch * place for place, guid in enumerate(spines)}, pitch - 3

    def _port_slots(self) -> dict[int, int]:
        """The place of each leaf port under its leaf; the same for all leaves of the pod."""
        ports = {one.leaf_port for own in self._below.values() for one in own}
        ports |= {one.leaf_port for one in self._gone}
        return {port: place for place, port in enumerate(sorted(ports))}

    def _frame(self, parts: Parts, x: float, y: float) -> None:
        own = [one for adapters in (*self._below.values(), *self._on_spines.values()) for one in adapters]
        nodes = len({adapter.node for adapter in own if adapter.node})
        faults = self._marked(own)
        parts.frames.append(Frame(self._pod.id, x, y, self.width, self.height, faults))
        what = f"{self._pod.id}  {count(nodes, 'node')}, {count(len(own), 'adapter')}"
        middle = y + self._scale.head / 2 + 4
        font = min(self._scale.head, self.width / (0.62 * (len(what) + 12)))
        parts.notes.append(Note(x + _PAD, middle, what, font, 0, "head"))
        if faults:
            text = f"{faults} marked"
            at = x + self.width - _PAD - 0.62 * font * len(text)
            parts.notes.append(Note(at, middle, text, font, 0, "fault"))

    def _marked(self, own: Iterable[Adapter]) -> int:
        """How many marks stand on the pod's adapters, switches and cables."""
        marks = self._ask.marks
        ends = {*self._below, *self._pod.spines}
        on_adapters = sum((adapter.guid, adapter.port) in marks.adapters for adapter in own) + len(self._gone)
        on_cables = sum(a[0] in ends or b[0] in ends for a, b in marks.cables)
        return on_adapters + on_cables + sum(guid in ends for guid in marks.switches)

    def _chips(self, parts: Parts, at: Mapping[str, float], y: float, width: float) -> None:
        texts = [self._fabric.switches[guid].label for guid in at]
        if max(map(len, texts), default=0) * 0.64 * _READABLE > width:
            texts = short_labels(texts)
        for (guid, x), text in zip(at.items(), texts, strict=True):
            parts.chips.append(chip(self._fabric, self._ask, guid, x=x, y=y, width=width, text=text))

    def _cells(
        self, parts: Parts, leaf_at: Mapping[str, float], spine_at: Mapping[str, float], y: float, top: float
    ) -> None:
        """Adapters under their leaves, gone ones where they were, service hosts on top of their spine."""
        scale = self._scale
        for leaf, left in leaf_at.items():
            for adapter in self._below[leaf]:
                x, at = self._spot(adapter.leaf_port, left, y)
                parts.cells.append(self._cell(adapter, x, at))
        for one in self._gone:
            x, at = self._spot(one.leaf_port, leaf_at[one.leaf], y)
            parts.cells.append(gone_cell(self._ask, one, x=x, y=at, size=scale.cell, written=scale.written))
        for spine, adapters in self._on_spines.items():
            for place, adapter in enumerate(adapters, 1):
                parts.cells.append(self._cell(adapter, spine_at[spine], top - place * (scale.cell[1] + 2)))

    def _cell(self, adapter: Adapter, x: float, y: float) -> Cell:
        scale = self._scale
        return cell(self._fabric, self._ask, adapter, x=x, y=y, size=scale.cell, written=scale.written)

    def _spot(self, port: int, x: float, y: float) -> tuple[float, float]:
        scale = self._scale
        row, column = divmod(self._slots[port], scale.columns)
        inset = (scale.leaf - scale.columns * (scale.cell[0] + 2) + 2) / 2
        return x + inset + column * (scale.cell[0] + 2), y + row * (scale.cell[1] + 2)

    def _domains(self, parts: Parts, leaf_at: Mapping[str, float], y: float) -> None:
        """What each leaf domain is called, under its leaves, where there is room for it."""
        spans: dict[str, list[float]] = defaultdict(list)
        for leaf, domain in self._pod.leaves:
            if domain:
                spans[domain].append(leaf_at[leaf])
        for domain, at in spans.items():
            left, right = min(at), max(at) + self._scale.leaf
            text = f"{domain}: {count(len(self._fabric.domains[domain].nodes), 'node')}"
            font = min(7.0, (right - left) / (0.62 * len(text)))
            if font >= 4 and len(spans) > 1:
                parts.notes.append(Note((left + right) / 2, y, text, font, 1, "faint"))

    def _cables(self, parts: Parts, rows: Rows) -> None:
        if self._pattern.text:
            shape, sentence = ribbon(self._pattern, rows, leaf=self._scale.leaf)
            parts.ribbons.append(shape)
            parts.notes.append(sentence)
        parts.wires.extend(wires(self._fabric, self._ask, self._pairs, self._pattern, rows))


def adapters_below(fabric: Fabric, leaves: Iterable[str]) -> dict[str, list[Adapter]]:
    """The adapters on each of the switches, in the order of their ports."""
    wanted = set(leaves)
    found: dict[str, list[Adapter]] = defaultdict(list)
    for adapter in fabric.adapters.values():
        if adapter.leaf in wanted:
            found[adapter.leaf].append(adapter)
    for own in found.values():
        own.sort(key=lambda one: (one.leaf_port, natural_order(one.device)))
    return found
