"""What no placement can beat, by arithmetic alone: where the search may stop, and where it need not begin."""

from llmgw.plan.placer.problem import Cost, Demand, Problem
from llmgw.plan.placer.state import State

LEVELS = 10
"""The levels of Cost that the bound speaks of: all up to the whole nodes."""


def is_short(problem: Problem) -> bool:
    """Whether the free GPUs of some set of kinds are fewer than what only those kinds may take."""
    supply: dict[int, int] = {}
    for node in problem.nodes:
        if node.open and node.room > 0:
            supply[node.kind] = supply.get(node.kind, 0) + node.free
    asked: dict[frozenset[int], int] = {}
    for demand in problem.wanted:
        asked[demand.kinds] = asked.get(demand.kinds, 0) + _size(demand)
    return any(
        sum(size for inner, size in asked.items() if inner <= kinds) > sum(supply.get(kind, 0) for kind in kinds)
        for kinds in asked
    )


def bound(state: State) -> tuple[int, ...]:
    """Of a state in which nothing wanted has a place yet: the least value of each of the first LEVELS levels."""
    problem = state.problem
    wanted = sum(_size(demand) for demand in problem.wanted)
    opened = _whole_needed(state, wanted)
    good = max(0, sum(state.good) - max(0, opened - (sum(state.whole) - sum(state.good))))
    return (
        0,
        state.moves,
        state.shapes,
        state.pods,
        state.spans,
        _exposed_anyway(state),
        state.short,
        state.off_rail,
        -min(-state.slots, good // state.big_nodes),
        -max(0, sum(state.whole) - opened),
    )


def _size(demand: Demand) -> int:
    return demand.shapes[0][0] * demand.shapes[0][1]


def _whole_needed(state: State, wanted: int) -> int:
    """The fewest whole nodes that have to be broken up to hold so many GPUs."""
    partial = 0
    most = 1
    for number, kind in enumerate(state.class_of):
        if kind >= 0:
            gpus = state.nodes[number].gpus
            most = max(most, gpus)
            if state.free[number] < gpus:
                partial += state.free[number]
    return max(0, -(-(wanted - partial) // most))


def _exposed_anyway(state: State) -> int:
    """Models of two or more replicas all of which have to share one leaf."""
    leaves_of_kind: dict[int, set[int]] = {}
    for number, kind in enumerate(state.class_of):
        if kind >= 0:
            leaves_of_kind.setdefault(state.nodes[number].kind, set()).add(state.nodes[number].leaf)
    reach: dict[int, set[int]] = {}
    free_of_it: set[int] = set()
    for demand in state.items:
        if demand.spread == "node":
            free_of_it.add(demand.model)
        where = reach.setdefault(demand.model, set())
        for kind in demand.kinds:
            where |= leaves_of_kind.get(kind, set())
    for model, members in enumerate(state.areas):
        for area in members.values():
            reach.setdefault(model, set()).update(area)
    return sum(
        state.members[model] >= 2 and len(where) < 2 and model not in free_of_it for model, where in reach.items()
    )


def reached(cost: Cost, least: tuple[int, ...]) -> bool:
    """Whether the first levels are as good as they can be."""
    return tuple(cost[:LEVELS]) <= least
