"""The replicas without a place, each with why and with what would give it one."""

from collections.abc import Sequence

from llmgw.plan.board import Board
from llmgw.plan.document import Unplaced
from llmgw.plan.roster import Member
from llmgw.plan.shortage import needs_words, why_not
from llmgw.plan.think import Thought
from llmgw.plan.whatif import would_fit

_TRIED_OUT = 3  # different wants for which ways out are looked for
_TRIED_OUT_LARGE = 1
_LARGE = 512


def unplaced_of(thought: Thought) -> tuple[Unplaced, ...]:
    """In the order of their names. Replicas that want the same of the same nodes get the same words."""
    if not thought.unplaced:
        return ()
    board = Board(thought)
    most = _TRIED_OUT if len(thought.ground.nodes) <= _LARGE else _TRIED_OUT_LARGE
    whys: dict[object, str] = {}
    ways: dict[object, tuple[str, ...]] = {}
    found = []
    for member in thought.unplaced:
        key = _wants(board, member)
        back = board.lifted(member.name)  # a copy that stays where it is, for want of another place
        if key not in whys:
            whys[key] = why_not(board, member)
        if key not in ways:
            ways[key] = tuple(would_fit(board, member)) if len(ways) < most else ()
        if back is not None:
            board.state.put(board.numbers[member.name], back)
        profile = thought.asked.site.catalogue.models[member.model].profiles[member.profile]
        why = f"{whys[key]}; it stays as it is" if back is not None else whys[key]
        found.append(Unplaced(replica=member.name, needs=needs_words(profile), why=why, would_fit=ways[key]))
    return tuple(found)


def _wants(board: Board, member: Member) -> Sequence[object]:
    demand = board.state.items[board.numbers[member.name]]
    refusals = board.thought.eligibility.refusals(member.model, member.profile)
    priority = board.thought.asked.site.catalogue.models[member.model].priority
    return (
        demand.shapes,
        demand.kinds,
        demand.one_leaf,
        priority,
        tuple(sorted(refusals.items(), key=lambda r: r[0])),
    )
