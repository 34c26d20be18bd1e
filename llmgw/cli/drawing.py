"""DOT text → a picture, by the Graphviz programs. The one place that runs them.

The Python library of the same name has no time limit on what it runs, and a layout of an irregular fabric by `dot`
may take hours: hence subprocess, with an argument list, no shell, and the text on standard input.
"""

import re
import subprocess
from collections.abc import Sequence

from llmgw.base import LlmgwError

LIMIT_S = 60.0
_DOCTYPE = re.compile(rb"<!DOCTYPE[^>]*>\s*")
_FORMATS = ("svg", "png", "pdf")
PLACED = ("neato", "-n2")
"""The command for text in which every position is given."""

IRREGULAR = ("dot", "-Gsplines=line", "-Gnslimit=1")
"""The command for text in which Graphviz is to find the positions."""


def render(dot: str, command: Sequence[str], kind: str, *, limit_s: float = LIMIT_S) -> bytes:
    """The picture as svg, png or pdf. LlmgwError where Graphviz is not installed, fails, or takes too long.

    An SVG is given without its document type, which would have readers fetch a file from elsewhere.
    """
    if kind not in _FORMATS:
        raise ValueError(f"no format {kind!r}")
    form = "png:cairo" if kind == "png" else kind
    try:
        done = subprocess.run(
            [*command, f"-T{form}"], input=dot.encode(), capture_output=True, timeout=limit_s, check=False
        )
    except FileNotFoundError:
        raise LlmgwError(
            f"{command[0]} of Graphviz is not installed",
            hint="apt-get install graphviz, or -o dot for the text alone",
        ) from None
    except subprocess.TimeoutExpired:
        raise LlmgwError(
            f"{command[0]} took more than {limit_s:.0f} s",
            hint="draw a part with --limit, or -o dot for the text alone",
        ) from None
    if done.returncode:
        raise LlmgwError(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()[:400]}")
    return _DOCTYPE.sub(b"", done.stdout, count=1) if kind == "svg" else done.stdout
