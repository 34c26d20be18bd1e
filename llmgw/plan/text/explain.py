"""`llmgw plan --explain`: one replica, in words."""

from collections.abc import Sequence

from llmgw.base import count
from llmgw.plan.board import Excluded
from llmgw.plan.explain import BETTER, NAME, Explanation, Row
from llmgw.plan.kinds import Reason
from llmgw.plan.nodes import Ground
from llmgw.plan.text.spans import BLANK, Line, Span, folded, gpu_words, line, plain, rails_words, wrapped

_ROWS = 12


def explain_lines(found: Explanation, ground: Ground, *, width: int = 96) -> list[Line]:
    """What it wants, which nodes were counted out, the leaves compared, and its ranks; or why there is no place."""
    lines = wrapped(f"{found.replica} wants {found.needs}", width=width, indent=0, style="strong")
    lines += [BLANK, *_counts(found, width)]
    if found.placement is None or not found.rows:
        lines += [BLANK, *wrapped(f"No place: {found.why}.", width=width, indent=0, style="warn")]
        if found.would_fit:
            lines += wrapped(f"Would fit {', '.join(found.would_fit)}.", width=width, indent=0)
        elif found.placement is None:
            lines.append(plain("Nothing that was tried out helps: no single change is enough."))
        return lines
    lines += [BLANK, *_table(found, width), BLANK, *_ranks(found, ground, width)]
    return [*lines, BLANK, *wrapped(_verdict(found), width=width, indent=0)]


def _counts(found: Explanation, width: int) -> list[Line]:
    """`12 nodes   1 cordoned: gpu11   3 without enough free GPUs: gpu01 …   8 left`."""
    groups: dict[Reason, list[Excluded]] = {}
    for one in found.excluded:
        groups.setdefault(one.reason, []).append(one)
    parts = [count(found.nodes, "node")]
    for reason, members in groups.items():
        names = folded([one.node for one in members])
        shown = names if len(names) <= 60 else names[:57] + "…"
        details = {one.detail for one in members if one.detail}
        detail = f" ({details.pop()})" if len(details) == 1 and reason is not Reason.BUSY else ""
        parts.append(f"{len(members)} {reason.value}: {shown}{detail}")
    parts.append(f"{found.left} left")
    if sum(map(len, parts)) + 3 * len(parts) <= width - 2:
        return [plain("  " + "   ".join(parts))]
    lines = [plain("  " + parts[0])]
    for part in parts[1:]:
        lines += wrapped(part, width=width, indent=4)
    return lines


def _table(found: Explanation, width: int) -> list[Line]:
    """The leaves compared: the chosen one marked, the others with the level on which they lose."""
    slots = f"{found.big[0]}-node places" if found.big[0] > 1 else "whole left"
    heading = ["leaf", "fits", "short", "left over", slots, ""]
    rows = [
        [row.leaf, str(row.fits), str(row.short), str(row.over), str(row.slots), _fate(row, number, found)]
        for number, row in enumerate(found.rows[:_ROWS])
    ]
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(5)]
    widths[0] = min(widths[0], max(12, width - sum(widths[1:]) - 40))
    lines = [plain("  " + _columns(heading, widths), "dim")]
    for number, row in enumerate(rows):
        mark = Span("> ", "add") if number == 0 else Span("  ")
        shown = _columns(row, widths)
        if len(shown) + 2 <= width:
            lines.append(line(mark, shown))
        else:
            lines += [line(mark, _columns([*row[:-1], ""], widths)), *wrapped(row[-1], width=width, indent=6)]
    if len(found.rows) > _ROWS:
        lines.append(plain(f"  and {len(found.rows) - _ROWS} more leaves", "dim"))
    return lines


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell[:size].ljust(size) for cell, size in zip(cells, widths, strict=False)]
    return "   ".join([*padded, cells[-1]])


def _fate(row: Row, number: int, found: Explanation) -> str:
    if number == 0:
        return "where it runs" if found.stays else "chosen" + (": filled exactly" if row.over == 0 else "")
    if row.lost_on.startswith(BETTER):
        return row.lost_on
    why = "nothing but its name" if row.lost_on == NAME else row.lost_on
    short = f" ({row.names[0]})" if row.lost_on == "short cables" else ""
    return f"loses on {why}{short}"


def _ranks(found: Explanation, ground: Ground, width: int) -> list[Line]:
    assert found.placement is not None
    lines = []
    size = max(len(seat.n) for seat in found.placement.nodes)
    for seat in found.placement.nodes:
        part = f"rank {seat.rank}" + (f", head, :{seat.port}" if seat.rank == 0 else "")
        node = ground.get(seat.n)
        rails = rails_words(node.path) if node else ""
        text = f"  {seat.n.ljust(size)}  {part:<20} {gpu_words([seat.gpus]):<12}"
        if len(text) + 1 + len(rails) <= width:
            lines.append(plain(f"{text} {rails}"))
        else:
            lines += [plain(text), *wrapped(rails, width=width, indent=size + 4)]
    return lines


def _verdict(found: Explanation) -> str:
    if found.stays:
        return f"It runs there, and what runs stays{f': {found.why}' if found.why else ''}."
    if not found.decided:
        return "No other leaf could have it."
    other = found.rows[1].leaf
    if found.decided == NAME:
        return f"{other} would do as well; the lower name decides."
    if found.decided.startswith(BETTER):
        return f"Seen alone {other} would suit it better; this way all replicas together fit best."
    return f"Decided by {found.decided}: {other} comes second."
