"""Why a new replica goes where it goes, as short codes that a plan carries and its text spells out.

leaf:required   one leaf, as its profile asks       leaf:one        one leaf, though several would do
leaves:3        over three leaves                   pods:2          over two pods
shape:1x8       that shape, an earlier one, does not fit
spread:m/0      m/0 is elsewhere: the model now survives the loss of any leaf (spread-node: of any node)
exposed:leaf-a  all replicas of the model are under leaf-a (on a node)
exact:gpu07     fills the node; exact:leaf-c fills the leaf for replicas of this size
short:gpu07     uses a node with a short cable      idle-short:gpu07  a short cable that does not matter to it
off-rail:gpu07  uses a node with a swapped rail     kinds:2         its nodes have different GPUs
waits           on GPUs that something has to leave first
rather:whole nodes left:leaf-a   leaf-a comes next and loses on that level
only:leaf       no other leaf has room              first           the first of equal places
"""

from collections.abc import Mapping, Sequence

from llmgw.plan.document import Placement
from llmgw.plan.nodes import Ground
from llmgw.plan.placer import Demand, Problem, Spot


class Reasons:
    """Finds the codes in a finished placement. `demands` and `placements` are by replica; what stays is among them."""

    def __init__(
        self,
        ground: Ground,
        problem: Problem,
        placements: Mapping[str, Placement],
        demands: Mapping[str, Demand],
    ) -> None:
        self.ground = ground
        self.problem = problem
        self.demands = demands
        self._left = [len(node.gpus) - len(node.taken) for node in ground.nodes]
        self._of_leaf: dict[int, list[int]] = {}
        for number, node in enumerate(problem.nodes):
            self._of_leaf.setdefault(node.leaf, []).append(number)
        self._areas: dict[int, dict[str, frozenset[int]]] = {}
        for name, placement in placements.items():
            seats = [
                (ground.number[seat.n], len(seat.gpus)) for seat in placement.nodes if seat.n in ground.number
            ]
            for number, gpus in seats:
                self._left[number] -= gpus
            if name in demands and demands[name].spread != "none":
                area = self._area(demands[name], [node for node, _ in seats])
                self._areas.setdefault(demands[name].model, {})[name] = area
        self._common = {
            model: frozenset.intersection(*areas.values()) if len(areas) > 1 else frozenset[int]()
            for model, areas in self._areas.items()
        }

    def codes(self, name: str, spot: Spot) -> tuple[str, ...]:
        """The codes of one new replica."""
        demand = self.demands[name]
        found = []
        if spot.shape:
            found.append("shape:{}x{}".format(*demand.shapes[0]))
        if len(spot.nodes) > 1:
            found += self._spanning(demand, spot)
        found += self._spread(name, demand)
        found += self._fill(spot)
        found += self._cables(spot)
        if any(self.problem.nodes[node].freed for node in spot.nodes):
            found.append("waits")
        return tuple(found)

    def _spanning(self, demand: Demand, spot: Spot) -> list[str]:
        nodes = [self.problem.nodes[node] for node in spot.nodes]
        leaves, pods = {node.leaf for node in nodes}, {node.pod for node in nodes}
        found = []
        if len(leaves) == 1:
            found.append("leaf:required" if demand.one_leaf else "leaf:one")
        else:
            found.append(f"pods:{len(pods)}" if len(pods) > 1 else f"leaves:{len(leaves)}")
        kinds = len({node.kind for node in nodes})
        return [*found, f"kinds:{kinds}"] if kinds > 1 else found

    def _area(self, demand: Demand, nodes: Sequence[int]) -> frozenset[int]:
        if demand.spread == "node":
            return frozenset(nodes)
        return frozenset(self.problem.nodes[node].leaf for node in nodes)

    def _spread(self, name: str, demand: Demand) -> list[str]:
        """Whether the model survives the loss of any one leaf (node), and by which other replica."""
        areas, shared = self._areas.get(demand.model, {}), self._common.get(demand.model)
        if shared:
            place = min(shared)
            where = self.ground.nodes[place].name if demand.spread == "node" else self.ground.leaves[place]
            return [f"exposed:{where}"]
        if len(areas) != 2:
            return []
        other = next(one for one in areas if one != name)
        return [f"{'spread-node' if demand.spread == 'node' else 'spread'}:{other}"]

    def _fill(self, spot: Spot) -> list[str]:
        nodes = self.problem.nodes
        if len(spot.nodes) == 1:
            node = spot.nodes[0]
            partly = nodes[node].gpus > spot.gpus
            return [f"exact:{self.ground.nodes[node].name}"] if partly and self._left[node] == 0 else []
        leaves = {nodes[node].leaf for node in spot.nodes}
        if len(leaves) > 1:
            return []
        leaf = next(iter(leaves))
        rest = any(nodes[n].open and self._left[n] >= spot.gpus for n in self._of_leaf[leaf])
        return [] if rest else [f"exact:{self.ground.leaves[leaf]}"]

    def _cables(self, spot: Spot) -> list[str]:
        found = []
        for number in spot.nodes:
            node, name = self.problem.nodes[number], self.ground.nodes[number].name
            if len(spot.nodes) > 1:
                found += [f"short:{name}"] if node.short else [f"off-rail:{name}"] if node.off_rail else []
            elif node.short and node.gpus == spot.gpus:
                found.append(f"idle-short:{name}")
        return found
