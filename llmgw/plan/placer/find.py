"""The best spot for one more replica, given where all others are.

A candidate's key lists the levels of Cost that it can change, in their order, then what settles ties: nodes
free now, kinds that nobody else insists on, the tightest fit, a short or off-rail node for a one-node replica
(its cables do not matter there), the lowest number. With a generator the search now and then overlooks a
candidate, so that a second try finds another way.
"""

from llmgw.plan.placer.problem import Demand, Spot
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.spans import spanning
from llmgw.plan.placer.state import State

_OVERLOOK = 12  # one candidate in so many
Key = tuple[int, ...]


def find(state: State, number: int, rng: SplitMix64 | None = None) -> Spot | None:
    """The best spot for the item by the first of its shapes that fits anywhere; None where none does."""
    demand = state.items[number]
    for shape, (nodes, gpus) in enumerate(demand.shapes):
        found = _single(state, demand, gpus, rng) if nodes == 1 else spanning(state, demand, nodes, gpus, rng)
        if found:
            return Spot(found, gpus, shape)
    return None


def _single(state: State, demand: Demand, gpus: int, rng: SplitMix64 | None) -> tuple[int, ...] | None:
    best = _part(state, demand, gpus, rng)
    if best is None or best[0]:
        whole = _whole(state, demand, gpus, rng)
        if whole is not None and (best is None or whole < best):
            best = whole
    return (best[-1],) if best else None


def _part(state: State, demand: Demand, gpus: int, rng: SplitMix64 | None) -> Key | None:
    """Of nodes that are in use already and have enough left: nothing is lost there but GPUs."""
    avoid, by_node = state.avoid(demand), demand.spread == "node"
    best: Key | None = None
    for kind in state.classes_for(demand):
        details, partly, by_free = state.classes[kind], state.partly[kind], state.by_free[kind]
        for free in range(gpus, details.gpus):
            if not partly[free]:
                continue
            for shared, node in _two(partly[free], by_free, free, avoid, by_node):
                key = (
                    shared, 0, 0, 0, details.waits, state.pressure[details.kind], free - gpus,
                    not (details.short or details.off_rail), node,
                )  # fmt: skip
                if (best is None or key < best) and not (rng and rng.below(_OVERLOOK) == 0):
                    best = key
    return best


def _whole(state: State, demand: Demand, gpus: int, rng: SplitMix64 | None) -> Key | None:
    """Of whole nodes, by what their leaf loses with them."""
    avoid, by_node, big = state.avoid(demand), demand.spread == "node", state.big_nodes
    best: Key | None = None
    for kind in state.classes_for(demand):
        details, by_free = state.classes[kind], state.by_free[kind]
        if details.gpus < gpus:
            continue
        rest = (
            details.waits, state.pressure[details.kind], details.gpus - gpus,
            not (details.short or details.off_rail),
        )  # fmt: skip
        for (good, whole), leaves in state.wholly[kind].items():
            lost = good // big - (good - details.good) // big
            if best is not None and (False, lost, 1, 2 * whole - 1) > best:
                continue
            for shared, node in _two(leaves, by_free, -1, avoid, by_node):
                key = (shared, lost, 1, 2 * whole - 1, *rest, node)
                if (best is None or key < best) and not (rng and rng.below(_OVERLOOK) == 0):
                    best = key
    return best


def _two(
    leaves: list[int],
    by_free: dict[int, list[list[int]]],
    free: int,
    avoid: frozenset[int],
    by_node: bool,  # noqa: FBT001
) -> list[tuple[bool, int]]:
    """The first node of these leaves that is outside `avoid`, and the first of all where that is inside."""
    found: list[tuple[bool, int]] = []
    for leaf in leaves:
        for node in by_free[leaf][free]:
            shared = (node if by_node else leaf) in avoid
            if not found or not shared:
                found.append((shared, node))
            if not shared:
                return found
            if not by_node:
                break
    return found
