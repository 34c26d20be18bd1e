"""One pass over what is to be placed, each replica to its best spot: scarce kinds first, then big first."""

from collections.abc import Iterable, Sequence

from llmgw.plan.placer.find import find
from llmgw.plan.placer.problem import Demand, Spot
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.state import State

Order = tuple[int, ...]


def biggest_first(state: State, numbers: Iterable[int]) -> list[int]:
    """By priority; within it those with the fewest GPUs to choose from, then the biggest, then by name.

    With sizes that divide each other and every node open to all, largest first into any bin that fits places
    everything that can be placed (Coffman, Garey and Johnson, Bin packing with divisible item sizes, 1987).
    """
    supply: dict[frozenset[int], int] = {}

    def key(number: int) -> Order:
        demand = state.items[number]
        if demand.kinds not in supply:
            supply[demand.kinds] = _supply(state, demand)
        nodes, gpus = demand.shapes[0]
        return (-demand.priority, supply[demand.kinds], -nodes * gpus, -gpus, not demand.one_leaf, number)

    return sorted(numbers, key=key)


def biggest_first_any_kind(state: State, numbers: Iterable[int]) -> list[int]:
    """By priority, then the biggest, then those with the fewest GPUs to choose from."""

    def key(number: int) -> Order:
        demand = state.items[number]
        nodes, gpus = demand.shapes[0]
        return (-demand.priority, -nodes * gpus, -gpus, _supply(state, demand), not demand.one_leaf, number)

    return sorted(numbers, key=key)


def _supply(state: State, demand: Demand) -> int:
    """The GPUs of all open nodes of the demand's kinds."""
    return sum(
        node.gpus
        for node, kind in zip(state.nodes, state.class_of, strict=True)
        if kind >= 0 and node.kind in demand.kinds
    )


def _home(state: State, number: int) -> Spot | None:
    """Where the item ran before a repack took it out, if that is free."""
    home = state.homes.get(number)
    if home is None or any(state.free[node] < home.gpus for node in home.nodes):
        return None
    return home


def insert_all(state: State, numbers: Sequence[int], rng: SplitMix64 | None = None) -> list[int]:
    """Puts the items one after the other where each is best; those that fit nowhere come back."""
    left: list[int] = []
    for number in numbers:
        spot = _home(state, number) or find(state, number, rng)
        if spot:
            state.put(number, spot)
        else:
            left.append(number)
    return left
