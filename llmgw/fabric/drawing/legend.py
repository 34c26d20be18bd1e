"""What the colours of a drawing mean: only those that it has."""

from collections.abc import Iterable

from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.place import Parts
from llmgw.fabric.drawing.values import Look, Swatch
from llmgw.fabric.rates import gbps, nominal

_REPLICAS = 16
_LONG = 40
_WORDS = {
    Look.SHORT: "short cable",
    Look.OFF_RAIL: "off its rail",
    Look.FEWER: "fewer cables than its neighbours",
    Look.ADDED: "added",
    Look.GONE: "gone",
    Look.MOVED: "moved",
    Look.RECOVERED: "recovered",
}


def legend(ask: Ask, parts: Parts, *, x: float, y: float, size: float, width: float) -> tuple[Swatch, ...]:
    """The entries in lines from (x, y) on, no wider than `width`."""
    found: list[Swatch] = []
    at = x
    for key, words in (*_fills(ask, parts), *_looks(parts)):
        shown = words if len(words) <= _LONG else words[: _LONG - 1] + "…"
        room = size * (3.2 + 0.62 * len(shown))
        if at > x and at + room > width:
            at, y = x, y + size * 1.5
        found.append(Swatch(at, y, size, key, shown))
        at += room
    return tuple(found)


def _fills(ask: Ask, parts: Parts) -> Iterable[tuple[str, str]]:
    if ask.colouring == "rail":
        rails = sorted({cell.rail for cell in parts.cells if cell.rail})
        yield from ((f"rail {rail}", f"rail {rail}") for rail in rails[:16])
    elif ask.colouring == "rate":
        rates = {cell.rate for cell in parts.cells if cell.rate}
        for rate in sorted(rates, key=lambda one: (-(gbps(one) or 0.0), one))[:12]:
            yield f"rate {rate}", f"{rate}, {nominal(rate)}" if gbps(rate) else rate
    elif ask.colouring == "plan":
        names = ask.marks.group_names
        yield from ((f"group {number}", name) for number, name in enumerate(names[:_REPLICAS]))
        if len(names) > _REPLICAS:
            yield "other", f"and {len(names) - _REPLICAS} more replicas"
    else:
        yield "state ok", "as it should be"
    if any(not cell.named and cell.look is not Look.GONE for cell in parts.cells):
        yield "unnamed", "adapter of an unknown node"


def _looks(parts: Parts) -> Iterable[tuple[str, str]]:
    looks = {cell.look for cell in parts.cells} | {wire.look for wire in parts.wires}
    looks |= {chip.look for chip in parts.chips}
    yield from ((f"look {look}", words) for look, words in _WORDS.items() if look in looks)
