"""Where an interrupted apply goes on: by what the nodes show, never by what was asked for."""

from collections.abc import Collection, Mapping, Sequence

from llmgw.base import RefusedError
from llmgw.observed import Incarnation
from llmgw.plan.document import Action, Op, Plan
from llmgw.plan.phases import PHASES, Phase


def resumed_phases(plan: Plan, done: Collection[str], seen: Sequence[Incarnation]) -> Mapping[str, Phase | None]:
    """The phase at which each action of the plan goes on; None for those that are done.

    RefusedError where a replica runs that is neither what the action starts nor what it ends: somebody else was here.
    """
    return {action.id: None if action.id in done else _phase(plan, action, seen) for action in plan.body.actions}


def _phase(plan: Plan, action: Action, seen: Sequence[Incarnation]) -> Phase | None:
    alive = [one for one in seen if one.replica == action.replica and _alive(one)]
    new = next((one for one in alive if _is_new(plan, action, one)), None)
    old = next((one for one in alive if action.ends and (one.plan, one.action) == _marks(action)), None)
    strangers = [one for one in alive if one not in (new, old)]
    if strangers and action.starts is not None and set(strangers[0].nodes) & set(action.nodes):
        other = strangers[0]
        raise RefusedError(
            f"{action.replica} runs on {', '.join(other.nodes)} by plan {other.plan} {other.action} as "
            f"{other.spec[7:19]}, not as plan {plan.id} {action.id} has it",
            hint="llmgw plan makes a plan for what runs now",
        )
    if action.op in (Op.START, Op.REPLACE, Op.MOVE):
        return _starting(action, new, old)
    if action.op is Op.STOP and old is None:
        return Phase.WITHDRAW
    return PHASES[action.op][0]


def _is_new(plan: Plan, action: Action, one: Incarnation) -> bool:
    """Whether the copy is what the action starts: by its marks, and run as the action has it."""
    spec = action.starts.spec if action.starts else one.spec
    return (one.plan, one.action, one.spec) == (plan.id, action.id, spec)


def _starting(action: Action, new: Incarnation | None, old: Incarnation | None) -> Phase:
    if new is not None:
        return Phase.AWAIT_READY if new.whole else Phase.START
    return Phase.DRAIN if action.op is Op.REPLACE and old is not None else Phase.START


def _marks(action: Action) -> tuple[str, str]:
    assert action.ends is not None
    return action.ends.plan, action.ends.action


def _alive(one: Incarnation) -> bool:
    """Whether some rank of it may still be there."""
    return bool(one.silent) or any(run.state != "exited" for _, run in one.ranks.values())
