"""What an answer changes: a rank is done with, a phase or an action is over, or it failed and goes back.

When an action fails, what it had started is stopped again, and an old copy that still serves is published again.
"""

from dataclasses import replace

from llmgw.base import duration
from llmgw.plan.advance import nodes_of, old_nodes
from llmgw.plan.document import Action, Op
from llmgw.plan.phases import PHASES, Answer, Kind, Phase
from llmgw.plan.progress import ActionState, Progress, Status, Step, with_state, with_step

KILL_S = 30
_BACKWARD = frozenset({Phase.UNDO, Phase.RESTORE})


def settle(progress: Progress, answer: Answer, now: float) -> Progress:
    """The progress after an answer. One for a phase that is over is dropped."""
    action_id = answer.ask.action
    state = progress.states[action_id]
    if state.status != "running" or answer.ask.ticket not in state.asked:
        return progress
    state = replace(state, asked=state.asked - {answer.ask.ticket})
    progress = with_state(progress, action_id, state)
    if answer.ask.phase is not state.phase:
        return progress
    if answer.outcome == "unreachable":
        return _silence(progress, answer, now)
    heard = {node: when for node, when in state.silent.items() if node != answer.ask.node}
    progress = with_state(progress, action_id, replace(state, silent=heard))
    if answer.outcome == "failed":
        return _fail(progress, action_id, answer.text, now, log=answer.log)
    return _heard(progress, answer, now)


def _silence(progress: Progress, answer: Answer, now: float) -> Progress:
    """A node that does not answer is asked again for a while; then the action is given up as unreachable."""
    action_id, node = answer.ask.action, answer.ask.node
    state = progress.states[action_id]
    first = state.silent.get(node, now)
    if now - first < progress.rules.silence_s and state.phase is not Phase.UNDO:
        return with_state(progress, action_id, replace(state, silent={**state.silent, node: first}))
    text = f"{node or 'a router host'} does not answer: {answer.text}"
    if state.phase is Phase.UNDO:
        notes, silent = (*state.notes, f"not stopped there: {text}"), {**state.silent, node: first}
        progress = with_state(progress, action_id, replace(state, notes=notes, silent=silent))
        return _rank_done(progress, replace(answer, text=""), now)
    return _fail(progress, action_id, text, now, blamed="unreachable")


def _heard(progress: Progress, answer: Answer, now: float) -> Progress:
    kind = answer.ask.kind
    if kind is Kind.PUBLISH:
        return _next_phase(progress, answer.ask.action, answer.text, now)
    if kind in (Kind.ROUTERS, Kind.LOAD):
        return _drained(progress, answer, now)
    if kind is Kind.PROBE and answer.ended:
        return _fail(progress, answer.ask.action, f"{answer.ask.node}: {answer.text}", now, log=answer.log)
    if answer.done:
        return _rank_done(progress, answer, now)
    return _overdue(progress, answer, now)


def _rank_done(progress: Progress, answer: Answer, now: float) -> Progress:
    action_id = answer.ask.action
    action, state = progress.actions[action_id], progress.states[action_id]
    settled = state.settled | {answer.ask.node}
    progress = with_state(progress, action_id, replace(state, settled=settled))
    assert state.phase is not None
    if settled >= set(nodes_of(action, state.phase)):
        return _next_phase(progress, action_id, answer.text, now)
    return progress


def _overdue(progress: Progress, answer: Answer, now: float) -> Progress:
    """A rank that is not yet ready or not yet gone: give up when its time is over."""
    action_id = answer.ask.action
    action, state = progress.actions[action_id], progress.states[action_id]
    waited = now - state.since
    if answer.ask.kind is Kind.PROBE and not progress.rules.patient:
        return _leave(progress, action_id, answer.text, now)
    if answer.ask.kind is Kind.PROBE and waited >= action.start_s:
        text = f"{answer.ask.node}: not ready in {duration(action.start_s)}: {answer.text}"
        return _fail(progress, action_id, text, now, log=answer.log)
    if answer.ask.kind is Kind.KILL and waited >= action.stop_s + KILL_S:
        text = f"{answer.ask.node}: cannot be proved gone: {answer.text}"
        return _fail(progress, action_id, text, now, log=answer.log)
    return progress


