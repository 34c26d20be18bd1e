"""Fabric → Paths: what the planner needs of a map, and nothing that changes when nothing changed."""

from collections.abc import Collection
from typing import Literal

from llmgw.base import is_host_name
from llmgw.fabric.fabric import Adapter, Fabric
from llmgw.fabric.findings import end_words
from llmgw.fabric.paths import Domain, NodePath, Paths, Rail, ShortCable
from llmgw.fabric.rates import gbps


def paths(
    fabric: Fabric,
    *,
    name: str,
    role: Literal["compute", "storage"] = "compute",
    scan: int = 0,
    hosts: Collection[str] = (),
) -> Paths:
    """Where each node stands: those of `hosts` (the inventory) where given, else all that the map names.

    Domains without such a node are left out, those without a leaf (adapters cabled to each other) too.
    """
    wanted = frozenset(hosts)
    domains: dict[str, Domain] = {}
    nodes: dict[str, NodePath] = {}
    for domain in fabric.domains.values():
        own = [node for node in domain.nodes if (node in wanted if wanted else is_host_name(node))]
        if own and domain.leaves:
            domains[domain.id] = Domain(name=domain.name, pod=domain.pod, leaves=domain.leaves)
            nodes |= {node: _node_path(fabric, node, domain=domain.id, pod=domain.pod) for node in own}
    return Paths(
        fabric=name,
        role=role,
        complete=fabric.verdict.state == "complete",
        rail_aligned=fabric.rails > 0,
        scan=scan,
        domains=domains,
        nodes=nodes,
    )


def _node_path(fabric: Fabric, node: str, *, domain: str, pod: str) -> NodePath:
    own = [adapter for adapter in fabric.nodes[node] if adapter.leaf]
    return NodePath(
        domain=domain,
        pod=pod,
        rails=tuple(_rail(adapter) for adapter in own),
        short=tuple(_short(fabric, adapter) for adapter in own if is_short(adapter)),
        off_rail=any(adapter.off_rail for adapter in own),
    )


def is_short(adapter: Adapter) -> bool:
    """Whether the adapter's cable trained below what its kind runs at."""
    return (gbps(adapter.rate) or 0.0) < (gbps(adapter.expected) or 0.0)


def _rail(adapter: Adapter) -> Rail:
    return Rail(
        device=adapter.device,
        port=adapter.port,
        guid=adapter.guid,
        leaf=adapter.leaf,
        rail=adapter.rail,
        off_rail=adapter.off_rail,
        rate=adapter.rate,
        expected=adapter.expected,
        pci=adapter.pci,
    )


def _short(fabric: Fabric, adapter: Adapter) -> ShortCable:
    return ShortCable(
        node_end=adapter.label,
        switch_end=end_words(fabric, adapter.leaf, adapter.leaf_port),
        rate=adapter.rate,
        expected=adapter.expected,
    )
