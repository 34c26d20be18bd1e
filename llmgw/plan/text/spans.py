"""Lines of styled text: what is said, and as a second signal how it may be coloured."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from llmgw.base import natural, visible
from llmgw.fabric import NodePath

Style = Literal["", "add", "remove", "change", "move", "warn", "dim", "strong"]
Paint = Callable[[str, Style], str]
_ASCII = {"±": "+/-", "→": "->", "…": "...", "×": "x", "≥": ">=", "≤": "<=", "—": "-", "–": "-", "·": "-"}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line in one style."""

    text: str
    style: Style = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line of plain and styled pieces."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def plain(text: str, style: Style = "") -> Line:
    """A line of one piece."""
    return (Span(text, style),)


BLANK: Line = ()


def to_text(
    lines: Iterable[Line], *, paint: Paint | None = None, charset: Literal["unicode", "ascii"] = "unicode"
) -> str:
    """The lines as one text, a line feed after each. Control characters are spelled out before anything is painted."""
    return "".join(_text(one, paint, charset) + "\n" for one in lines)


def _text(one: Line, paint: Paint | None, charset: str) -> str:
    pieces = [Span(visible(span.text), span.style) for span in one]
    if charset == "ascii":
        pieces = [Span(to_ascii(span.text), span.style) for span in pieces]
    if pieces:
        pieces[-1] = Span(pieces[-1].text.rstrip(), pieces[-1].style)
    return "".join(
        paint(span.text, span.style) if paint and span.style and span.text else span.text for span in pieces
    )


def to_ascii(text: str) -> str:
    """The text with the few signs that llmgw itself uses written in ASCII, and `?` for what else there is."""
    for sign, instead in _ASCII.items():
        text = text.replace(sign, instead)
    return text.encode("ascii", "replace").decode()


def wrapped(text: str, *, width: int, indent: int, style: Style = "") -> list[Line]:
    """The text in lines of at most `width` columns, each indented; a word longer than that stands alone."""
    room = max(20, width - indent)
    lines, current = [], ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > room:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    if current:
        lines.append(current)
    return [plain(" " * indent + text, style) for text in lines]


def folded(names: Sequence[str]) -> str:
    """Host names as a Slurm hostlist: gpu01 gpu02 gpu03 gpu07 as `gpu[01-03,07]`; one or two stay as they are."""
    if len(names) <= 2:
        return " ".join(names)
    groups: dict[tuple[str, str, int], list[str]] = {}
    for name in natural(names):
        match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", name)
        key = (match[1], match[3], len(match[2])) if match else (name, "", 0)
        groups.setdefault(key, []).append(match[2] if match else "")
    return " ".join(_group(*key, digits) for key, digits in groups.items())


def _group(head: str, tail: str, width: int, digits: Sequence[str]) -> str:
    if len(digits) == 1:
        return f"{head}{digits[0]}{tail}"
    runs: list[tuple[int, int]] = []
    for number in map(int, digits):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    shown = ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs)
    return f"{head}[{shown}]{tail}"


def gpu_words(gpus: Sequence[Sequence[int]]) -> str:
    """GPUs of a replica, node by node: `GPU 4`, `GPUs 0-3`, `8 GPUs`, `8+8 GPUs`, `4 x 8 GPUs`."""
    sizes = [len(one) for one in gpus]
    if len(sizes) == 1:
        numbers = sorted(gpus[0])
        if len(numbers) == 1:
            return f"GPU {numbers[0]}"
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) < 8:
            return f"GPUs {numbers[0]}-{numbers[-1]}"
        return f"{len(numbers)} GPUs" if len(numbers) >= 8 else f"GPUs {','.join(map(str, numbers))}"
    if len(sizes) <= 3:
        return "+".join(map(str, sizes)) + " GPUs"
    return f"{len(sizes)} x {sizes[0]} GPUs"


def rails_words(path: NodePath | None) -> str:
    """`8 of 8 rails on their leaves, all 4xNDR`."""
    if path is None or not path.rails:
        return "on no map"
    right = sum(not rail.off_rail for rail in path.rails)
    rates = sorted({rail.rate for rail in path.rails})
    slow = [f"{rail.device} {rail.rate} of {rail.expected}" for rail in path.rails if rail.rate != rail.expected]
    speed = f"all {rates[0]}" if len(rates) == 1 else slow[0] if slow else " and ".join(rates)
    return f"{right} of {len(path.rails)} rails on their leaves, {speed}"
