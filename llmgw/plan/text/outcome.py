"""What became of the actions of a plan, as text: a row each, what is under way, and how it all ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.base import count, duration, natural, replica_parts
from llmgw.plan.document import Action, Op
from llmgw.plan.progress import ActionState, Progress
from llmgw.plan.text.spans import Line, Span, Style, line, wrapped

_WORDS: dict[str, tuple[str, Style]] = {
    "done": ("ok", "add"),
    "left": ("starting", "change"),
    "failed": ("FAILED", "remove"),
    "unreachable": ("UNREACHABLE", "remove"),
    "skipped": ("not done", "dim"),
    "waiting": ("not done", "dim"),
    "running": ("UNKNOWN", "warn"),
}
_DID: dict[Op, str] = {
    Op.START: "started on {new}, answers on :{port}, published",
    Op.STOP: "{drained}, stopped, {gpus} idle on {old}",
    Op.REPLACE: "{drained}, stopped, started on {new}, answers on :{port}, published",
    Op.MOVE: "started on {new}, answers on :{port}, published; {drained}, stopped, {gpus} idle on {old}",
    Op.PUBLISH: "answers on :{port}, published",
    Op.ADOPT: "answers on :{port}, published",
    Op.FORGET: "published no longer",
    Op.DRAIN: "{drained}, runs on",
}
_OUTCOME, _TOOK = 11, 7
LOG_LINES = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide a table of outcomes is, and its two first columns."""

    ids: int
    replicas: int
    width: int

    @classmethod
    def of(cls, actions: Sequence[Action], width: int) -> "Columns":
        """Columns in which all these actions stand under each other."""
        ids = max((len(action.id) for action in actions), default=2)
        return cls(ids, max((len(action.replica) for action in actions), default=0), width)


def outcome_lines(action: Action, state: ActionState, columns: Columns) -> list[Line]:
    """A row for an action that is over, or left as it is; after a failure its reason and the rank's last lines."""
    word, style = _WORDS[state.status]
    took = (
        duration(state.ended - state.began) if state.ended and state.status not in ("skipped", "waiting") else ""
    )
    indent = columns.ids + columns.replicas + 4
    text = did(action, state) if state.status == "done" else _left_as(state)
    room = max(20, columns.width - indent - _OUTCOME - _TOOK - 2)
    first, *rest = wrapped(text, width=room, indent=0) or [line("")]
    head = f"{action.id:<{columns.ids}}  {action.replica:<{columns.replicas}}  {_text(first):<{room}} "
    lines = [line(head, Span(f"{word:>{_OUTCOME}}", style), f" {took:>{_TOOK}}")]
    lines += [line(" " * indent + _text(more)) for more in rest]
    if state.status == "done":
        return lines
    lines += [line(" " * 6, Span(logged, "dim")) for logged in state.log[-LOG_LINES:]]
    if state.log:
        lines.append(line(" " * 6, f"more:  llmgw replicas logs {action.replica}"))
    notes = [note for note in state.notes if note]
    return lines + [text for note in notes for text in wrapped(note, width=columns.width, indent=6, style="dim")]


def _text(one: Line) -> str:
    return "".join(span.text for span in one)


def _left_as(state: ActionState) -> str:
    if state.status == "running":
        return f"left in the middle: {state.phase}"
    return state.why or "not begun"


def did(action: Action, state: ActionState) -> str:
    """What was done, for an action that went well."""
    new = natural(seat.n for seat in action.starts.nodes) if action.starts else []
    old = natural(seat.n for seat in action.ends.nodes) if action.ends else []
    gpus = sum(len(seat.gpus) for seat in action.ends.nodes) if action.ends else 0
    drained = next((note for note in state.notes if "drained" in note or "in flight" in note), "drained")
    return _DID.get(action.op, "done").format(
        new=" ".join(new),
        old=" ".join(old),
        gpus=count(gpus, "GPU"),
        port=action.starts.port if action.starts else "",
        drained=drained,
    )


def under_way(progress: Progress, now: float) -> str:
    """What is being done just now: each action's phase and for how long; empty where nothing is."""
    return "; ".join(
        f"{action_id} {progress.actions[action_id].replica} {state.phase} {duration(max(0.0, now - state.since))}"
        for action_id, state in progress.states.items()
        if state.status == "running"
    )


@dataclass(frozen=True, slots=True)
class Serving:
    """How many replicas of a model are ready, and how many are wanted."""

    ready: int
    wanted: int


def ending_lines(progress: Progress, serving: Mapping[str, Serving], *, serial: int) -> list[Line]:
    """Counts of what became of the actions, how models serve that something went wrong with, and what to do next."""
    tally: dict[str, int] = {}
    for state in progress.states.values():
        word = {"running": "left in the middle", "waiting": "not begun", "skipped": "not started"}
        tally[word.get(state.status, state.status)] = tally.get(word.get(state.status, state.status), 0) + 1
    open_ = [one for one, state in progress.states.items() if state.status not in ("done", "left")]
    models = natural({replica_parts(progress.actions[one].replica)[0] for one in open_})
    texts = [", ".join(f"{number} {word}" for word, number in tally.items()) + "."]
    texts += [
        f"{model} serves with {serving[model].ready} of {count(serving[model].wanted, 'replica')}."
        for model in models
        if model in serving
    ]
    texts.append(f"State serial {serial}.")
    lines = [line(" ".join(texts))]
    if open_:
        named = ", ".join(open_) if len(open_) <= 8 else f"{len(open_)} actions"
        lines.append(line(f"Look at it, then:  llmgw apply --resume   ({named})   or   llmgw plan"))
    return lines
