"""Fabric → Paths: what the planner needs of a map, and nothing that changes when nothing changed."""

from collections.abc import Collection
from typing import Literal

from llmgw.base import is_host_name
from llmgw.fabric.fabric import Fabric
from llmgw.fabric.paths import Domain, Paths


def paths(
    fabric: Fabric,
    *,
    name: str,
    role: Literal["compute", "storage"] = "compute",
    scan: int = 0,
    hosts: Collection[str] = (),
) -> Paths:
    """Where each node stands. With `hosts` (the inventory) only those; else all that the map names."""
    wanted = set(hosts)
    placed = {
        node: domain
        for domain in fabric.domains.values()
        for node in domain.nodes
        if (node in wanted if wanted else is_host_name(node))
    }
    return Paths(
        fabric=name,
        role=role,
        complete=fabric.verdict.state == "complete",
        rail_aligned=fabric.rails > 0,
        scan=scan,
        domains={
            one.id: Domain(name=one.name, pod=one.pod, leaves=one.leaves)
            for one in dict.fromkeys(fabric.domains) and fabric.domains.values()
        },
        nodes={node: _path(fabric, node, domain.id, domain.pod) for node, domain in placed.items()},
    )
