"""The decision: site, fabrics and observations in; a plan out, with a reason for every choice."""

from typing import TYPE_CHECKING

from llmgw.base.later import words_of

if TYPE_CHECKING:
    from llmgw.plan.document import (
        Action,
        Body,
        FabricInput,
        Incumbent,
        Inputs,
        Op,
        Options,
        Placement,
        Plan,
        Precondition,
        Seat,
        StateInput,
        Unplaced,
        plan_id,
    )
    from llmgw.plan.make import make_plan
    from llmgw.plan.phases import PHASES, Answer, Ask, Kind, Phase
    from llmgw.plan.progress import ActionState, Progress, Rules, begin, stop_starting, take_steps
    from llmgw.plan.spec import Change, Spec
    from llmgw.plan.standing import Cordon, Published, Standing
else:
    __getattr__ = words_of(
        __name__,
        {
            "document": (
                "Action Body FabricInput Incumbent Inputs Op Options Placement Plan Precondition Seat "
                "StateInput Unplaced plan_id"
            ),
            "make": "make_plan",
            "phases": "PHASES Answer Ask Kind Phase",
            "progress": "ActionState Progress Rules begin stop_starting take_steps",
            "spec": "Change Spec",
            "standing": "Cordon Published Standing",
        },
    )

__all__ = [
    "PHASES",
    "Action",
    "ActionState",
    "Answer",
    "Ask",
    "Body",
    "Change",
    "Cordon",
    "FabricInput",
    "Incumbent",
    "Inputs",
    "Kind",
    "Op",
    "Options",
    "Phase",
    "Placement",
    "Plan",
    "Precondition",
    "Progress",
    "Published",
    "Rules",
    "Seat",
    "Spec",
    "Standing",
    "StateInput",
    "Unplaced",
    "begin",
    "make_plan",
    "plan_id",
    "stop_starting",
    "take_steps",
]
