"""A plan as text: what changes, where, why, in which order, and what stays free. 96 columns, fewer at need."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmgw.base import count, natural_key, replica_parts
from llmgw.plan.document import Action, Body, Op, Plan
from llmgw.plan.roster import WANTED
from llmgw.plan.text.spans import BLANK, Line, Span, Style, folded, gpu_words, line, plain, wrapped
from llmgw.plan.text.summary import left_free, not_used, summary
from llmgw.plan.text.why import reason_words

SIGNS: dict[Op, tuple[str, Style]] = {
    Op.START: ("+", "add"),
    Op.STOP: ("-", "remove"),
    Op.REPLACE: ("±", "change"),
    Op.MOVE: (">", "move"),
    Op.FORGET: ("x", "dim"),
    Op.ADOPT: ("=", "dim"),
    Op.PUBLISH: ("=", "dim"),
    Op.DRAIN: ("~", "change"),
    Op.FETCH: ("v", "add"),
}
_LEGEND = {
    Op.START: "+ start",
    Op.STOP: "- stop",
    Op.REPLACE: "± replace in place: drain, stop, start",
    Op.MOVE: "> move: start elsewhere, drain, stop",
    Op.FORGET: "x forget",
    Op.ADOPT: "= publish what runs",
}
GROUPED_FROM = 40


@dataclass(frozen=True, slots=True)
class View:
    """How a plan is shown. `heading` are lines about its inputs, `footing` about its file; both the caller's, who
    knows the time. `took_s` is how long nodes were asked, None where they were not. `verbose`: no grouping."""

    width: int = 96
    heading: tuple[str, ...] = ()
    footing: tuple[str, ...] = ()
    took_s: float | None = None
    verbose: bool = False


def plan_lines(plan: Plan, view: View) -> list[Line]:
    """The whole text of `llmgw plan`."""
    body = plan.body
    lines = [one for text in view.heading for one in wrapped(text, width=view.width, indent=0, style="dim")]
    if lines:
        lines.append(BLANK)
    if not body.actions and not body.unplaced:
        lines += wrapped(nothing_to_do(body, view), width=view.width, indent=0)
        return [*lines, *_closing(body, view)]
    if body.actions:
        lines += [plain("  " + _legend(body), "dim"), BLANK]
        lines += _changes(body, view)
        lines.append(BLANK)
    lines += _unplaced(body, view)
    lines += _unchanged(body, view)
    lines += _closing(body, view)
    lines += [BLANK, *_summary(plan, view)]
    return [*lines, *(plain(text) for text in view.footing)]


def nothing_to_do(body: Body, view: View) -> str:
    """The one sentence where nothing changes."""
    nodes = count(int(body.notes.get("answered", 0)), "node")
    took = f", {view.took_s:.1f} s" if view.took_s is not None else ""
    running = count(len(body.placements), "replica")
    verb = "runs" if len(body.placements) == 1 else "run"
    return f"Nothing to change: {running} {verb} as the catalogue says (checked {nodes}{took})."


def _legend(body: Body) -> str:
    ops = {Op.ADOPT if action.op is Op.PUBLISH else action.op for action in body.actions}
    return "    ".join(text for op, text in _LEGEND.items() if op in ops)


def _changes(body: Body, view: View) -> list[Line]:
    actions = sorted(body.actions, key=_shown_order)
    if len(actions) > GROUPED_FROM and not view.verbose:
        return _grouped(actions, view)
    widths = _widths(actions, view)
    lines: list[Line] = []
    for number, action in enumerate(actions):
        if number and action.op is not actions[number - 1].op:
            lines.append(BLANK)
        lines += _entry(action, widths, view)
    return lines


_SHOWN = (Op.FORGET, Op.STOP, Op.REPLACE, Op.MOVE, Op.DRAIN, Op.FETCH, Op.START, Op.ADOPT, Op.PUBLISH)


def _shown_order(action: Action) -> tuple[object, ...]:
    return _SHOWN.index(action.op), natural_key(action.replica), natural_key(action.id)


def cells(action: Action) -> list[str]:
    """Replica, nodes, GPUs, leaf and port of an action, as its line shows them."""
    place = action.starts
    if place is not None:
        nodes, gpus = [seat.n for seat in place.nodes], [seat.gpus for seat in place.nodes]
        return [action.replica, folded(nodes), gpu_words(gpus), place.leaf, f":{place.port}"]
    seats = action.ends.nodes if action.ends else ()
    gpus = [seat.gpus for seat in seats]
    return [action.replica, folded([seat.n for seat in seats]), gpu_words(gpus) if gpus else "", "", ""]


def _widths(actions: Sequence[Action], view: View) -> list[int]:
    """Column widths; a column takes at most its share, so that a long name does not push out all others."""
    most = [view.width // 4, view.width // 4, 14, 18, 6]
    columns = zip(*(cells(action) for action in actions), strict=True)
    return [min(limit, max(map(len, column))) for limit, column in zip(most, columns, strict=True)]


def _entry(action: Action, widths: Sequence[int], view: View) -> list[Line]:
    sign, style = SIGNS[action.op]
    row = "  ".join(text.ljust(width) for text, width in zip(cells(action), widths, strict=True) if width)
    tail = _tail(action)
    first = line(Span(f"{sign} ", style), Span(row, "strong" if action.outage else ""))
    used = 2 + len(row)
    room = view.width - used - len(action.id) - 2
    lines: list[Line] = []
    if len(tail) + 2 <= room:
        padding = " " * (view.width - used - 2 - len(tail) - len(action.id))
        lines.append((*first, Span(f"  {tail}{padding}"), Span(action.id, "dim")))
    else:
        gap = max(2, view.width - used - len(action.id))
        lines.append((*first, Span(" " * gap), Span(action.id, "dim")))
        lines += wrapped(tail, width=view.width, indent=6)
    return [*lines, *_why(action, view)]


def _tail(action: Action) -> str:
    """What the action waits for, and the model's ready replicas through it where they fall."""
    parts = [f"after {', '.join(action.after)}"] if action.after else []
    if len(action.ready) > 1 and action.op in (Op.STOP, Op.REPLACE, Op.MOVE) and action.ready[0]:
        parts.append("ready " + " → ".join(map(str, action.ready)))
    return "  ".join(parts)


