"""Why a replica is where it is, or nowhere: what was counted out, the leaves that could have it, and what decided."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmgw.base import UsageError, near
from llmgw.plan.board import Board, Excluded
from llmgw.plan.document import Placement
from llmgw.plan.placer import Demand, Spot, key_of, preferred
from llmgw.plan.roster import Fate, Member
from llmgw.plan.shortage import needs_words, why_not
from llmgw.plan.think import Thought
from llmgw.plan.whatif import would_fit

LEVELS = (
    "pods crossed",
    "leaves crossed",
    "spread",
    "short cables",
    "off-rail nodes",
    "places left for the biggest models",
    "whole nodes left",
    "whole nodes left together",
    "GPUs that are free now",
    "one kind of GPU",
    "kinds that others insist on",
    "tightest fit",
)
"""The levels by which two spots are compared, in their order; after them the lowest name."""
NAME = "lowest name"
BETTER = "would be better on "


@dataclass(frozen=True, slots=True)
class Row:
    """A leaf as a place for the replica, all others where the plan has them.

    `fits`: nodes with enough GPUs free, of which `short` have a short cable. `over`: fitting nodes left over.
    `slots`: places for the biggest shape left in the whole site. `lost_on`: the level on which it loses to the
    chosen one, empty for that.
    """

    leaf: str
    fits: int
    short: int
    over: int
    slots: int
    lost_on: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`rows` are the leaves, the chosen first, then by how near they came. `stays`: it runs and is left alone."""

    replica: str
    needs: str
    nodes: int
    excluded: tuple[Excluded, ...]
    left: int
    big: tuple[int, int]
    rows: tuple[Row, ...]
    decided: str
    placement: Placement | None
    why: str
    stays: bool
    would_fit: tuple[str, ...] = ()


def explain(thought: Thought, replica: str) -> Explanation:
    """The explanation of one replica of the plan. UsageError for one that the plan does not know."""
    members = {member.name: member for member in (*thought.roster.members, *thought.unplaced)}
    if replica not in members:
        close = near(replica, list(members))
        raise UsageError(
            f"the plan has no replica {replica!r}", hint=f"did you mean {' or '.join(close)}?" if close else ""
        )
    member = members[replica]
    board = Board(thought)
    homeless = any(one.name == replica for one in thought.unplaced)
    spot = board.lifted(replica)
    demand = board.state.items[board.numbers[replica]]
    count, gpus = demand.shapes[spot.shape if spot and not homeless else 0]
    excluded = tuple(board.excluded(member, demand, gpus))
    rows = () if homeless else tuple(leaf_rows(board, demand, count, gpus, spot))
    profile = thought.asked.site.catalogue.models[member.model].profiles[member.profile]
    return Explanation(
        replica=replica,
        needs=_needs(member, needs_words(profile), thought),
        nodes=len(board.ground.nodes),
        excluded=excluded,
        left=len(board.ground.nodes) - len(excluded),
        big=thought.task.problem.big,
        rows=rows,
        decided=rows[1].lost_on if len(rows) > 1 else "",
        placement=thought.placements.get(replica),
        why=why_not(board, member) if homeless else member.why,
        stays=member.fate in (Fate.KEEP, Fate.HOLD, Fate.REPLACE),
        would_fit=tuple(would_fit(board, member)) if homeless else (),
    )


def _needs(member: Member, words: str, thought: Thought) -> str:
    """`2 x 8 GPUs (tp 8, pp 2), 80 GB each, one leaf required`."""
    profile = thought.asked.site.catalogue.models[member.model].profiles[member.profile]
    parallel = f" (tp {profile.tensor_parallel}, pp {profile.pipeline_parallel})"
    memory = f", {profile.gpu.memory_gib} GB each" if profile.gpu.memory_gib else ""
    models = f", {' or '.join(profile.gpu.models)}" if profile.gpu.models else ""
    labels = f", labels {' '.join(profile.gpu.labels)}" if profile.gpu.labels else ""
    plain = words.removesuffix(" under one leaf")
    leaf = ", one leaf required" if plain != words else ""
    return f"{plain}{parallel}{memory}{models}{labels}{leaf}"


def leaf_rows(board: Board, demand: Demand, count: int, gpus: int, spot: Spot | None) -> list[Row]:
    """The leaf (or leaves) chosen, then every other leaf that could have it alone."""
    state, ground = board.state, board.ground
    found: list[tuple[tuple[int, ...], tuple[int, ...], str]] = []
    for leaf in range(state.leaves):
        nodes = _best_there(board, demand, leaf, count, gpus)
        if nodes and (count == 1 or state.fabric_of[leaf] >= 0):
            found.append((key_of(state, demand, nodes, gpus), nodes, ground.leaves[leaf]))
    found.sort()
    if spot is None:
        return [_row(board, demand, gpus, nodes, name, None) for _, nodes, name in found]
    own = key_of(state, demand, spot.nodes, spot.gpus)
    leaves = sorted({state.nodes[node].leaf for node in spot.nodes})
    name = ",".join(ground.leaves[leaf] for leaf in leaves)
    rows = [_row(board, demand, gpus, spot.nodes, name, None)]
    return rows + [
        _row(board, demand, gpus, nodes, leaf, _lost_on(own, key))
        for key, nodes, leaf in found
        if leaf != name or len(leaves) > 1
    ]


def _best_there(board: Board, demand: Demand, leaf: int, count: int, gpus: int) -> tuple[int, ...] | None:
    """The nodes of one leaf that the placer would take for the replica."""
    state = board.state
    if count > 1:
        return preferred(state, (leaf,), state.classes_for(demand), count, gpus)
    fit = [
        (key_of(state, demand, (n,), gpus), not (node.short or node.off_rail), n)
        for n, node in enumerate(state.nodes)
        if node.leaf == leaf and state.class_of[n] >= 0 and node.kind in demand.kinds and state.free[n] >= gpus
    ]
    return (min(fit)[-1],) if fit else None


def _lost_on(own: tuple[int, ...], other: tuple[int, ...]) -> str:
    """The first level on which two keys differ; the chosen one may be worse where it was not chosen now."""
    for level, (a, b) in enumerate(zip(own, other, strict=True)):
        if a != b:
            return LEVELS[level] if a < b else f"{BETTER}{LEVELS[level]}"
    return NAME


def _row(board: Board, demand: Demand, gpus: int, nodes: Sequence[int], name: str, lost_on: str | None) -> Row:
    state = board.state
    leaves = {state.nodes[node].leaf for node in nodes}
    fits = [
        n
        for n, node in enumerate(state.nodes)
        if node.leaf in leaves and state.class_of[n] >= 0 and node.kind in demand.kinds and state.free[n] >= gpus
    ]
    number = next(n for n, item in enumerate(state.items) if item is demand)
    state.put(number, Spot(tuple(nodes), gpus))
    slots = -state.slots
    state.lift(number)
    return Row(
        leaf=name,
        fits=len(fits),
        short=sum(state.nodes[n].short > 0 for n in fits),
        over=len(fits) - len(nodes),
        slots=slots,
        lost_on=lost_on or "",
        names=tuple(board.ground.nodes[n].name for n in nodes),
    )
