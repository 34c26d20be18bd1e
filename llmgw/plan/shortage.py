"""Why a replica has no place, in the words of an admin."""

from collections.abc import Sequence

from llmgw.base import count
from llmgw.engines import complaints
from llmgw.plan.board import Board, Excluded
from llmgw.plan.kinds import Reason
from llmgw.plan.placer import Demand
from llmgw.plan.roster import Member
from llmgw.site import Profile

_SHOWN = 3


def needs_words(profile: Profile) -> str:
    """`2 x 8 GPUs` or `8 GPUs`, shapes in order."""
    shapes = [f"{s.nodes} x {s.gpus} GPUs" if s.nodes > 1 else count(s.gpus, "GPU") for s in profile.shapes]
    return " or ".join(shapes) + (" under one leaf" if profile.topology == "required" and "x" in shapes[0] else "")


def why_not(board: Board, member: Member) -> str:
    """The reason for which the replica has no place: its profile, its nodes, or what is left on them."""
    profile = board.thought.asked.site.catalogue.models[member.model].profiles[member.profile]
    wrong = complaints(profile)
    if wrong:
        return f"it cannot be started: {', '.join(wrong)}"
    demand = board.state.items[board.numbers[member.name]]
    nodes, gpus = demand.shapes[-1]
    excluded = board.excluded(member, demand, gpus)
    able = [one for one in excluded if one.reason in (Reason.BUSY, Reason.PORTS)]
    if len(excluded) == len(board.ground.nodes) and not able:
        return f"no node can run it: {excluded_words(excluded)}"
    if nodes == 1:
        return _single(board, demand, gpus, excluded)
    return _spanning(board, demand, nodes, gpus, excluded)


def excluded_words(excluded: Sequence[Excluded]) -> str:
    """`3 without enough free GPUs, 1 cordoned`, the most frequent first; engines and weights by name."""
    groups: dict[tuple[Reason, str], int] = {}
    for one in excluded:
        named = one.detail if one.reason in _NAMED else ""
        groups[one.reason, named] = groups.get((one.reason, named), 0) + 1
    parts = [
        f"{number} {reason.value}{f' ({named})' if named else ''}"
        for (reason, named), number in sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    ]
    return ", ".join(parts)


_NAMED = frozenset(
    {Reason.ENGINE, Reason.WEIGHTS, Reason.LABELS, Reason.GPU_MODEL, Reason.GPU_MEMORY, Reason.MEMORY_FIT}
)


def _single(board: Board, demand: Demand, gpus: int, excluded: Sequence[Excluded]) -> str:
    best = sorted(
        (-board.state.free[n], n)
        for n, kind in enumerate(board.state.class_of)
        if kind >= 0 and board.state.nodes[n].kind in demand.kinds
    )[:_SHOWN]
    shown = [
        f"{board.ground.nodes[n].name} {-free} free" + (f" ({held})" if (held := board.holders(n)) else "")
        for free, n in best
    ]
    lack = f"no node has {count(gpus, 'free GPU')}"
    others = [one for one in excluded if one.reason is not Reason.BUSY]
    return "; ".join(
        filter(None, (f"{lack}; best: {', '.join(shown)}" if shown else lack, excluded_words(others)))
    )


def _spanning(board: Board, demand: Demand, nodes: int, gpus: int, excluded: Sequence[Excluded]) -> str:
    state = board.state
    fits: dict[int, int] = {}
    near: dict[int, list[str]] = {}
    for number, kind in enumerate(state.class_of):
        node = state.nodes[number]
        if kind < 0 or node.kind not in demand.kinds or node.fabric < 0:
            continue
        free = state.free[number]
        fits[node.leaf] = fits.get(node.leaf, 0) + (free >= gpus)
        if 0 < gpus - free < gpus:
            held = board.holders(number)
            lack = f"{board.ground.nodes[number].name} is {count(gpus - free, 'GPU')} short"
            near.setdefault(node.leaf, []).append(f"{lack}: {held}" if held else lack)
    best = sorted(fits, key=lambda leaf: (-fits[leaf], leaf))[:_SHOWN]
    if not best:
        return f"no node that can run it is on a fabric: {excluded_words(excluded)}"
    shown = [
        f"{board.ground.leaves[leaf]} {fits[leaf]} free" + (f" ({near[leaf][0]})" if leaf in near else "")
        for leaf in best
    ]
    total = sum(fits.values())
    if demand.one_leaf and total >= nodes:
        lack = f"no leaf has {nodes} nodes with {count(gpus, 'free GPU')}"
    elif total >= nodes:
        lack = f"no fabric has {nodes} nodes with {count(gpus, 'free GPU')}"
    else:
        lack = f"{nodes} nodes with {count(gpus, 'free GPU')} wanted, {total} there"
    others = [one for one in excluded if one.reason is not Reason.BUSY]
    return "; ".join(filter(None, (f"{lack}; best: {', '.join(shown)}", excluded_words(others))))