def _why(action: Action, view: View) -> list[Line]:
    reasons = reason_words(action.replica, action.starts.why) if action.starts else []
    whys = [] if action.op is Op.START and action.why == WANTED and reasons else action.why.split("; ")
    lines: list[Line] = []
    for part in (*whys, *reasons):
        lines += wrapped(part, width=view.width, indent=6)
    if action.drain_s and action.op in (Op.STOP, Op.MOVE, Op.REPLACE):
        old = "the old one then drains" if action.op is Op.MOVE else "drains"
        last = f"{lines.pop()[0].text.strip()}; {old} up to {_minutes(action.drain_s)}"
        lines += wrapped(last, width=view.width, indent=6)
    if action.outage:
        lines += wrapped(
            "takes the model below its minimum: needs --allow-outage", width=view.width, indent=6, style="warn"
        )
    return lines


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds} s"


def _grouped(actions: Sequence[Action], view: View) -> list[Line]:
    """One line a model and kind of action, for plans with many."""
    groups: dict[tuple[int, str], list[Action]] = {}
    for action in actions:
        groups.setdefault((_SHOWN.index(action.op), replica_parts(action.replica)[0]), []).append(action)
    lines = []
    for (_, model), members in sorted(groups.items(), key=lambda item: (item[0][0], natural_key(item[0][1]))):
        sign, style = SIGNS[members[0].op]
        nodes = sorted({node for action in members for node in action.nodes}, key=natural_key)
        text = f"{model:<24}  {count(len(members), 'replica'):<13} {folded(nodes)}"
        shown = text if len(text) <= view.width - 2 else text[: view.width - 5] + "…"
        lines.append(line(Span(f"{sign} ", style), shown))
    return [*lines, plain(f"  {len(actions)} changes in all; -v lists each", "dim")]


def _unplaced(body: Body, view: View) -> list[Line]:
    lines: list[Line] = []
    for one in body.unplaced:
        lines.append(line(Span("! ", "warn"), f"{one.replica}  wants {one.needs}: no place"))
        lines += wrapped(one.why, width=view.width, indent=6)
        if one.would_fit:
            lines += wrapped("would fit " + ", ".join(one.would_fit), width=view.width, indent=6)
    return [*lines, BLANK] if lines else []


def _unchanged(body: Body, view: View) -> list[Line]:
    changed = {action.replica for action in body.actions}
    same = [placement.replica for placement in body.placements if placement.replica not in changed]
    if not same:
        return []
    names = ", ".join(same) if len(same) <= 12 else ", ".join(same[:10]) + f" and {len(same) - 10} more"
    return [*wrapped(f"{count(len(same), 'replica')} unchanged: {names}", width=view.width, indent=2), BLANK]


def _closing(body: Body, view: View) -> list[Line]:
    lines: list[Line] = []
    for text in (not_used(body.notes), left_free(body.notes)):
        if text:
            lines += wrapped(text, width=view.width, indent=0, style="dim")
    for warning in body.warnings:
        lines += wrapped(f"Warning: {warning}", width=view.width, indent=0, style="warn")
    number = int(body.notes.get("drift", 0))
    if number:
        verb = "changes" if number == 1 else "change"
        them = "it" if number == 1 else "them"
        text = f"{count(number, 'difference')} outside llmgw {verb} nothing here (llmgw drift shows {them})"
        lines.append(plain(text, "dim"))
    return lines


def _summary(plan: Plan, view: View) -> list[Line]:
    return wrapped(summary(plan), width=view.width, indent=0, style="strong")