def _leave(progress: Progress, action_id: str, why: str, now: float) -> Progress:
    state = progress.states[action_id]
    assert state.phase is not None
    progress = with_step(progress, Step(action_id, state.phase, "left", why))
    over = replace(state, status="left", phase=None, ended=now, asked=frozenset(), why=why)
    return with_state(progress, action_id, over)


def _drained(progress: Progress, answer: Answer, now: float) -> Progress:
    """Go on when every router has the generation and nobody has a request under way, or when the time is over."""
    action_id = answer.ask.action
    action, state = progress.actions[action_id], progress.states[action_id]
    counts = {**state.in_flight, answer.ask.kind.value: 0 if answer.ended else answer.in_flight}
    behind = answer.behind if answer.ask.kind is Kind.ROUTERS else state.behind
    left = max((count or 0 for count in counts.values()), default=0)
    state = replace(state, in_flight=counts, behind=behind, peak=max(state.peak, left))
    progress = with_state(progress, action_id, state)
    waited = now - state.since
    if behind and waited > progress.rules.router_s:
        return _fail(progress, action_id, f"not loaded what was published: {', '.join(behind)}", now)
    if behind or len(counts) < 1 + bool(old_nodes(action)):
        return progress
    if left and waited < action.drain_s:
        return progress
    return _next_phase(progress, action_id, _drain_words(action, state.peak, left, waited), now)


def _drain_words(action: Action, peak: int, left: int, waited: float) -> str:
    if left:
        return f"{left} of {peak} still in flight after {duration(action.drain_s)}"
    return f"drained ({peak} -> 0 in flight, {duration(waited)})" if peak else "drained (nothing in flight)"


def _next_phase(progress: Progress, action_id: str, text: str, now: float) -> Progress:
    action, state = progress.actions[action_id], progress.states[action_id]
    phase = state.phase
    assert phase is not None
    progress = with_step(
        progress, Step(action_id, phase, "unreachable" if phase is Phase.UNDO and state.silent else "ok", text)
    )
    notes = (*state.notes, text) if text else state.notes
    order = () if phase in _BACKWARD else PHASES[action.op]
    following = order[order.index(phase) + 1 :] if order else ()
    state = replace(state, notes=notes)
    if following:
        return _enter(progress, action_id, state, following[0], now)
    status: Status = state.blamed if phase in _BACKWARD else "done"
    return with_state(progress, action_id, replace(state, status=status, phase=None, ended=now, asked=frozenset()))


def _enter(progress: Progress, action_id: str, state: ActionState, phase: Phase, now: float) -> Progress:
    entered = replace(state, phase=phase, since=now, settled=frozenset(), silent={}, in_flight={}, behind=())
    return with_step(with_state(progress, action_id, entered), Step(action_id, phase))


def _fail(
    progress: Progress,
    action_id: str,
    why: str,
    now: float,
    *,
    blamed: Status = "failed",
    log: tuple[str, ...] = (),
) -> Progress:
    """Journal the failure, then go back as far as is safe: stop what was started, publish again what still serves."""
    action, state = progress.actions[action_id], progress.states[action_id]
    phase = state.phase
    assert phase is not None
    progress = with_step(progress, Step(action_id, phase, blamed, why))
    if phase in _BACKWARD:
        notes = (*state.notes, f"{phase}: {why}")
        over = replace(state, status=state.blamed, phase=None, ended=now, asked=frozenset(), notes=notes)
        return with_state(progress, action_id, over)
    state = replace(state, why=why, log=log, blamed=blamed)
    back = _way_back(action, phase)
    if back is not None:
        return _enter(progress, action_id, state, back, now)
    return with_state(progress, action_id, replace(state, status=blamed, phase=None, ended=now, asked=frozenset()))


def _way_back(action: Action, phase: Phase) -> Phase | None:
    if phase in (Phase.START, Phase.AWAIT_READY) and action.op not in (Op.PUBLISH, Op.ADOPT):
        return Phase.UNDO
    if phase in (Phase.DRAIN, Phase.AWAIT_DRAINED) and action.op is not Op.MOVE:
        return Phase.RESTORE
    return None
