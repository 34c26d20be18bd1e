"""One map by its keys, and what its ends are called: what comparing and remembering maps have in common."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.fabric.labels import switch_labels
from llmgw.fabric.topology import AdapterItem, LinkItem, SwitchItem, Topology

Port = tuple[str, int]
Ends = tuple[Port, Port]


def ends_of(link: LinkItem) -> Ends:
    """A cable's key."""
    return (link.a.guid, link.a.port), (link.b.guid, link.b.port)


@dataclass(frozen=True, slots=True)
class Side:
    """One map by its keys."""

    switches: Mapping[str, SwitchItem]
    adapters: Mapping[Port, AdapterItem]
    links: Mapping[Ends, LinkItem]
    labels: Mapping[str, str]
    cable_of: Mapping[Port, Ends]

    @classmethod
    def of(cls, topology: Topology) -> "Side":
        links = {ends_of(one): one for one in topology.links}
        return cls(
            {one.guid: one for one in topology.switches},
            {(one.guid, one.port): one for one in topology.adapters},
            links,
            switch_labels({one.guid: one.name for one in topology.switches}),
            {end: ends for ends in links for end in ends},
        )

    def words(self, port: Port) -> str:
        """`leaf-c port 11`, `gpu07 mlx5_2/1`."""
        if label := self.labels.get(port[0]):
            return f"{label} port {port[1]}"
        return self.adapter_words(self.adapters[port]) if port in self.adapters else f"{port[0]} port {port[1]}"

    @staticmethod
    def adapter_words(one: AdapterItem) -> str:
        who = f"{one.node} {one.device}".strip() if one.node else one.description.strip() or one.guid
        return f"{who}/{one.port}"

    def link_words(self, ends: Ends) -> str:
        first, second = sorted(ends, key=lambda port: port not in self.adapters)
        return f"{self.words(first)} - {self.words(second)}"
