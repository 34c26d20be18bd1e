"""The decision: site, fabrics and observations in; a plan out, with a reason for every choice."""

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
from llmgw.plan.standing import Cordon, Standing

__all__ = [
    "Action",
    "Body",
    "Cordon",
    "FabricInput",
    "Incumbent",
    "Inputs",
    "Op",
    "Options",
    "Placement",
    "Plan",
    "Precondition",
    "Seat",
    "Standing",
    "StateInput",
    "Unplaced",
    "plan_id",
]
