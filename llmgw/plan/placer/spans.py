"""Spots for a replica of several nodes: under one leaf, else over few leaves of one pod, else over few pods."""

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import combinations, permutations
from operator import add

from llmgw.plan.placer.problem import Demand
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.state import State

_OVERLOOK = 12
_CLOSE_LOOK = 8  # leaves that are looked at node by node
_SETS = 120  # sets of leaves that are tried for one replica
Key = tuple[int, ...]


def spanning(
    state: State, demand: Demand, count: int, gpus: int, rng: SplitMix64 | None
) -> tuple[int, ...] | None:
    """The nodes, in rising order, of the best spot of `count` nodes; None where there is none."""
    kinds = [kind for kind in state.classes_for(demand) if state.classes[kind].gpus >= gpus]
    room = _room(state, kinds, gpus)
    found = _under_one_leaf(state, demand, kinds, room, count, gpus, rng)
    if found is None and not demand.one_leaf:
        found = _over_leaves(state, demand, kinds, room, count, gpus, rng)
    return found


def _room(state: State, kinds: list[int], gpus: int) -> list[int]:
    """Per leaf, its nodes of these classes with so many GPUs free; 0 for leaves of no fabric."""
    columns = [state.at_least[kind][gpus] for kind in kinds]
    if not columns:
        return [0] * state.leaves
    room = columns[0]
    for column in columns[1:]:
        room = list(map(add, room, column))
    return [n if fabric >= 0 else 0 for n, fabric in zip(room, state.fabric_of, strict=True)]


def _under_one_leaf(
    state: State,
    demand: Demand,
    kinds: list[int],
    room: list[int],
    count: int,
    gpus: int,
    rng: SplitMix64 | None,
) -> tuple[int, ...] | None:
    leaves = [leaf for leaf, n in enumerate(room) if n >= count]
    if rng:
        leaves = [leaf for leaf in leaves if rng.below(_OVERLOOK)] or leaves
    if len(leaves) > _CLOSE_LOOK:
        leaves = _most_promising(state, demand, kinds, leaves, count, gpus)
    options = (
        nodes
        for leaf in leaves
        for choice in _kind_choices(state, kinds)
        if (nodes := preferred(state, (leaf,), choice, count, gpus))
    )
    return _best(state, demand, options, gpus)


def _most_promising(
    state: State, demand: Demand, kinds: list[int], leaves: list[int], count: int, gpus: int
) -> list[int]:
    """The few leaves that a look at their counters alone puts first."""
    avoid = state.avoid(demand) if demand.spread == "leaf" else frozenset()
    clean = [k for k in kinds if not (state.classes[k].short or state.classes[k].off_rail)]
    tidy = _room(state, clean, gpus)
    big, good, whole = state.big_nodes, state.good, state.whole
    columns = [(state.at_least[k][gpus], state.at_least[k][-1]) for k in clean if state.classes[k].gpus > gpus]

    def key(leaf: int) -> Key:
        ready = tidy[leaf]
        dirty = count - ready if ready < count else 0
        used = count - dirty
        for enough, entire in columns:
            used -= enough[leaf] - entire[leaf]
        if used < 0:
            used = 0
        lost = good[leaf] // big - (good[leaf] - used) // big
        return leaf in avoid, dirty, lost, used, used * (2 * whole[leaf] - used), leaf

    return nsmallest(_CLOSE_LOOK, leaves, key=key)


def _kind_choices(state: State, kinds: list[int]) -> list[list[int]]:
    """The classes, kind by kind and then all together, so that one kind can be preferred to a mixture."""
    by_kind: dict[int, list[int]] = {}
    for number in kinds:
        by_kind.setdefault(state.classes[number].kind, []).append(number)
    return [*by_kind.values(), kinds] if len(by_kind) > 1 else [kinds]


def preferred(
    state: State, leaves: Iterable[int], kinds: list[int], count: int, gpus: int
) -> tuple[int, ...] | None:
    """The `count` nodes of these leaves that cost least one by one; None where there are fewer."""
    ranked: list[tuple[Key, list[int]]] = []
    for leaf in leaves:
        for kind in kinds:
            lists = state.by_free[kind].get(leaf)
            if lists:
                details = state.classes[kind]
                for free in range(gpus, details.gpus + 1):
                    if lists[free]:
                        whole = free == details.gpus
                        ranked.append((
                            (details.short, details.off_rail, whole, details.waits,
                             state.pressure[details.kind], free - gpus, leaf, kind),
                            lists[free],
                        ))  # fmt: skip
    ranked.sort(key=lambda item: item[0])
    chosen: list[int] = []
    for _, numbers in ranked:
        chosen.extend(numbers[: count - len(chosen)])
        if len(chosen) == count:
            return tuple(sorted(chosen))
    return None


def _best(state: State, demand: Demand, options: Iterable[tuple[int, ...]], gpus: int) -> tuple[int, ...] | None:
    best: tuple[Key, tuple[int, ...]] | None = None
    for nodes in options:
        key = key_of(state, demand, nodes, gpus)
        if best is None or (key, nodes) < best:
            best = key, nodes
    return best[1] if best else None


