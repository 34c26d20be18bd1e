"""Repack: move as few running replicas as it takes to find places for what has none."""

from llmgw.plan.placer.focus import Focus, focus
from llmgw.plan.placer.problem import SEED, SMALL, Spot
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.ruin import improve
from llmgw.plan.placer.state import State

ROUNDS_SMALL = 3000
ROUNDS_LARGE = 600


def repack(state: State, least: tuple[int, ...], *, moves: int, rounds: int = 0) -> None:
    """Moves at most so many running replicas, and only where more of what is wanted has a place then.

    `rounds` 0: as many as a site of that size is worth.
    """
    if not moves or not state.unplaced:
        return
    small = len(state.nodes) <= SMALL
    chosen = _everything(state) if small else focus(state, running=movable_held(state))
    improve(
        state,
        rounds or (ROUNDS_SMALL if small else ROUNDS_LARGE),
        SplitMix64(SEED),
        least,
        movable=chosen.movable,
        nodes=chosen.nodes,
        most_moves=moves,
    )


def moved(state: State) -> dict[int, Spot]:
    """Of what runs, by its number among the held: where it is now, if that is not where it was."""
    count = len(state.problem.wanted)
    return {
        number - count: spot
        for number, home in state.homes.items()
        if (spot := state.spots[number]) is not None and spot.nodes != home.nodes
    }


def _everything(state: State) -> Focus:
    return Focus((*range(len(state.problem.wanted)), *movable_held(state)), tuple(range(len(state.nodes))))


def movable_held(state: State) -> list[int]:
    """The numbers of what runs and may be moved."""
    return [n for n, held in enumerate(state.problem.held, len(state.problem.wanted)) if held.movable]
