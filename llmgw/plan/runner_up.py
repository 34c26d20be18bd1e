"""The leaf that came second, for new replicas of which the plan has nothing else to say."""

from dataclasses import replace

from llmgw.plan.board import Board
from llmgw.plan.explain import BETTER, NAME, leaf_rows
from llmgw.plan.placer import Spot
from llmgw.plan.think import Thought

_MOST_NODES = 512
_MOST_REPLICAS = 40
_SILENT = frozenset({"waits"})


def with_runners_up(thought: Thought) -> Thought:
    """The thought with a reason for every new replica; on large sites and in long plans only those it has."""
    if len(thought.ground.nodes) > _MOST_NODES or len(thought.spots) > _MOST_REPLICAS:
        return thought
    mute = [name for name in thought.spots if set(thought.placements[name].why) <= _SILENT]
    if not mute:
        return thought
    board = Board(thought)
    placements = dict(thought.placements)
    for name in mute:
        code = _code(board, name, thought.spots[name])
        if code:
            placements[name] = placements[name].model_copy(update={"why": (*placements[name].why, code)})
    return replace(thought, placements=placements)


def _code(board: Board, name: str, spot: Spot) -> str:
    """The code of the leaf that came second; empty on a site of one leaf."""
    number = board.numbers[name]
    demand = board.state.items[number]
    board.state.lift(number)
    count, gpus = demand.shapes[spot.shape]
    rows = leaf_rows(board, demand, count, gpus, spot)
    board.state.put(number, spot)
    if len(rows) > 1:
        other = rows[1]
        if other.lost_on == NAME or other.lost_on.startswith(BETTER):
            return "first"
        return f"rather:{other.lost_on}:{other.leaf}"
    return "only:leaf" if board.state.leaves > 1 else ""
