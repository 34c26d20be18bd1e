"""Ruin and recreate: take a few related replicas out, put them back in another order, keep what is no worse.

The number of rounds is counted, never timed, so that a busy machine plans the same (Schrimpf and others,
Record breaking optimization results using the ruin and recreate principle, 2000).
"""

from llmgw.plan.placer.greedy import biggest_first, insert_all
from llmgw.plan.placer.problem import Cost, Spot
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.state import State


def improve(state: State, rounds: int, rng: SplitMix64, bound: Cost | None = None) -> None:
    """Leaves `state` at the best placement seen in so many rounds; ends early at `bound`."""
    search = _Search(state, rng)
    if not search.movable:
        return
    best = now = state.cost()
    kept = list(state.spots)
    for turn in range(rounds):
        if bound is not None and best <= bound:
            break
        before = search.trade() if rng.below(2) else search.ruin()
        new = state.cost()
        if new <= now or _near(new, now, rng, rounds - turn, rounds):
            now = new
            if now <= best:
                if now < best or rng.below(4) == 0:
                    kept = list(state.spots)
                best = now
        else:
            search.restore(before)
    search.restore({number: spot for number, spot in enumerate(kept) if spot != state.spots[number]})


def _near(new: Cost, now: Cost, rng: SplitMix64, left: int, rounds: int) -> bool:
    if new[:5] > now[:5]:
        return False
    rise = sum(w * max(0, (a - b)) for w, a, b in zip(WEIGHTS, new[5:], now[5:], strict=True))
    heat = HEAT * left // rounds
    return rise <= rng.below(heat + 1)


HEAT = 8
WEIGHTS = (8, 6, 5, 4, 3, 0, 0)


class _Search:
    """The moves; each returns where the items that it touched were before."""

    def __init__(self, state: State, rng: SplitMix64) -> None:
        self.state = state
        self.rng = rng
        self.movable = list(range(len(state.problem.wanted)))
        self.open = [number for number, kind in enumerate(state.class_of) if kind >= 0]

    def restore(self, before: dict[int, Spot | None]) -> None:
        for number in before:
            if self.state.spots[number]:
                self.state.lift(number)
        for number, spot in before.items():
            if spot:
                self.state.put(number, spot)

    def ruin(self) -> dict[int, Spot | None]:
        out = self._choose()
        before = {number: self.state.spots[number] for number in out}
        for number in out:
            if self.state.spots[number]:
                self.state.lift(number)
        insert_all(self.state, self._order(out), self.rng)
        return before

    def trade(self) -> dict[int, Spot | None]:
        """One replica goes to nodes elsewhere; what it drives out finds new places, its old one among them."""
        state, rng = self.state, self.rng
        number = self.movable[rng.below(len(self.movable))]
        demand = state.items[number]
        count, gpus = demand.shapes[0]
        nodes = self._elsewhere(number, count)
        before: dict[int, Spot | None] = {}
        if len(nodes) < count:
            return before
        before[number] = state.spots[number]
        if before[number]:
            state.lift(number)
        driven: list[int] = []
        for node in nodes:
            there = [n for n in state.on[node] if n < len(self.movable)]
            rng.shuffle(there)
            for other in there:
                if state.free[node] >= gpus:
                    break
                before[other] = state.lift(other)
                driven.append(other)
        if all(state.free[node] >= gpus for node in nodes):
            state.put(number, Spot(tuple(sorted(nodes)), gpus, 0))
            left = []
        else:
            left = [number]
        insert_all(state, [*left, *self._order(driven)], rng)
        return before

    def _elsewhere(self, number: int, count: int) -> list[int]:
        """Random nodes of one other leaf that the replica may run on; too few where that leaf has too few."""
        state, rng = self.state, self.rng
        spot, demand = state.spots[number], state.items[number]
        here = set(spot.nodes) if spot else set()
        start = self.open[rng.below(len(self.open))]
        leaf = state.nodes[start].leaf
        if count > 1 and state.fabric_of[leaf] < 0:
            return []
        fit = [
            node
            for node in self.open
            if state.nodes[node].leaf == leaf and node not in here and state.nodes[node].kind in demand.kinds
        ]
        rng.shuffle(fit)
        fit.sort(key=lambda node: state.nodes[node].short > 0 or state.nodes[node].off_rail)
        return fit[:count]

    def _order(self, out: list[int]) -> list[int]:
        rng = self.rng
        kind = rng.below(4)
        order = biggest_first(self.state, out)
        if kind == 0:
            rng.shuffle(order)
        elif kind == 1 and len(order) > 1:
            for _ in range(1 + len(order) // 4):
                at = rng.below(len(order) - 1)
                order[at], order[at + 1] = order[at + 1], order[at]
        return order

    def _choose(self) -> list[int]:
        """What to take out: some of one leaf or two, some of one model, or any."""
        state, rng = self.state, self.rng
        most = 2 + rng.below(9)
        kind = rng.below(4)
        chosen: list[int] = [n for n in self.movable if state.spots[n] is None]
        rng.shuffle(chosen)
        chosen = chosen[:most]
        seed = self.movable[rng.below(len(self.movable))]
        if kind == 0:
            pool = [n for n in self.movable if state.items[n].model == state.items[seed].model]
        elif kind == 1:
            pool = self._under({rng.below(state.leaves), rng.below(state.leaves)})
        elif kind == 2:
            spot = state.spots[seed]
            pool = self._under({state.nodes[i].leaf for i in spot.nodes} if spot else {rng.below(state.leaves)})
        else:
            pool = list(self.movable)
        rng.shuffle(pool)
        for number in [seed, *pool]:
            if len(chosen) >= most:
                break
            if number not in chosen:
                chosen.append(number)
        return chosen

    def _under(self, leaves: set[int]) -> list[int]:
        """What has a node under one of these leaves."""
        spots, nodes = self.state.spots, self.state.nodes
        return [
            n for n in self.movable
            if (spot := spots[n]) is not None and any(nodes[i].leaf in leaves for i in spot.nodes)
        ]  # fmt: skip
