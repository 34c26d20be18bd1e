"""Putting back a replica that a replacement has ended: as it was started before, on the nodes where it ran."""

from llmgw.base import RefusedError
from llmgw.plan.document import Action, Op, Plan


def revert(plan: Plan, action: Action, before: Plan | None) -> Plan:
    """The plan with `action` turned into a start of the copy that it ended, under the same ids.

    `before` is the plan that had started that copy: its marks name it. RefusedError where that is not remembered, or
    had not started it by itself.
    """
    assert action.ends is not None
    old = next((one for one in before.body.actions if one.id == action.ends.action), None) if before else None
    if old is None or old.starts is None or not old.launches or old.starts.spec != action.ends.spec:
        raise RefusedError(
            f"{action.replica} cannot be put back: how it was started is not remembered "
            f"(plan {action.ends.plan} {action.ends.action})",
            hint="change models.yml back, then: llmgw apply",
        )
    back = Action(
        id=action.id,
        op=Op.START,
        replica=action.replica,
        nodes=old.nodes,
        after=action.after,
        why=f"put back as plan {action.ends.plan} {action.ends.action} had started it",
        starts=old.starts,
        launches=old.launches,
        start_s=old.start_s,
        stop_s=old.stop_s,
        ready=action.ready,
    )
    actions = tuple(back if one.id == action.id else one for one in plan.body.actions)
    return plan.model_copy(update={"body": plan.body.model_copy(update={"actions": actions})})
