"""Plain first fit and plain best fit: other starts, so that the answer is never worse than theirs."""

from collections.abc import Callable, Iterable

from llmgw.plan.placer.problem import Demand, Spot
from llmgw.plan.placer.state import State

Rank = Callable[[int, int], tuple[int, ...]]


def first_fit(node: int, left: int) -> tuple[int, ...]:  # noqa: ARG001
    """The lowest node first."""
    return (node,)


def best_fit(node: int, left: int) -> tuple[int, ...]:
    """The node with the fewest GPUs left over first."""
    return left, node


def insert_plainly(state: State, numbers: Iterable[int], rank: Rank) -> None:
    """Puts the items in their order, each on the nodes that come first; where none fit it stays without a place."""
    for number in numbers:
        demand = state.items[number]
        for shape, (count, gpus) in enumerate(demand.shapes):
            nodes = _nodes(state, demand, count, gpus, rank)
            if nodes:
                state.put(number, Spot(nodes, gpus, shape))
                break


def _nodes(state: State, demand: Demand, count: int, gpus: int, rank: Rank) -> tuple[int, ...] | None:
    fit = [
        node
        for node, free in enumerate(state.free)
        if free >= gpus and state.class_of[node] >= 0 and state.nodes[node].kind in demand.kinds
    ]
    fit.sort(key=lambda node: rank(node, state.free[node] - gpus))
    if count == 1:
        return (fit[0],) if fit else None
    groups: dict[int, list[int]] = {}
    for node in fit:
        of = state.nodes[node]
        if of.fabric >= 0:
            groups.setdefault(of.leaf if demand.one_leaf else of.fabric, []).append(node)
    enough = [nodes[:count] for nodes in groups.values() if len(nodes) >= count]
    return tuple(sorted(enough[0])) if enough else None
