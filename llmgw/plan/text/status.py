"""`llmgw status` and `llmgw drift` as text."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from llmgw.base import count, duration
from llmgw.plan.status import ReplicaState, ReplicaStatus
from llmgw.plan.text.spans import Line, Span, Style, folded, gpu_words, line, plain, rails_words, wrapped

if TYPE_CHECKING:
    from llmgw.plan.drift import Difference

_STYLES: dict[ReplicaState, Style] = {
    ReplicaState.READY: "add",
    ReplicaState.RUNNING: "change",
    ReplicaState.DRAINING: "change",
    ReplicaState.BROKEN: "remove",
    ReplicaState.UNREACHABLE: "warn",
    ReplicaState.LOST: "remove",
    ReplicaState.ENDED: "remove",
    ReplicaState.MISSING: "warn",
}
_HEADINGS = ("replica", "state", "nodes", "GPUs", "leaf", "since", "engine", "spec")


def status_lines(found: Sequence[ReplicaStatus], *, now: datetime, width: int = 96) -> list[Line]:
    """A table of replicas, notes under those that have any, and one line of counts."""
    if not found:
        return [plain("No replica runs and none is wanted.")]
    rows = [_cells(one, now) for one in found]
    widths = _widths([_HEADINGS, *rows], width)
    lines = [plain(_row(_HEADINGS, widths), "dim")]
    for one, cells in zip(found, rows, strict=True):
        before, after = _row(cells[:1], widths), _row(cells[2:], widths[2:])
        lines.append(line(f"{before}  ", Span(cells[1].ljust(widths[1]), _STYLES[one.state]), f"  {after}"))
        for text in (one.note, *map(str, one.changes)):
            if text:
                lines += wrapped(text, width=width, indent=4, style="dim")
    return [*lines, plain(_counts(found))]


def status_cells(one: ReplicaStatus, *, now: datetime) -> list[str]:
    """The wide row of one replica: as status_lines has it, then its address and its rails."""
    rails = {rails_words(path) for path in one.paths}
    return [*_cells(one, now), one.url, "; ".join(sorted(rails))]


def _cells(one: ReplicaStatus, now: datetime) -> list[str]:
    since = duration(max(0, (now - one.since).total_seconds())) if one.since else ""
    gpus = gpu_words([seat.gpus for seat in one.seats]) if one.seats else ""
    nodes = folded([seat.n for seat in one.seats])
    return [one.replica, one.state.value, nodes, gpus, one.leaf, since, one.engine, one.spec]


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Column widths; where all together are too wide the names of replicas and nodes are cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    for column in (2, 6, 4, 0):
        if over > 0:
            cut = min(over, max(0, widths[column] - 9))
            widths[column] -= cut
            over -= cut
    return widths


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(_cut(cell, size).ljust(size) for cell, size in zip(cells, widths, strict=False))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def _counts(found: Sequence[ReplicaStatus]) -> str:
    states = [
        f"{number} {state.value}" for state in ReplicaState if (number := sum(one.state is state for one in found))
    ]
    return f"{count(len(found), 'replica')}: {', '.join(states)}."


def drift_lines(found: "Sequence[Difference]", *, width: int = 96) -> list[Line]:
    """What differs, with the fields that do; those that a plan would act on first."""
    if not found:
        return [plain("Nothing differs: all that runs is as the catalogue says and as llmgw left it.")]
    lines: list[Line] = []
    for acts, heading in ((True, "A plan would act on"), (False, "Nothing to do about")):
        part = [one for one in found if one.acts is acts]
        if part:
            lines.append(plain(f"{heading} {count(len(part), 'difference')}:", "dim"))
        for one in part:
            lines += wrapped(f"{one.subject}: {one.text}", width=width, indent=2, style="change" if acts else "")
            lines += [text for change in one.changes for text in wrapped(str(change), width=width, indent=6)]
    return lines
