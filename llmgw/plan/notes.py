"""The figures that a plan shows beside its actions: what is left free, what is not used and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmgw.plan.copies import Copy, CopyState
from llmgw.plan.document import Placement
from llmgw.plan.nodes import QUIET, Ground, NodeState, SiteNode
from llmgw.plan.placer import Problem


def notes_of(
    ground: Ground, problem: Problem, placements: Mapping[str, Placement], found: Sequence[Copy], *, drift: int
) -> dict[str, Any]:
    """Counts and names, no floats. `leaves` is per leaf domain [whole, of those with a short cable]."""
    used = _gpus_used(placements)
    open_nodes = [node for node in ground.nodes if node.state is NodeState.OK]
    running = [copy for copy in found if copy.state in (CopyState.RUNNING, CopyState.UNKNOWN, CopyState.BROKEN)]
    whole = [node for node in open_nodes if node.gpus and not used.get(node.name) and not node.taken]
    return {
        "nodes": len(ground.nodes),
        "answered": sum(node.state not in QUIET for node in ground.nodes),
        "replicas": len(running),
        "replica_nodes": len({name for copy in running for name in copy.nodes}),
        "gpus": sum(len(node.gpus) - len(node.taken) for node in open_nodes),
        "free": sum(len(node.gpus - node.taken.keys()) - used.get(node.name, 0) for node in open_nodes),
        "leaves": _by_leaf(ground, whole),
        "slots": _slots(whole, problem.big),
        "big": list(problem.big),
        "closed": [
            [node.name, node.state.value, node.note] for node in ground.nodes if node.state is not NodeState.OK
        ],
        "taken": [[node.name, index, who] for node in open_nodes for index, who in node.taken.items()],
        "short": _short(whole),
        "drift": drift,
    }


def _gpus_used(placements: Mapping[str, Placement]) -> dict[str, int]:
    used: dict[str, int] = {}
    for placement in placements.values():
        for seat in placement.nodes:
            used[seat.n] = used.get(seat.n, 0) + len(seat.gpus)
    return used


def _by_leaf(ground: Ground, whole: list[SiteNode]) -> list[list[Any]]:
    """[leaf, whole nodes with good cables, whole nodes with a short one], for leaves that have any."""
    counts: dict[int, list[int]] = {}
    for node in whole:
        if node.path:
            counts.setdefault(node.leaf, [0, 0])[bool(node.path.short)] += 1
    return [[ground.leaves[leaf], *counts[leaf]] for leaf in sorted(counts)]


def _slots(whole: list[SiteNode], big: tuple[int, int]) -> int:
    """How many more replicas of the biggest shape would fit."""
    good: dict[int, int] = {}
    for node in whole:
        if len(node.gpus) >= big[1] and not (node.path and node.path.short):
            good[node.leaf] = good.get(node.leaf, 0) + 1
    return sum(count // big[0] for count in good.values())


def _short(whole: list[SiteNode]) -> list[list[str]]:
    """Whole nodes that stay for one-node replicas, with the cable that is the reason."""
    return [
        [node.name, f"{cable.node_end} - {cable.switch_end} trained {cable.rate} of {cable.expected}"]
        for node in whole
        if node.path
        for cable in node.path.short[:1]
    ]
