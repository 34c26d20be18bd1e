"""Colour as a second signal: never the only one, and only where the operator's terminal wants it."""

import shutil
import sys
from collections.abc import Iterable

import click

from llmgw.plan.text import Line, Style, to_text

WIDTH = 96
_COLOURS: dict[Style, dict[str, object]] = {
    "add": {"fg": "green"},
    "remove": {"fg": "red"},
    "change": {"fg": "yellow"},
    "move": {"fg": "cyan"},
    "warn": {"fg": "yellow", "bold": True},
    "dim": {"dim": True},
    "strong": {"bold": True},
}


def paint(text: str, style: Style) -> str:
    """The text in its style; click drops the codes where stdout is no terminal."""
    return click.style(text, **_COLOURS.get(style, {}))  # type: ignore[arg-type]


def width() -> int:
    """Columns to write in: 96, fewer on a narrower terminal, never under 60."""
    return max(60, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def show(lines: Iterable[Line]) -> None:
    """Styled lines on stdout; in ASCII where stdout cannot write more."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    charset = "unicode" if "utf" in encoding else "ascii"
    click.echo(to_text(lines, paint=paint, charset=charset), nl=False)  # type: ignore[arg-type]
