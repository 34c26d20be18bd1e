"""From a problem to its answer."""

from llmgw.plan.placer.greedy import biggest_first, insert_all
from llmgw.plan.placer.problem import Answer, Problem
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.ruin import improve
from llmgw.plan.placer.state import State

SMALL = 64
ROUNDS = 1000
SEED = 0x6C6C6D6777


def place(problem: Problem) -> Answer:
    """The best placement that a counted number of steps finds."""
    state = State(problem)
    insert_all(state, biggest_first(state, range(len(problem.wanted))))
    if len(problem.nodes) <= SMALL:
        improve(state, ROUNDS, SplitMix64(SEED))
    return Answer(tuple(state.spots[: len(problem.wanted)]), {}, state.cost())
