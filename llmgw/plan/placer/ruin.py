"""Ruin and recreate: take a few related replicas out, put them back another way, keep what is no worse.

The number of rounds is counted, never timed, so that a busy machine plans the same (Schrimpf and others,
Record breaking optimization results using the ruin and recreate principle, 2000). At first a round that is
slightly worse is kept too, ever less often.
"""

from collections.abc import Sequence

from llmgw.plan.placer.bound import reached
from llmgw.plan.placer.moves import Moves
from llmgw.plan.placer.problem import Cost
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.state import State

HEAT = 24
# What one step up costs in heat: exposed, short, off_rail, slots, whole, apart, waits.
WEIGHTS = (8, 6, 5, 4, 3, 0, 0)
_FIRM = 5  # levels that never get worse: unplaced, moves, shapes, pods, leaves
_POLISH = 60  # rounds that go on after the bound is reached, for the levels that it does not speak of


def improve(
    state: State,
    rounds: int,
    rng: SplitMix64,
    least: tuple[int, ...],
    *,
    movable: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
    most_moves: int = 0,
) -> None:
    """Leaves `state` at the best placement seen in so many rounds.

    Only the items `movable` are touched (all wanted ones where it is None), and goals lie on `nodes` (all open
    ones). Of what runs no more than `most_moves` are moved.
    Ends soon after the cost has reached `least`, or at once where that and everything below is reached.
    """
    moves = Moves(state, rng, movable, nodes)
    if not moves.movable or not moves.open:
        return
    best = now = state.cost()
    kept = {n: state.spots[n] for n in moves.movable}
    left = _POLISH
    for turn in range(rounds):
        if reached(best, least):
            left -= 1
            if left < 0:
                break
        before = moves.some()
        new = state.cost()
        heat = HEAT * (rounds - turn) // rounds
        if new.moves <= most_moves and (new <= now or _bearable(new, now, rng, heat)):
            now = new
            if now < best:
                best = now
                kept = {n: state.spots[n] for n in moves.movable}
        else:
            moves.restore(before)
    moves.restore({n: spot for n, spot in kept.items() if spot != state.spots[n]})


def _bearable(new: Cost, now: Cost, rng: SplitMix64, heat: int) -> bool:
    """Whether a round that made things worse is kept all the same."""
    if new[:_FIRM] > now[:_FIRM]:
        return False
    rise = sum(w * max(0, a - b) for w, a, b in zip(WEIGHTS, new[_FIRM:], now[_FIRM:], strict=True))
    return rise <= rng.below(heat + 1)