def key_of(state: State, demand: Demand, nodes: tuple[int, ...], gpus: int) -> Key:
    """What a replica there costs, by the levels of Cost from `pods` on, then ties. Cables do not matter to one node."""
    of = state.nodes
    spanning_nodes = nodes if len(nodes) > 1 else ()
    leaves = {of[node].leaf for node in nodes}
    avoid = state.avoid(demand)
    shared = bool(avoid.intersection(nodes if demand.spread == "node" else leaves))
    lost = whole_lost = apart = 0
    for leaf in leaves:
        used = used_good = 0
        for node in nodes:
            if of[node].leaf == leaf and state.free[node] == of[node].gpus:
                used += 1
                used_good += state.classes[state.class_of[node]].good
        good, whole = state.good[leaf], state.whole[leaf]
        lost += good // state.big_nodes - (good - used_good) // state.big_nodes
        whole_lost += used
        apart += whole * whole - (whole - used) * (whole - used)
    return (
        len({state.pod_of[leaf] for leaf in leaves}) - 1,
        len(leaves) - 1,
        shared,
        sum(of[node].short for node in spanning_nodes),
        sum(of[node].off_rail and not of[node].short for node in spanning_nodes),
        lost,
        whole_lost,
        apart,
        sum(of[node].freed > 0 for node in nodes),
        len({of[node].kind for node in nodes}),
        sum(state.pressure[of[node].kind] for node in nodes),
        sum(state.free[node] - gpus for node in nodes),
    )


def _over_leaves(
    state: State,
    demand: Demand,
    kinds: list[int],
    room: list[int],
    count: int,
    gpus: int,
    rng: SplitMix64 | None,
) -> tuple[int, ...] | None:
    options = (
        nodes
        for leaves in _leaf_sets(state, room, count, rng)
        for nodes in _fillings(state, leaves, kinds, room, count, gpus)
    )
    return _best(state, demand, options, gpus)


def _leaf_sets(state: State, room: list[int], count: int, rng: SplitMix64 | None) -> Iterator[tuple[int, ...]]:
    """Sets of leaves that hold `count` nodes: of one pod where a pod can, else of the fewest pods of a fabric."""
    by_pod: dict[tuple[int, int], list[int]] = {}
    for leaf, n in enumerate(room):
        if n and not (rng and rng.below(_OVERLOOK) == 0):
            by_pod.setdefault((state.fabric_of[leaf], state.pod_of[leaf]), []).append(leaf)
    for leaves in by_pod.values():
        leaves.sort(key=lambda leaf: (-room[leaf], leaf))
    size = {pod: sum(room[leaf] for leaf in leaves) for pod, leaves in by_pod.items()}
    enough = [pod for pod in by_pod if size[pod] >= count]
    fewest = min((_fewest(by_pod[pod], room, count) for pod in enough), default=0)
    for pod in enough:
        if _fewest(by_pod[pod], room, count) == fewest:
            yield from _sets_of(by_pod[pod], room, count, fewest)
    if not enough:
        for fabric in sorted({fabric for fabric, _ in by_pod}):
            pods = [pod for pod in by_pod if pod[0] == fabric]
            yield from _pod_sets(pods, by_pod, size, room, count)


def _fewest(leaves: list[int], room: list[int], count: int) -> int:
    """How many of the leaves, largest first, hold `count` nodes."""
    for number, leaf in enumerate(leaves, 1):
        count -= room[leaf]
        if count <= 0:
            return number
    return len(leaves) + 1


def _sets_of(leaves: list[int], room: list[int], count: int, fewest: int) -> Iterator[tuple[int, ...]]:
    """Sets of the fewest leaves: the largest with each last one that fits, then others up to a number."""
    head = tuple(leaves[: fewest - 1])
    held = sum(room[leaf] for leaf in head)
    fits = [leaf for leaf in leaves[fewest - 1 :] if held + room[leaf] >= count]
    yield from ((*head, leaf) for leaf in {fits[0], fits[-1], *fits[-6:]} if fits)
    tried = 0
    for chosen in combinations(leaves[:24], fewest):
        if sum(room[leaf] for leaf in chosen) >= count:
            yield chosen
            tried += 1
            if tried >= _SETS:
                return


def _pod_sets(
    pods: list[tuple[int, int]],
    by_pod: dict[tuple[int, int], list[int]],
    size: dict[tuple[int, int], int],
    room: list[int],
    count: int,
) -> Iterator[tuple[int, ...]]:
    """Sets of leaves over the fewest pods of one fabric; nothing where the whole fabric is too small."""
    pods = sorted(pods, key=lambda pod: (-size[pod], pod))
    fewest = next((n for n in range(1, len(pods) + 1) if sum(size[pod] for pod in pods[:n]) >= count), 0)
    if not fewest:
        return
    for number, chosen in enumerate(combinations(pods[:12], fewest)):
        if sum(size[pod] for pod in chosen) >= count:
            leaves = sorted((leaf for pod in chosen for leaf in by_pod[pod]), key=lambda leaf: (-room[leaf], leaf))
            yield from _sets_of(leaves, room, count, _fewest(leaves, room, count))
        if number >= _SETS:
            return


def _fillings(
    state: State, leaves: tuple[int, ...], kinds: list[int], room: list[int], count: int, gpus: int
) -> Iterator[tuple[int, ...]]:
    """Ways to take `count` nodes from the leaves: the best nodes of all, and leaf after leaf in each order."""
    for choice in _kind_choices(state, kinds):
        nodes = preferred(state, leaves, choice, count, gpus)
        if nodes:
            yield nodes
    orders = permutations(leaves) if len(leaves) <= 3 else iter((leaves,))
    for order in orders:
        taken: tuple[int, ...] = ()
        for leaf in order:
            part = preferred(state, (leaf,), kinds, min(room[leaf], count - len(taken)), gpus) or ()
            taken += part
            if len(taken) == count:
                yield tuple(sorted(taken))
                break
