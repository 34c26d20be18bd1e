"""On large sites: which replicas and which leaves a search is worth its time for."""

from collections.abc import Iterable
from dataclasses import dataclass

from llmgw.plan.placer.problem import Demand
from llmgw.plan.placer.state import State

_CULPRITS = 40
_SHAPES = 8
_TARGETS = 3
_ROOMY = 4


@dataclass(frozen=True, slots=True)
class Focus:
    """Items that may be moved and the nodes that they may be moved to."""

    movable: tuple[int, ...]
    nodes: tuple[int, ...]


def focus(state: State, *, running: Iterable[int] = ()) -> Focus:
    """What has no place, crosses leaves, is exposed or uses short cables, with all that is under the same leaves;
    and the leaves that come nearest to having room for what has no place. `running` are the numbers of what runs
    and may be moved as well."""
    wanted = [*range(len(state.problem.wanted)), *running]
    homeless = [n for n in wanted if state.spots[n] is None]
    culprits = [n for n in wanted if state.spots[n] is not None and costs(state, n)]
    leaves: set[int] = set()
    for number in culprits[:_CULPRITS]:
        spot = state.spots[number]
        leaves.update(state.nodes[node].leaf for node in (spot.nodes if spot else ()))
    shapes: dict[object, Demand] = {}
    for number in homeless:
        demand = state.items[number]
        shapes.setdefault((demand.shapes, demand.kinds), demand)
    for demand in list(shapes.values())[:_SHAPES]:
        leaves.update(_nearest(state, demand, frozenset(wanted)))
    leaves.update(_roomiest(state))
    nodes = tuple(n for n, node in enumerate(state.nodes) if node.leaf in leaves and state.class_of[n] >= 0)
    inside = set(nodes)
    movable = tuple(
        n for n in wanted if (spot := state.spots[n]) is None or all(node in inside for node in spot.nodes)
    )
    return Focus(movable, nodes)


def costs(state: State, number: int) -> bool:
    """Whether the item has no place, crosses leaves, uses short or off-rail nodes, or its model is exposed."""
    spot = state.spots[number]
    if spot is None or state.is_exposed(state.items[number].model):
        return True
    if len(spot.nodes) == 1:
        return False
    nodes = [state.nodes[node] for node in spot.nodes]
    return any(n.short or n.off_rail or n.leaf != nodes[0].leaf for n in nodes)


def _nearest(state: State, demand: Demand, movable: frozenset[int]) -> list[int]:
    """The leaves with most nodes that could hold a rank if what is movable there went away."""
    gpus = demand.shapes[0][1]
    able: dict[int, int] = {}
    free: dict[int, int] = {}
    for number, node in enumerate(state.nodes):
        if state.class_of[number] < 0 or node.kind not in demand.kinds:
            continue
        spots = (state.spots[n] for n in state.on[number] if n in movable)
        room = state.free[number] + sum(spot.gpus for spot in spots if spot and len(spot.nodes) == 1)
        able[node.leaf] = able.get(node.leaf, 0) + (room >= gpus)
        free[node.leaf] = free.get(node.leaf, 0) + state.free[number]
    return sorted(able, key=lambda leaf: (-able[leaf], -free[leaf], leaf))[:_TARGETS]


def _roomiest(state: State) -> list[int]:
    """The leaves with most GPUs free."""
    free: dict[int, int] = {}
    for number, node in enumerate(state.nodes):
        if state.class_of[number] >= 0:
            free[node.leaf] = free.get(node.leaf, 0) + state.free[number]
    return sorted(free, key=lambda leaf: (-free[leaf], leaf))[:_ROOMY]
