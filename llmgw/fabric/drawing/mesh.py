"""A drawing for shapes that are no fat tree: rings, tori, dragonflies. Graphviz finds the positions.

Switches are boxes with their number of adapters, cables between the same two switches are one line. Render it with
`dot -Gsplines=line -Gnslimit=1`: without these two a few hundred switches take minutes.
"""

from collections import Counter
from collections.abc import Iterator

from llmgw.base import count
from llmgw.fabric.drawing.ask import Ask
from llmgw.fabric.drawing.dot import hint, quoted
from llmgw.fabric.drawing.marks import Mark
from llmgw.fabric.drawing.palette import FAULT, INK, LOOKS, PAPER, TIERS
from llmgw.fabric.drawing.pods import trunks
from llmgw.fabric.drawing.values import Look
from llmgw.fabric.fabric import Fabric

_PLAIN = Mark(Look.PLAIN, 0)
_LINES = 12


def mesh_dot(fabric: Fabric, ask: Ask) -> str:
    """The fabric as DOT without positions. Marked cables are lines of their own, with their number."""
    return "\n".join(_lines(fabric, ask)) + "\n"


def _lines(fabric: Fabric, ask: Ask) -> Iterator[str]:
    yield "graph fabric {"
    title = "\\n".join(quoted(line)[1:-1] for line in (ask.title, *ask.marks.listed()[:_LINES]))
    yield f'graph [bgcolor="{PAPER}", label="{title}", labelloc=t, fontsize=11, fontname="sans-serif",'
    yield " ranksep=0.6, nodesep=0.15];"
    yield f'node [shape=box, style=filled, fontname="sans-serif", fontsize=9, color="{INK}", penwidth=0.5];'
    yield 'edge [fontname="sans-serif", fontsize=8, color="#9fb0c2"];'
    wanted = ask.switches if ask.switches is not None else frozenset(fabric.switches)
    names = {guid: f"s{number}" for number, guid in enumerate(fabric.switches) if guid in wanted}
    below = Counter(adapter.leaf for adapter in fabric.adapters.values())
    marked = Counter(fabric.adapters[key].leaf for key in ask.marks.adapters if key in fabric.adapters)
    for guid, name in names.items():
        yield _switch(fabric, ask, guid, name, below[guid], marked[guid])
    for (lower, upper), cables in sorted(trunks(fabric).items()):
        if lower not in names or upper not in names:
            continue
        plain = 0
        for cable in cables:
            mark = ask.marks.cables.get(((cable.a, cable.a_port), (cable.b, cable.b_port)), _PLAIN)
            if mark is _PLAIN:
                plain += 1
                continue
            colour, style = LOOKS[mark.look]
            label = f', label="{mark.number}", fontcolor="{colour}"' if mark.number else ""
            yield f'{names[lower]} -- {names[upper]} [color="{colour}", style={style}, penwidth=2{label}];'
        if plain:
            label = f', label="{plain}"' if plain > 1 else ""
            yield f"{names[lower]} -- {names[upper]} [penwidth={min(0.5 + 0.25 * plain, 4):.2f}{label}];"
    yield "}"


def _switch(fabric: Fabric, ask: Ask, guid: str, name: str, below: int, marked: int) -> str:
    switch = fabric.switches[guid]
    mark = ask.marks.switches.get(guid, _PLAIN)
    label = quoted(switch.label)[:-1]
    label += f"\\n{count(below, 'adapter')}" if below else ""
    label += f", {marked} marked" if marked else ""
    colour = LOOKS[mark.look][0] if mark is not _PLAIN else FAULT if marked else INK
    width = 2 if mark is not _PLAIN or marked else 0.5
    words = hint(f"{switch.label}: {switch.name.strip()}, {guid}")
    fill = TIERS[switch.tier]
    return f'{name} [label={label}", fillcolor="{fill}", color="{colour}", penwidth={width}, tooltip={words}];'
