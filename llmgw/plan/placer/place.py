"""From a problem to its answer: several starts, repair, a counted search, and the canonical form."""

from collections.abc import Callable

from llmgw.plan.placer.bound import bound, is_short
from llmgw.plan.placer.canon import canonical
from llmgw.plan.placer.focus import focus
from llmgw.plan.placer.greedy import biggest_first, biggest_first_any_kind, insert_all
from llmgw.plan.placer.plain import best_fit, first_fit, insert_plainly
from llmgw.plan.placer.problem import SEED, SMALL, Answer, Problem
from llmgw.plan.placer.repack import moved, repack
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.ruin import improve
from llmgw.plan.placer.state import State

MIDDLE = 512  # nodes up to which plain first fit and best fit are tried too
ROUNDS = 2000
ROUNDS_EACH = 150  # for each replica that is wanted, while that is fewer
FOCUSED_ROUNDS = 300
CLEAN = 8  # levels of Cost up to the off-rail nodes: where they are good, large sites are not searched


def place(problem: Problem) -> Answer:
    """The best placement that a counted number of steps finds.

    Never worse than plain first fit or plain best fit of the same items in the same order on sites of up to
    MIDDLE nodes; on larger ones those are not looked at.
    """
    state = State(problem)
    least = bound(state)
    state = _started(state)
    if len(problem.nodes) <= SMALL:
        rounds = min(ROUNDS, ROUNDS_EACH * len(problem.wanted))
        improve(state, rounds, SplitMix64(SEED), least)
    elif tuple(state.cost()[:CLEAN]) > least[:CLEAN] and not is_short(problem):
        chosen = focus(state)
        improve(state, FOCUSED_ROUNDS, SplitMix64(SEED), least, movable=chosen.movable, nodes=chosen.nodes)
    repack(state, least, moves=problem.repack)
    gone, spots = moved(state), state.spots[: len(problem.wanted)]
    return Answer(tuple(spots if gone else canonical(problem, spots)), gone, state.cost())


def _started(empty: State) -> State:
    """The best of the starts. `empty` has no wanted item placed."""
    problem = empty.problem
    numbers = range(len(problem.wanted))
    insert_all(empty, biggest_first(empty, numbers))
    best = empty
    if best.unplaced and not (len(problem.nodes) > MIDDLE and is_short(problem)):
        best = _better(best, lambda state: insert_all(state, biggest_first_any_kind(state, numbers)))
    if len(problem.nodes) <= MIDDLE:
        best = _better(best, lambda state: insert_plainly(state, numbers, first_fit))
        best = _better(best, lambda state: insert_plainly(state, numbers, best_fit))
    return best


def _better(best: State, fill: Callable[[State], object]) -> State:
    """The better of `best` and of another start."""
    other = State(best.problem)
    fill(other)
    return other if other.cost() < best.cost() else best
