"""From spots to seats: ranks in order, their GPUs and their TCP ports."""

from collections.abc import Collection, Mapping, Sequence

from llmgw.engines import ENGINES
from llmgw.plan.copies import Copy, seats_of
from llmgw.plan.document import Seat
from llmgw.plan.holdings import holdings
from llmgw.plan.nodes import Ground, SiteNode
from llmgw.plan.placer import Spot
from llmgw.plan.roster import Fate, Member, Roster
from llmgw.plan.seats import GpuDesk, PortDesk, layout_of
from llmgw.plan.task import free_runs, port_users
from llmgw.site import Site


class Seating:
    """Gives seats out one replica after the other; what it has given it does not give again."""

    def __init__(self, site: Site, ground: Ground, roster: Roster) -> None:
        self.site = site
        self.ground = ground
        self._gpus = GpuDesk()
        held = holdings(roster)
        self._freed = held.freed
        self._taken: dict[str, set[int]] = {name: set(gpus) for name, gpus in held.kept.items()}
        self._ports: dict[str, PortDesk] = {}
        self._used = port_users(roster)

    def new(self, member: Member, spot: Spot) -> tuple[Seat, ...]:
        """Seats for a replica that is started at the spot: ranks by leaf and node."""
        nodes = sorted(
            (self.ground.nodes[n] for n in spot.nodes), key=lambda node: (node.leaf, self.ground.number[node.name])
        )
        choices = [
            (self._free(node), layout_of(node.facts.gpus) if node.facts else (), self._late(node))
            for node in nodes
        ]
        chosen = self._gpus.choose_alike(choices, spot.gpus)
        module = ENGINES[self.site.catalogue.models[member.model].profiles[member.profile].engine]
        seats = []
        for rank, (node, gpus) in enumerate(zip(nodes, chosen, strict=True)):
            ports = module.ports_needed(rank, len(nodes))
            self._taken.setdefault(node.name, set()).update(gpus)
            seats.append(Seat(n=node.name, rank=rank, gpus=gpus, port=self._desk(node).take(ports), ports=ports))
        return tuple(seats)

    def again(self, member: Member, copy: Copy) -> tuple[Seat, ...]:
        """Seats for a replica that is started anew where it is: its GPUs, and its ports where they still do."""
        module = ENGINES[self.site.catalogue.models[member.model].profiles[member.profile].engine]
        seats = []
        for old in seats_of(copy, copy.last_runs()):
            ports = module.ports_needed(old.rank, len(copy.nodes))
            inside = self.site.ports(self.ground[old.n].host)
            keeps = ports <= old.ports and old.port in inside and old.port + ports - 1 in inside
            if keeps and member.fate is Fate.AGAIN:  # others may have taken what nobody listened on
                keeps = self._desk(self.ground[old.n]).take_at(old.port, ports)
            port = old.port if keeps else self._desk(self.ground[old.n]).take(ports)
            seats.append(Seat(n=old.n, rank=old.rank, gpus=old.gpus, port=port, ports=ports))
        return tuple(seats)

    def _free(self, node: SiteNode) -> Collection[int]:
        return node.gpus - node.taken.keys() - self._taken.get(node.name, set())

    def _late(self, node: SiteNode) -> Collection[int]:
        return self._freed.get(node.name, frozenset())

    def _desk(self, node: SiteNode) -> PortDesk:
        if node.name not in self._ports:
            rows = free_runs(self.site, node, self._used.get(node.name, frozenset()))
            self._ports[node.name] = PortDesk(rows)
        return self._ports[node.name]


def biggest_first(members: Sequence[Member], spots: Mapping[str, Spot]) -> list[Member]:
    """Members in the order in which seats are given out: big blocks before small ones, so that all are aligned."""
    return sorted(members, key=lambda member: (-spots[member.name].gpus, -len(spots[member.name].nodes)))
