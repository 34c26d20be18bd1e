"""Of all placements that differ only by equal nodes, equal leaves or equal replicas, the one with low names first."""

from collections.abc import Hashable, Sequence

from llmgw.plan.placer.problem import Node, Problem, Spot

_TURNS = 4
Spots = list[Spot | None]


def canonical(problem: Problem, spots: Sequence[Spot | None]) -> Spots:
    """The spots of the wanted items, in an equivalent placement of equal cost: the fullest of equal leaves and of
    equal nodes gets the lowest number, the lowest ordinal of equal replicas the lowest nodes."""
    now = list(spots)
    untouched = _untouched(problem)
    leaf_groups, node_groups = _leaf_groups(problem, untouched), _node_groups(problem, untouched)
    twins = _twins(problem)
    for _ in range(_TURNS):
        before = list(now)
        now = _moved(now, _leaf_moves(now, leaf_groups))
        now = _moved(now, _node_moves(now, node_groups))
        _reorder(now, twins)
        if now == before:
            break
    return now


def _untouched(problem: Problem) -> list[bool]:
    """Which nodes hold nothing yet and take something new."""
    held = {node for held in problem.held for node in held.spot.nodes}
    return [node.open and node.free == node.gpus and n not in held for n, node in enumerate(problem.nodes)]


def _alike(node: Node) -> Hashable:
    return node.kind, node.gpus, node.short, node.off_rail, node.freed, node.room


def _node_groups(problem: Problem, untouched: Sequence[bool]) -> list[list[int]]:
    """Nodes of one leaf that nothing tells apart."""
    groups: dict[Hashable, list[int]] = {}
    for number, node in enumerate(problem.nodes):
        if untouched[number]:
            groups.setdefault((node.leaf, _alike(node)), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _leaf_groups(problem: Problem, untouched: Sequence[bool]) -> list[list[list[int]]]:
    """Leaves of one pod whose nodes are alike, each as its nodes in an order that matches the others'."""
    leaves: dict[int, list[int]] = {}
    for number, node in enumerate(problem.nodes):
        leaves.setdefault(node.leaf, []).append(number)
    groups: dict[Hashable, list[list[int]]] = {}
    for leaf in sorted(leaves):
        members = leaves[leaf]
        if all(untouched[number] for number in members):
            members = sorted(members, key=lambda n: (repr(_alike(problem.nodes[n])), n))
            first = problem.nodes[members[0]]
            looks = tuple(_alike(problem.nodes[n]) for n in members)
            groups.setdefault((first.fabric, first.pod, looks), []).append(members)
    return [group for group in groups.values() if len(group) > 1]


def _twins(problem: Problem) -> list[list[int]]:
    """Wanted items that differ by nothing but their ordinal."""
    groups: dict[Hashable, list[int]] = {}
    for number, demand in enumerate(problem.wanted):
        key = demand.model, demand.shapes, demand.kinds, demand.one_leaf, demand.priority, demand.spread
        groups.setdefault(key, []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _contents(spots: Sequence[Spot | None]) -> dict[int, list[tuple[int, int]]]:
    """What is on each node: item and GPUs."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, spot in enumerate(spots):
        if spot:
            for node in spot.nodes:
                found.setdefault(node, []).append((number, spot.gpus))
    return found


def _leaf_moves(spots: Sequence[Spot | None], groups: Sequence[list[list[int]]]) -> dict[int, int]:
    on = _contents(spots)
    moves: dict[int, int] = {}
    for leaves in groups:

        def key(members: list[int]) -> tuple[object, ...]:
            used = sum(gpus for node in members for _, gpus in on.get(node, ()))
            return -used, sorted(n for node in members for n, _ in on.get(node, ())), members

        for source, target in zip(sorted(leaves, key=key), leaves, strict=True):
            moves.update(zip(source, target, strict=True))
    return moves


def _node_moves(spots: Sequence[Spot | None], groups: Sequence[list[int]]) -> dict[int, int]:
    on = _contents(spots)

    def key(node: int) -> tuple[object, ...]:
        return -sum(gpus for _, gpus in on.get(node, ())), on.get(node, []), node

    moves: dict[int, int] = {}
    for group in groups:
        moves.update(zip(sorted(group, key=key), group, strict=True))
    return moves


def _moved(spots: Sequence[Spot | None], moves: dict[int, int]) -> Spots:
    return [
        Spot(tuple(sorted(moves.get(node, node) for node in spot.nodes)), spot.gpus, spot.shape) if spot else None
        for spot in spots
    ]


def _reorder(spots: Spots, twins: Sequence[list[int]]) -> None:
    """Among equal replicas those with a place come first, by their nodes."""
    for group in twins:
        ordered = sorted(
            (spots[number] for number in group), key=lambda spot: (spot is None, spot.nodes if spot else ())
        )
        for number, spot in zip(group, ordered, strict=True):
            spots[number] = spot
