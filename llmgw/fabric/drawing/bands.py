"""What stands outside the pods: core switches above them, switches without adapters and gone ones below."""

from collections import Counter
from collections.abc import Mapping, Sequence

from llmgw.base import count
from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.figures import chip, gone_chip
from llmgw.fabric.drawing.place import Parts
from llmgw.fabric.drawing.pods import rank, short_labels
from llmgw.fabric.drawing.values import Frame, Note, Wire
from llmgw.fabric.fabric import Cable, Fabric
from llmgw.fabric.rates import nominal

_GAP = 10.0
_ROW = 15.0
_BOX = 74.0


def _far(fabric: Fabric, wanted: frozenset[str], *, hostless: int) -> list[str]:
    """Switches three and more from any adapter, in natural order: cores, or those that may be none."""
    return rank(
        fabric.switches,
        (
            guid
            for guid, switch in fabric.switches.items()
            if guid in wanted and switch.distance not in (1, 2) and switch.hostless == bool(hostless)
        ),
    )


def core_rows(
    fabric: Fabric,
    ask: Ask,
    parts: Parts,
    between: Mapping[tuple[str, str], Sequence[Cable]],
    *,
    wanted: frozenset[str],
    width: float,
    y: float,
) -> float:
    """Core switches in rows over the whole width, and how many cables lead up to them. Returns where they end."""
    cores = _far(fabric, wanted, hostless=0)
    if not cores:
        return y
    room = width - 2 * _GAP
    pitch = max(22.0, min(70.0, room / len(cores)))
    rows = -(-len(cores) // int(room // pitch))
    across = -(-len(cores) // rows)
    start = _GAP + (room - across * pitch) / 2
    texts = short_labels([fabric.switches[guid].label for guid in cores])
    for place, (guid, text) in enumerate(zip(cores, texts, strict=True)):
        row, column = divmod(place, across)
        x, at = start + column * pitch, y + row * _ROW
        parts.chips.append(chip(fabric, ask, guid, x=x, y=at, width=pitch - 3, text=text))
    y += rows * _ROW + 6
    words = _core_words(set(cores), between)
    font = min(13.0, max(6.5, width / 165), width / (0.6 * len(words)))
    parts.notes.append(Note(width / 2, y + 2, words, font, 1, "ribbon"))
    return y + font + 8


def _core_words(cores: set[str], between: Mapping[tuple[str, str], Sequence[Cable]]) -> str:
    up = [(lower, cable) for (lower, upper), cables in between.items() if upper in cores for cable in cables]
    each = Counter(Counter(lower for lower, _ in up).values()).most_common(2)
    rates = Counter(cable.rate for _, cable in up)
    rate = nominal(max(rates, key=lambda one: (rates[one], one), default=""))
    words = f"{len(up):,} cables to {count(len(cores), 'core switch', 'core switches')}"
    if not each:
        return words
    usual = f"{each[0][0]} from each spine" if len(each) == 1 else f"mostly {each[0][0]} from a spine"
    return f"{words}, {usual}, {rate}"


def left_over(fabric: Fabric, ask: Ask, parts: Parts, *, wanted: frozenset[str], width: float, y: float) -> float:
    """Switches with no live adapter below, and those of the older map that are gone. Returns where they end."""
    bare, gone = _far(fabric, wanted, hostless=1), ask.marks.gone_switches
    if not bare and not gone:
        return y
    across = max(1, int((width - 2 * _GAP - 16) // _BOX))
    height = 24 + -(-(len(bare) + len(gone)) // across) * _ROW
    words = "no live adapter below: leaves without hosts, or core switches" if bare else "gone"
    parts.frames.append(Frame("", _GAP, y, width - 2 * _GAP, height, 0))
    parts.notes.append(Note(_GAP + 8, y + 9, words, 9.0, 0, "faint"))
    spots = [
        (_GAP + 8 + place % across * _BOX, y + 20 + place // across * _ROW)
        for place in range(len(bare) + len(gone))
    ]
    for guid, (x, at) in zip(bare, spots, strict=False):
        text = fabric.switches[guid].label
        parts.chips.append(chip(fabric, ask, guid, x=x, y=at, width=_BOX - 4, text=text))
    for one, (x, at) in zip(gone, spots[len(bare) :], strict=True):
        parts.chips.append(gone_chip(ask, one, x=x, y=at, width=_BOX - 4))
    return y + height + _GAP


def stubs(fabric: Fabric, ask: Ask, parts: Parts) -> None:
    """Marked cables that no pod draws, as short lines on top of the lower of their switches."""
    numbers = {(wire.number, wire.look) for wire in parts.wires if wire.number}
    boxes = {one.guid: one for one in parts.chips}
    for (a, b), mark in ask.marks.cables.items():
        ends = [boxes[guid] for guid in (a[0], b[0]) if guid in boxes]
        if ends and (mark.number, mark.look) not in numbers:
            low = max(ends, key=lambda one: one.y)
            names = [fabric.switches[guid].label if guid in fabric.switches else guid for guid in (a[0], b[0])]
            hint = f"{names[0]} port {a[1]} - {names[1]} port {b[1]}"
            x = low.x + low.width / 2
            parts.wires.append(Wire(x, low.y - 1, x, low.y - 12, mark.look, mark.number, "", 1, hint))
