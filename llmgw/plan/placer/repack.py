"""Repack: move as few running replicas as it takes to find places for what has none."""

from llmgw.plan.placer.focus import Focus, focus
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.ruin import improve
from llmgw.plan.placer.state import State

ROUNDS_SMALL = 3000
ROUNDS_LARGE = 600


def repack(state: State, least: tuple[int, ...], *, small: bool, seed: int) -> None:
    """Moves at most problem.repack running replicas, and only where more of what is wanted has a place then."""
    problem = state.problem
    if not problem.repack or not state.unplaced:
        return
    chosen = _everything(state) if small else focus(state, running=movable_held(state))
    improve(
        state,
        ROUNDS_SMALL if small else ROUNDS_LARGE,
        SplitMix64(seed),
        least,
        movable=chosen.movable,
        nodes=chosen.nodes,
        most_moves=problem.repack,
    )


def _everything(state: State) -> Focus:
    return Focus((*range(len(state.problem.wanted)), *movable_held(state)), tuple(range(len(state.nodes))))


def movable_held(state: State) -> list[int]:
    """The numbers of what runs and may be moved."""
    return [n for n, held in enumerate(state.problem.held, len(state.problem.wanted)) if held.movable]
