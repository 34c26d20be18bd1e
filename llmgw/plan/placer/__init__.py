"""The placer: a Problem in whole numbers in, an Answer out. Pure, counted, the same on every Python."""

from llmgw.plan.placer.find import find
from llmgw.plan.placer.place import place
from llmgw.plan.placer.problem import PLACER, Answer, Cost, Demand, Held, Node, Problem, Spot
from llmgw.plan.placer.repack import moved, repack
from llmgw.plan.placer.spans import key_of, preferred
from llmgw.plan.placer.state import State

__all__ = [
    "PLACER",
    "Answer",
    "Cost",
    "Demand",
    "Held",
    "Node",
    "Problem",
    "Spot",
    "State",
    "find",
    "key_of",
    "moved",
    "place",
    "preferred",
    "repack",
]
