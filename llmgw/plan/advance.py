"""What an apply asks next: which actions may begin, and what the phases of those under way still have to ask.

An action waits for the actions that it comes after, for its model's other disruptive action, and for one of
`parallel` places. After a failure its model changes no further; other models go on.
"""

from collections.abc import Sequence
from dataclasses import replace

from llmgw.base import replica_parts
from llmgw.plan.document import Action, Op
from llmgw.plan.phases import PHASES, Ask, Kind, Phase
from llmgw.plan.progress import ActionState, Progress, Step, with_state, with_step

PROBE_S = 15
STOP_SLICE_S = 10
_DISRUPTIVE = frozenset({Op.STOP, Op.DRAIN, Op.REPLACE, Op.MOVE})


def advance(progress: Progress, now: float) -> tuple[Progress, list[Ask]]:
    """Start what may start; the asks that are due and not yet under way, in the plan's order."""
    progress = _skip(progress, now)
    progress = _start(progress, now)
    rules = progress.rules
    asks: list[Ask] = []
    for action_id, state in progress.states.items():
        if state.status == "running":
            due = [
                ask
                for ask in _due(progress.actions[action_id], state, now, patient=rules.patient)
                if ask.ticket not in state.asked
            ]
            asked = state.asked | {ask.ticket for ask in due}
            progress = with_state(progress, action_id, replace(state, asked=asked))
            asks.extend(due)
    return progress, asks


def _skip(progress: Progress, now: float) -> Progress:
    """Give up on actions that cannot begin any more, and say why."""
    for action_id, action in progress.actions.items():
        if progress.states[action_id].status == "waiting":
            why = _obstacle(progress, action)
            if why:
                skipped = ActionState(status="skipped", why=f"not started: {why}", began=now, ended=now)
                progress = with_state(progress, action_id, skipped)
    return progress


def _obstacle(progress: Progress, action: Action) -> str:
    for before in action.after:
        state = progress.states.get(before)
        if state and state.status in ("failed", "unreachable", "skipped", "left"):
            words = {"skipped": "was not started", "left": "is not ready yet"}
            return f"{before} {words.get(state.status, state.status)}"
    for other_id, state in progress.states.items():
        if state.status in ("failed", "unreachable"):
            if progress.rules.stop_on_error:
                return f"{other_id} {state.status}"
            if _model(progress.actions[other_id]) == _model(action):
                return f"{other_id}, of the same model, {state.status}"
    return "the apply was interrupted" if progress.stopping else ""


def _model(action: Action) -> str:
    return replica_parts(action.replica)[0]


def _start(progress: Progress, now: float) -> Progress:
    for action_id, action in progress.actions.items():
        running = [
            progress.actions[other] for other, state in progress.states.items() if state.status == "running"
        ]
        if len(running) >= progress.rules.parallel:
            break
        if progress.states[action_id].status == "waiting" and _may_start(progress, action, running):
            first = progress.states[action_id].phase or PHASES[action.op][0]
            state = ActionState(status="running", phase=first, began=now, since=now)
            progress = with_step(with_state(progress, action_id, state), Step(action_id, first))
    return progress


def _may_start(progress: Progress, action: Action, running: Sequence[Action]) -> bool:
    if any(progress.states[before].status != "done" for before in action.after if before in progress.states):
        return False
    rivals = [other for other in running if _model(other) == _model(action) and other.op in _DISRUPTIVE]
    return not (rivals and action.op in _DISRUPTIVE)


def _due(action: Action, state: ActionState, now: float, *, patient: bool) -> list[Ask]:
    """Everything that the action's phase still has to ask."""
    phase = state.phase
    assert phase is not None
    if phase in (Phase.DRAIN, Phase.PUBLISH, Phase.WITHDRAW, Phase.RESTORE):
        return [Ask(Kind.PUBLISH, action.id, phase)]
    if phase is Phase.AWAIT_DRAINED:
        head = old_nodes(action)[:1]
        return [Ask(Kind.ROUTERS, action.id, phase), *(Ask(Kind.LOAD, action.id, phase, node) for node in head)]
    waiting = [node for node in nodes_of(action, phase) if node not in state.settled]
    if phase is Phase.UNDO:  # never overtake a start that is still on its way
        waiting = [node for node in waiting if (Phase.START, Kind.START, node) not in state.asked]
    if phase is Phase.START:
        return [Ask(Kind.START, action.id, phase, node) for node in waiting]
    if phase is Phase.AWAIT_READY:
        left = max(1, int(state.since + action.start_s - now))
        wait_s = min(PROBE_S, left) if patient else 2
        return [Ask(Kind.PROBE, action.id, phase, node, wait_s) for node in waiting]
    kind = Kind.KILL if now - state.since > action.stop_s else Kind.STOP
    return [Ask(kind, action.id, phase, node, STOP_SLICE_S) for node in waiting]


def nodes_of(action: Action, phase: Phase) -> tuple[str, ...]:
    """The nodes that a phase deals with, in rank order: of the old copy when it is stopped, else of the new one."""
    if phase is Phase.STOP:
        return old_nodes(action)
    return tuple(seat.n for seat in action.starts.nodes) if action.starts else ()


def old_nodes(action: Action) -> tuple[str, ...]:
    """The nodes of the copy that the action ends, in rank order."""
    return tuple(seat.n for seat in action.ends.nodes) if action.ends else ()
