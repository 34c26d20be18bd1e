"""Single figures of a drawing: the cell of an adapter, the box of a switch, with all that is said of them."""

from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.marks import GoneAdapter, GoneSwitch, Mark
from llmgw.fabric.drawing.values import Cell, Chip, Look
from llmgw.fabric.fabric import Adapter, Fabric, Standing

CHIP_HEIGHT = 11.0
_LARGEST = 8.0
_WIDE = 0.64
"""Width of a letter, in sizes of its font."""

PLAIN = Mark(Look.PLAIN, 0)


def font_for(text: str, width: float) -> float:
    """The size in which the text fits the width, 8 points at most."""
    return min(_LARGEST, (width - 1) / (_WIDE * max(len(text), 1)))


def cell(
    fabric: Fabric, ask: Ask, adapter: Adapter, *, x: float, y: float, size: tuple[float, float], written: bool
) -> Cell:
    """An adapter's cell, faint where the drawing is about other nodes, or about replicas and its node has none."""
    mark = ask.marks.adapters.get((adapter.guid, adapter.port), PLAIN)
    group = ask.marks.groups.get(adapter.node or "", -1)
    beside = ask.nodes is not None and adapter.node not in ask.nodes
    rail = f", rail {adapter.rail}" if adapter.rail else ""
    leaf = fabric.switches[adapter.leaf].label
    return Cell(
        guid=adapter.guid,
        port=adapter.port,
        x=x,
        y=y,
        width=size[0],
        height=size[1],
        text=f"{adapter.node or '?'} {adapter.device}".strip() if written else "",
        hint=f"{adapter.label}, {adapter.rate}, on {leaf} port {adapter.leaf_port}{rail}",
        rail=adapter.rail or 0,
        rate=adapter.rate,
        look=mark.look,
        number=mark.number,
        group=group,
        named=adapter.standing in (Standing.FACTS, Standing.NAMED),
        faint=beside or (ask.colouring == "plan" and group < 0),
    )


def gone_cell(ask: Ask, one: GoneAdapter, *, x: float, y: float, size: tuple[float, float], written: bool) -> Cell:
    """The cell of an adapter that only the older map has."""
    mark = ask.marks.adapters[one.port]
    return Cell(
        guid=one.port[0],
        port=one.port[1],
        x=x,
        y=y,
        width=size[0],
        height=size[1],
        text=one.label if written else "",
        hint=f"gone: {one.label}",
        rail=0,
        rate="",
        look=mark.look,
        number=mark.number,
        group=-1,
        named=True,
        faint=False,
    )


def chip(fabric: Fabric, ask: Ask, guid: str, *, x: float, y: float, width: float, text: str) -> Chip:
    """A switch's box; its text no larger than it has room for."""
    switch = fabric.switches[guid]
    mark = ask.marks.switches.get(guid, PLAIN)
    rail = f", rail {switch.rail}" if switch.rail else ""
    return Chip(
        guid=guid,
        tier=str(switch.tier),
        x=x,
        y=y,
        width=width,
        height=CHIP_HEIGHT,
        text=text,
        font=font_for(text, width),
        hint=f"{switch.label}: {switch.tier}{rail}, {switch.name.strip()}, {guid}, LID {switch.lid}",
        rail=switch.rail or 0,
        look=mark.look,
        number=mark.number,
        hostless=switch.hostless,
    )


def gone_chip(ask: Ask, one: GoneSwitch, *, x: float, y: float, width: float) -> Chip:
    """The box of a switch that only the older map has."""
    mark = ask.marks.switches[one.guid]
    return Chip(
        guid=one.guid,
        tier="gone",
        x=x,
        y=y,
        width=width,
        height=CHIP_HEIGHT,
        text=one.label,
        font=font_for(one.label, width),
        hint=f"gone: {one.label}",
        rail=0,
        look=mark.look,
        number=mark.number,
        hostless=False,
    )
