"""A placement in the making: who is where, what that costs, and the counters that find room quickly.

Nodes of one kind, one state of cables and one state of waiting are a class. Per class there are: the nodes of
a leaf by the GPUs that they have free, the leaves that own a node with exactly so many free, the leaves by
their whole nodes, and per leaf how many nodes have at least so many free.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

from llmgw.plan.placer.problem import Cost, Demand, Node, Problem, Spot


@dataclass(frozen=True, slots=True)
class NodeClass:
    """What a choice between nodes can depend on. `good`: it counts for the slots of the biggest shape."""

    kind: int
    gpus: int
    short: bool
    off_rail: bool
    waits: bool
    good: bool


class State:
    """Changed by `put` and `lift` only; everything else is read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.nodes = problem.nodes
        self.items: list[Demand] = [*problem.wanted, *(held.demand for held in problem.held)]
        self.spots: list[Spot | None] = [None] * len(self.items)
        self.big_nodes = max(1, problem.big[0])
        self.leaves = max((node.leaf for node in self.nodes), default=-1) + 1
        self.pod_of = [0] * self.leaves
        self.fabric_of = [-1] * self.leaves
        self._alone = [frozenset((leaf,)) for leaf in range(self.leaves)]
        self.raw = [node.free for node in self.nodes]
        self.room = [node.room for node in self.nodes]
        self.free = [free if room > 0 else 0 for free, room in zip(self.raw, self.room, strict=True)]
        self.on: list[list[int]] = [[] for _ in self.nodes]
        self._sort_nodes()
        self._count_nodes()
        self._weigh_demands()
        self._weigh_kinds()
        self.homes = {number: held.spot for number, held in enumerate(problem.held, len(problem.wanted))}
        self.moves = len(self.homes)
        for number, spot in self.homes.items():
            self._seat(number, spot)

    # What is where at the start

    def _sort_nodes(self) -> None:
        big_gpus = self.problem.big[1]
        numbers: dict[NodeClass, int] = {}
        self.class_of = [-1] * len(self.nodes)
        for number, node in enumerate(self.nodes):
            self.pod_of[node.leaf], self.fabric_of[node.leaf] = node.pod, node.fabric
            if node.open and node.gpus > 0:
                kind = _class_of(node, big_gpus)
                self.class_of[number] = numbers.setdefault(kind, len(numbers))
        self.classes = list(numbers)

    def _count_nodes(self) -> None:
        """Fills the counters; a leaf's pair is (good whole nodes, whole nodes)."""
        gpus = [kind.gpus for kind in self.classes]
        self.by_free: list[dict[int, list[list[int]]]] = [{} for _ in gpus]
        self.at_least = [[[0] * self.leaves for _ in range(most + 1)] for most in gpus]
        self.partly: list[list[list[int]]] = [[[] for _ in range(most + 1)] for most in gpus]
        self.wholly: list[dict[tuple[int, int], list[int]]] = [{} for _ in gpus]
        self.good = [0] * self.leaves
        self.whole = [0] * self.leaves
        for number, kind in enumerate(self.class_of):
            if kind >= 0:
                self._enter(number, kind, gpus[kind])
        self.classes_in: list[list[int]] = [[] for _ in range(self.leaves)]
        for kind, by_leaf in enumerate(self.by_free):
            for leaf in sorted(by_leaf):
                self._index_leaf(kind, leaf, by_leaf[leaf])
        self.slots = -sum(count // self.big_nodes for count in self.good)
        self.whole_cost = -sum(self.whole)
        self.apart = -sum(count * count for count in self.whole)

    def _enter(self, number: int, kind: int, most: int) -> None:
        leaf, free = self.nodes[number].leaf, self.free[number]
        lists = self.by_free[kind].get(leaf)
        if lists is None:
            lists = self.by_free[kind][leaf] = [[] for _ in range(most + 1)]
        lists[free].append(number)
        for count in range(1, free + 1):
            self.at_least[kind][count][leaf] += 1
        if free == most:
            self.whole[leaf] += 1
            self.good[leaf] += self.classes[kind].good

    def _index_leaf(self, kind: int, leaf: int, lists: list[list[int]]) -> None:
        self.classes_in[leaf].append(kind)
        for free in range(1, len(lists) - 1):
            if lists[free]:
                self.partly[kind][free].append(leaf)
        if lists[-1]:
            self.wholly[kind].setdefault((self.good[leaf], self.whole[leaf]), []).append(leaf)

    def _weigh_demands(self) -> None:
        wanted = self.problem.wanted
        base = sum(demand.shapes[0][0] * demand.shapes[0][1] for demand in wanted) + 1
        rank = {priority: n for n, priority in enumerate(sorted({demand.priority for demand in wanted}))}
        self.weights = [d.shapes[0][0] * d.shapes[0][1] * base ** rank[d.priority] for d in wanted]
        # What runs is worth more than all that is wanted: no repack leaves it without a place.
        most = base ** len(rank)
        self.weights += [most * held.spot.gpus * len(held.spot.nodes) for held in self.problem.held]
        self.unplaced = sum(self.weights)
        self.shapes = self.pods = self.spans = self.short = self.off_rail = self.waits = 0
        models = max((demand.model for demand in self.items), default=-1) + 1
        self.areas: list[dict[int, frozenset[int]]] = [{} for _ in range(models)]
        self.common: list[frozenset[int]] = [frozenset()] * models
        self.members = [0] * models
        for demand in self.items:
            if demand.spread != "none":
                self.members[demand.model] += 1
        self.exposed = sum(count >= 2 for count in self.members)

    def _weigh_kinds(self) -> None:
        """How many GPUs are asked for on each kind by replicas that cannot run on every kind."""
        kinds = {kind.kind for kind in self.classes}
        self.pressure = dict.fromkeys(sorted(kinds), 0)
        self._classes_for: dict[frozenset[int], list[int]] = {}
        for demand in self.items:
            if not demand.kinds >= kinds:
                for kind in sorted(demand.kinds & kinds):
                    self.pressure[kind] += demand.shapes[0][0] * demand.shapes[0][1]

    # Changes

    def put(self, number: int, spot: Spot) -> None:
        """Places an item that has no place."""
        gpus = spot.gpus
        for node in spot.nodes:
            self.room[node] -= 1
            self.raw[node] -= gpus
            self._set_free(node)
        self._seat(number, spot)

    def lift(self, number: int) -> Spot:
        """Takes an item from its place; that place comes back."""
        spot = self.spots[number]
        assert spot is not None
        self._unseat(number, spot)
        for node in spot.nodes:
            self.room[node] += 1
            self.raw[node] += spot.gpus
            self._set_free(node)
        return spot

    def add(self, demand: Demand) -> int:
        """Adds an item that nobody asked for, a second copy of one say; its number."""
        self.items.append(demand)
        self.spots.append(None)
        self.weights.append(0)
        return len(self.items) - 1

    def set_room(self, node: int, ranks: int) -> None:
        """Lets the node take so many more ranks."""
        self.room[node] = ranks
        self._set_free(node)

    def _seat(self, number: int, spot: Spot) -> None:
        demand = self.items[number]
        self.spots[number] = spot
        for node in spot.nodes:
            insort(self.on[node], number)
        self.unplaced -= self.weights[number]
        self._charge(number, spot, 1)
        if demand.spread != "none":
            model, members = demand.model, self.areas[demand.model]
            area = self.area(demand, spot)
            was = self.is_exposed(model)
            self.common[model] = self.common[model] & area if members else area
            members[number] = area
            self.exposed += self.is_exposed(model) - was

    def _unseat(self, number: int, spot: Spot) -> None:
        demand = self.items[number]
        self.spots[number] = None
        for node in spot.nodes:
            _drop(self.on[node], number)
        self.unplaced += self.weights[number]
        self._charge(number, spot, -1)
        if demand.spread != "none":
            model, members = demand.model, self.areas[demand.model]
            was = self.is_exposed(model)
            del members[number]
            self.common[model] = _shared(members)
            self.exposed += self.is_exposed(model) - was

    def _charge(self, item: int, spot: Spot, sign: int) -> None:
        """Adds (or takes away) what the spot costs by itself. What is at home has not moved and waits for nothing."""
        nodes = self.nodes
        self.shapes += sign * spot.shape
        home = self.homes.get(item)
        if home is not None and home.nodes == spot.nodes:
            self.moves -= sign
        else:
            for number in spot.nodes:
                if nodes[number].freed:
                    self.waits += sign
        if len(spot.nodes) > 1:
            leaves = {nodes[number].leaf for number in spot.nodes}
            self.spans += sign * (len(leaves) - 1)
            self.pods += sign * (len({self.pod_of[leaf] for leaf in leaves}) - 1)
            for number in spot.nodes:
                node = nodes[number]
                self.short += sign * node.short
                if node.off_rail and not node.short:
                    self.off_rail += sign

    def is_exposed(self, model: int) -> bool:
        return self.members[model] >= 2 and (len(self.areas[model]) < 2 or bool(self.common[model]))

    def _set_free(self, number: int) -> None:
        old = self.free[number]
        new = self.raw[number] if self.room[number] > 0 else 0
        if new == old:
            return
        self.free[number] = new
        kind = self.class_of[number]
        if kind < 0:
            return
        leaf = self.nodes[number].leaf
        lists, partly = self.by_free[kind][leaf], self.partly[kind]
        most = len(lists) - 1
        _drop(lists[old], number)
        insort(lists[new], number)
        if 0 < old < most and not lists[old]:
            _drop(partly[old], leaf)
        if 0 < new < most and len(lists[new]) == 1:
            insort(partly[new], leaf)
        counts = self.at_least[kind]
        for count in range(new + 1, old + 1):
            counts[count][leaf] -= 1
        for count in range(old + 1, new + 1):
            counts[count][leaf] += 1
        if old == most:
            self._count_whole(leaf, kind, -1)
        elif new == most:
            self._count_whole(leaf, kind, 1)

    def _count_whole(self, leaf: int, kind: int, step: int) -> None:
        """One node of the class became whole (1) or no longer is (-1): costs and the index by pairs follow."""
        good, whole = self.good[leaf], self.whole[leaf]
        new_good, new_whole = good + step * self.classes[kind].good, whole + step
        for other in self.classes_in[leaf]:
            count = len(self.by_free[other][leaf][-1])
            had = count - step if other == kind else count
            if had:
                before = self.wholly[other][good, whole]
                _drop(before, leaf)
                if not before:
                    del self.wholly[other][good, whole]
            if count:
                insort(self.wholly[other].setdefault((new_good, new_whole), []), leaf)
        self.good[leaf], self.whole[leaf] = new_good, new_whole
        self.slots += good // self.big_nodes - new_good // self.big_nodes
        self.whole_cost -= step
        self.apart += whole * whole - new_whole * new_whole

    # Questions

    def area(self, demand: Demand, spot: Spot) -> frozenset[int]:
        """What the demand's model should not have all its replicas in: the leaves, or the nodes, of the spot."""
        if demand.spread == "node":
            return frozenset(spot.nodes)
        if len(spot.nodes) == 1:
            return self._alone[self.nodes[spot.nodes[0]].leaf]
        return frozenset(self.nodes[number].leaf for number in spot.nodes)

    def classes_for(self, demand: Demand) -> list[int]:
        """The classes of nodes that the demand may run on."""
        found = self._classes_for.get(demand.kinds)
        if found is None:
            found = [number for number, kind in enumerate(self.classes) if kind.kind in demand.kinds]
            self._classes_for[demand.kinds] = found
        return found

    def avoid(self, demand: Demand) -> frozenset[int]:
        """The leaves (nodes) that all placed replicas of the model share, so that one more should be elsewhere."""
        if demand.spread == "none" or self.members[demand.model] < 2:
            return frozenset()
        return self.common[demand.model]

    def cost(self) -> Cost:
        """What the placement costs now."""
        return Cost(
            self.unplaced, self.moves, self.shapes, self.pods, self.spans, self.exposed, self.short, self.off_rail,
            self.slots, self.whole_cost, self.apart, self.waits,
        )  # fmt: skip


def _class_of(node: Node, big_gpus: int) -> NodeClass:
    good = not node.short and node.gpus >= big_gpus
    return NodeClass(node.kind, node.gpus, node.short > 0, node.off_rail, node.freed > 0, good)


def _shared(members: dict[int, frozenset[int]]) -> frozenset[int]:
    shared: frozenset[int] | None = None
    for area in members.values():
        shared = area if shared is None else shared & area
        if not shared:
            break
    return shared or frozenset()


def _drop(numbers: list[int], number: int) -> None:
    del numbers[bisect_left(numbers, number)]
