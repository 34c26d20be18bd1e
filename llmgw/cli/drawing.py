"""DOT text → a picture: Graphviz, through the Python library of that name. The one place that runs it.

The text goes in as it is: it was written, and every name in it escaped, by llmgw.fabric.drawing. A layout of an
irregular fabric may take hours, so every run has a limit.
"""

import re
from dataclasses import dataclass
from subprocess import TimeoutExpired

from graphviz import CalledProcessError, ExecutableNotFound
from graphviz.backend import dot_command, execute

from llmgw.base import LlmgwError

LIMIT_S = 60.0
_DOCTYPE = re.compile(rb"<!DOCTYPE[^>]*>\s*")
_FORMATS = ("svg", "png", "pdf")


@dataclass(frozen=True, slots=True)
class Engine:
    """How Graphviz is to lay a text out: its engine, whether positions are given, and what else it is told."""

    name: str
    placed: bool = False
    options: tuple[str, ...] = ()


PLACED = Engine("neato", placed=True)
"""For text in which every position is given."""

IRREGULAR = Engine("dot", options=("-Gsplines=line", "-Gnslimit=1"))
"""For text in which Graphviz is to find the positions."""


def render(dot: str, engine: Engine, kind: str, *, limit_s: float = LIMIT_S) -> bytes:
    """The picture as svg, png or pdf. LlmgwError where Graphviz is not installed, fails, or takes too long.

    An SVG is given without its document type, which would have readers fetch a file from elsewhere.
    """
    if kind not in _FORMATS:
        raise ValueError(f"no format {kind!r}")
    renderer = "cairo" if kind == "png" else None
    command = dot_command.command(engine.name, kind, renderer=renderer, neato_no_op=2 if engine.placed else None)
    try:
        done = execute.run_check(
            [*command, *engine.options], input=dot.encode(), capture_output=True, timeout=limit_s, quiet=True
        )
    except ExecutableNotFound:
        raise LlmgwError(
            "Graphviz is not installed", hint="apt-get install graphviz, or -o dot for the text alone"
        ) from None
    except TimeoutExpired:
        raise LlmgwError(
            f"Graphviz took more than {limit_s:.0f} s",
            hint="draw a part with --limit, or -o dot for the text alone",
        ) from None
    except CalledProcessError as error:
        what = (error.stderr or b"").decode(errors="replace").strip()
        raise LlmgwError(f"Graphviz failed: {what[:400]}") from None
    picture: bytes = done.stdout
    return _DOCTYPE.sub(b"", picture, count=1) if kind == "svg" else picture
