"""The moves of the search. Each says where the items that it touched were before, so that it can be undone."""

from collections.abc import Sequence

from llmgw.plan.placer.focus import costs
from llmgw.plan.placer.greedy import biggest_first, insert_all
from llmgw.plan.placer.problem import Spot
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.placer.state import State

_FORCED = 3  # items of one move that may drive others out
_LEAVES_TRIED = 3
_LOOKS = 12  # at so many items for one that costs something
Before = dict[int, Spot | None]


class Moves:
    """Moves of the items `movable`, among the open nodes of `nodes`."""

    def __init__(
        self, state: State, rng: SplitMix64, movable: Sequence[int] | None, nodes: Sequence[int] | None
    ) -> None:
        self.state = state
        self.rng = rng
        self.movable = list(range(len(state.problem.wanted))) if movable is None else list(movable)
        self._may_move = set(self.movable)
        candidates = range(len(state.nodes)) if nodes is None else nodes
        self.open = [number for number in candidates if state.class_of[number] >= 0]
        self.leaves = sorted({state.nodes[number].leaf for number in self.open})
        self._rank = {number: place for place, number in enumerate(biggest_first(state, self.movable))}
        shapes: dict[tuple[int, int], list[int]] = {}
        for number in self.movable:
            shapes.setdefault(state.items[number].shapes[0], []).append(number)
        self.by_shape = [shapes[shape] for shape in sorted(shapes)]

    def some(self) -> Before:
        """One move of a random sort."""
        kind = self.rng.below(8)
        return self.trade() if kind < 3 else self.ruin() if kind < 6 else self.exchange()

    def restore(self, before: Before) -> None:
        """Undoes a move."""
        for number in before:
            if self.state.spots[number]:
                self.state.lift(number)
        for number, spot in before.items():
            if spot:
                self.state.put(number, spot)

    def ruin(self) -> Before:
        """Some items are taken out and put back, most often the biggest first."""
        out = self._choose()
        before = {number: self.state.spots[number] for number in out}
        for number in out:
            if self.state.spots[number]:
                self.state.lift(number)
        self._settle(self._order(out), before)
        return before

    def trade(self) -> Before:
        """One replica goes to nodes elsewhere; what it drives out finds new places, its old one among them."""
        state, rng = self.state, self.rng
        number = self._culprit() if rng.below(2) else self._any_size()
        count, gpus = state.items[number].shapes[0]
        nodes = self._elsewhere(number, count)
        if len(nodes) < count:
            return {}
        before = {number: state.spots[number]}
        if before[number]:
            state.lift(number)
        driven: list[int] = []
        for node in nodes:
            there = [n for n in state.on[node] if n in self._may_move]
            rng.shuffle(there)
            for other in there:
                if state.free[node] >= gpus:
                    break
                before[other] = state.lift(other)
                driven.append(other)
        if all(state.free[node] >= gpus for node in nodes):
            state.put(number, Spot(tuple(sorted(nodes)), gpus, 0))
            number = -1
        self._settle([*([number] if number >= 0 else []), *self._order(driven)], before)
        return before

    def exchange(self) -> Before:
        """Two nodes change places: what is on the one goes to the other, where all of it may and can."""
        state, rng = self.state, self.rng
        spot = state.spots[self._culprit()]
        one = spot.nodes[rng.below(len(spot.nodes))] if spot else self.open[rng.below(len(self.open))]
        other = self.open[rng.below(len(self.open))]
        swapped = {one: other, other: one}
        numbers = sorted({n for node in swapped for n in state.on[node] if n in self._may_move})
        if one == other or not numbers:
            return {}
        before: Before = {n: state.lift(n) for n in numbers}
        for number, old in before.items():
            assert old is not None
            nodes = tuple(sorted(swapped.get(node, node) for node in old.nodes))
            if not self._may(number, nodes, old.gpus):
                self.restore(before)
                return {}
            state.put(number, Spot(nodes, old.gpus, old.shape))
        return before

    def _settle(self, numbers: Sequence[int], before: Before) -> None:
        """Puts the items where each is best. One that fits nowhere drives smaller ones out of some nodes, which are
        then put in their turn; `before` gets where those were."""
        left = insert_all(self.state, numbers, self.rng)
        driven: list[int] = []
        for number in left[:_FORCED]:
            driven += self._force(number, before)
        if driven:
            homeless = dict.fromkeys(n for n in [*left, *self._order(driven)] if self.state.spots[n] is None)
            insert_all(self.state, list(homeless), self.rng)

    def _force(self, number: int, before: Before) -> list[int]:
        """Makes room for an item by taking smaller ones out; those. Empty where no leaf that was tried has enough."""
        state, rng = self.state, self.rng
        count, gpus = state.items[number].shapes[0]
        for _ in range(_LEAVES_TRIED):
            leaf = self._leaf()
            if count > 1 and state.fabric_of[leaf] < 0:
                continue
            able = [node for node in self.open if state.nodes[node].leaf == leaf and self._gives(node, number)]
            if len(able) < count:
                continue
            rng.shuffle(able)
            chosen = able[:count]
            driven: list[int] = []
            for node in chosen:
                for other in [n for n in state.on[node] if self._is_smaller(n, number)]:
                    if state.free[node] >= gpus:
                        break
                    place = state.lift(other)
                    before.setdefault(other, place)
                    driven.append(other)
            state.put(number, Spot(tuple(sorted(chosen)), gpus, 0))
            return driven
        return []

    def _gives(self, node: int, number: int) -> bool:
        """Whether the item would fit on the node if what is smaller there went away."""
        state = self.state
        if state.nodes[node].kind not in state.items[number].kinds:
            return False
        gpus = state.items[number].shapes[0][1]
        room = state.free[node]
        if room < gpus:
            room += sum(state.items[n].shapes[0][1] for n in state.on[node] if self._is_smaller(n, number))
        return room >= gpus and state.room[node] > 0

    def _is_smaller(self, number: int, than: int) -> bool:
        """Whether an item may be moved for the sake of a bigger one."""
        if number not in self._may_move:
            return False
        nodes, gpus = self.state.items[number].shapes[0]
        bigger_nodes, bigger = self.state.items[than].shapes[0]
        return nodes * gpus < bigger_nodes * bigger

    # Choices

    def _may(self, number: int, nodes: tuple[int, ...], gpus: int) -> bool:
        """Whether the hard rules allow the item there now."""
        state, demand = self.state, self.state.items[number]
        of = state.nodes
        if any(of[n].kind not in demand.kinds or state.free[n] < gpus or state.class_of[n] < 0 for n in nodes):
            return False
        if len(nodes) == 1:
            return True
        if demand.one_leaf and len({of[node].leaf for node in nodes}) > 1:
            return False
        return of[nodes[0]].fabric >= 0 and len({of[node].fabric for node in nodes}) == 1

    def _culprit(self) -> int:
        """One of those that the placement costs something for, half the time; else any."""
        rng = self.rng
        number = self.movable[rng.below(len(self.movable))]
        for _ in range(rng.below(2) * _LOOKS):
            if costs(self.state, number):
                break
            number = self.movable[rng.below(len(self.movable))]
        return number

    def _any_size(self) -> int:
        """One of a random shape, so that the few big ones have their turn among the many small ones."""
        members = self.by_shape[self.rng.below(len(self.by_shape))]
        return members[self.rng.below(len(members))]

    def _elsewhere(self, number: int, count: int) -> list[int]:
        """Random nodes of one leaf that the replica may run on and does not; too few where there are too few."""
        state, rng = self.state, self.rng
        spot, demand = state.spots[number], state.items[number]
        here = set(spot.nodes) if spot else set()
        leaf = state.nodes[self.open[rng.below(len(self.open))]].leaf
        if count > 1 and state.fabric_of[leaf] < 0:
            return []
        fit = [
            node
            for node in self.open
            if state.nodes[node].leaf == leaf and node not in here and state.nodes[node].kind in demand.kinds
        ]
        if rng.below(8):
            fit = [node for node in fit if self._yields(node, count)]
        rng.shuffle(fit)
        if rng.below(4):
            fit.sort(key=lambda node: state.nodes[node].short > 0 or state.nodes[node].off_rail)
        return fit[:count]

    def _yields(self, node: int, count: int) -> bool:
        """Whether nothing that can be moved there spans as many nodes as `count` or more."""
        spots = self.state.spots
        for number in self.state.on[node]:
            spot = spots[number]
            if number in self._may_move and spot is not None and len(spot.nodes) >= max(2, count):
                return False
        return True

    def _order(self, out: list[int]) -> list[int]:
        """The biggest first; now and then with a few neighbours exchanged, or in any order."""
        rng = self.rng
        kind = rng.below(4)
        order = sorted(out, key=self._rank.__getitem__)
        if kind == 0:
            rng.shuffle(order)
        elif kind == 1 and len(order) > 1:
            for _ in range(1 + len(order) // 4):
                at = rng.below(len(order) - 1)
                order[at], order[at + 1] = order[at + 1], order[at]
        return order

    def _choose(self) -> list[int]:
        """What to take out: what has no place, and some of one model, of a leaf or two, or any."""
        state, rng = self.state, self.rng
        most = 2 + rng.below(9)
        kind = rng.below(4)
        chosen = [n for n in self.movable if state.spots[n] is None]
        rng.shuffle(chosen)
        chosen = chosen[:most]
        seed = self._culprit()
        if kind == 0:
            pool = [n for n in self.movable if state.items[n].model == state.items[seed].model]
        elif kind == 1:
            pool = self._under({self._leaf(), self._leaf()})
        elif kind == 2:
            spot = state.spots[seed]
            pool = self._under({state.nodes[i].leaf for i in spot.nodes} if spot else {self._leaf()})
        else:
            pool = list(self.movable)
        rng.shuffle(pool)
        return list(dict.fromkeys([*chosen, seed, *pool]))[:most]

    def _leaf(self) -> int:
        return self.leaves[self.rng.below(len(self.leaves))]

    def _under(self, leaves: set[int]) -> list[int]:
        """What has a node under one of these leaves."""
        spots, nodes = self.state.spots, self.state.nodes
        return [
            n
            for n in self.movable
            if (spot := spots[n]) is not None and any(nodes[i].leaf in leaves for i in spot.nodes)
        ]
