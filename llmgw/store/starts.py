"""What the journal says of starts: the last of a replica, and all that were begun or proved gone since some time."""

from dataclasses import dataclass
from datetime import datetime

from llmgw.base import moment
from llmgw.plan import Action, Phase
from llmgw.plan.presumed import BegunStart, SinceThen, StartMarks
from llmgw.store.database import State
from llmgw.store.journal import applied


@dataclass(frozen=True, slots=True)
class PastStart:
    """A start of a replica that a plan has made: where, in rank order, and when it was under way."""

    replica: str
    plan: str
    action: str
    nodes: tuple[str, ...]
    begun_at: datetime
    ended_at: datetime | None


def past_start(state: State, replica: str, *, plan: str = "") -> PastStart | None:
    """The last start of a replica that was begun; of the plan whose id begins so, where one is given."""
    rows = state.rows(
        """SELECT plan, action, min(begun_at), max(ended_at), sum(ended_at IS NULL) FROM journal
           WHERE substr(plan, 1, ?) = ? GROUP BY plan, action HAVING sum(phase = 'start') > 0 ORDER BY max(id) DESC""",
        len(plan),
        plan,
    )
    for plan_id, action_id, begun, ended, unended in rows:
        action = _actions(state, plan_id).get(action_id)
        if action is not None and action.replica == replica and action.starts is not None:
            nodes = tuple(seat.n for seat in action.starts.nodes)
            until = None if unended else datetime.fromisoformat(ended)
            return PastStart(replica, plan_id, action_id, nodes, datetime.fromisoformat(begun), until)
    return None


def starts_since(state: State, when: datetime) -> SinceThen:
    """The starts that were begun then or later, whatever became of them, less what was proved gone since.

    Proof is a stop, or the undoing of a failed start, that every node of it has answered.
    """
    rows = state.rows(
        """SELECT plan, action, phase, begun_at, outcome FROM journal
           WHERE begun_at >= ? AND phase IN (?, ?, ?) ORDER BY id""",
        moment(when),
        *(Phase.START.value, Phase.STOP.value, Phase.UNDO.value),
    )
    plans = {plan: _actions(state, plan) for plan in {row[0] for row in rows}}
    begun: dict[StartMarks, BegunStart] = {}
    gone: set[StartMarks] = set()
    for plan, action_id, phase, at, outcome in rows:
        action = plans[plan].get(action_id)
        if action is None:
            continue
        if phase == Phase.START and action.starts:
            begun[plan, action_id] = BegunStart(datetime.fromisoformat(at), action.starts)
            gone.discard((plan, action_id))
            continue
        marks = (plan, action_id) if phase == Phase.UNDO else _ended_by(action)
        if outcome == "ok" and marks:
            begun.pop(marks, None)
            gone.add(marks)
    return SinceThen(begun, frozenset(gone))


def _ended_by(action: Action) -> StartMarks | None:
    return (action.ends.plan, action.ends.action) if action.ends else None


def _actions(state: State, plan: str) -> dict[str, Action]:
    """The actions of an applied plan by their ids; none where it is not remembered."""
    found = applied(state, plan)
    return {action.id: action for action in found.plan.body.actions} if found else {}
