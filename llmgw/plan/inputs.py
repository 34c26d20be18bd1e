"""Digests of what a plan was made from, so that apply can tell whether it still holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from llmgw.base import digest
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan.document import FabricInput, Inputs, StateInput
from llmgw.plan.standing import Standing
from llmgw.site import Site

_SHORT = len("sha256:") + 12


def inputs_of(
    site: Site, fabrics: Mapping[str, Paths], facts: Facts, standing: Standing, *, nodes: Iterable[str]
) -> Inputs:
    """The inputs of a plan whose actions touch `nodes`."""
    touched = sorted(set(nodes))
    return Inputs(
        catalogue=site.catalogue_digest(),
        inventory=site.inventory_digest(),
        fabric={
            name: FabricInput(scan=paths.scan, facts=fabric_digest(paths, touched))
            for name, paths in sorted(fabrics.items())
        },
        state=StateInput(lineage=standing.lineage, serial=standing.serial),
        observed=observed_digest(facts),
        parts=parts_of(site, fabrics, touched),
    )


def fabric_digest(paths: Paths, nodes: Iterable[str]) -> str:
    """What a map says of these nodes: leaves, rails, short cables; nothing of others, and not when it was scanned."""
    return digest([paths.role, {name: _node(paths, name) for name in nodes if name in paths.nodes}])


def _node(paths: Paths, name: str) -> Any:
    path = paths.nodes[name]
    domain = paths.domains.get(path.domain)
    return [list(domain.leaves) if domain else path.domain, path.model_dump(mode="json", exclude={"domain"})]


def observed_digest(facts: Facts) -> str:
    """Who runs what and who is silent; no times, no process numbers."""
    return digest(
        {
            "silent": sorted(facts.silent),
            "runs": {
                name: sorted(
                    [run.replica, run.rank, run.plan, run.action, run.spec, run.state] for run in node.runs
                )
                for name, node in sorted(facts.nodes.items())
                if node.runs
            },
        }
    )


def parts_of(site: Site, fabrics: Mapping[str, Paths], nodes: Iterable[str]) -> dict[str, str]:
    """Short digests by part: the settings, each model, each touched host, each touched node on each map."""
    touched = set(nodes)
    parts = {"llmgw.yml": _short(site.settings.model_dump(mode="json"))}
    for name, model in site.catalogue.models.items():
        parts[f"model {name}"] = _short(model.model_dump(mode="json"))
    for host in (*site.nodes, *site.routers):
        if host.name in touched:
            parts[f"host {host.name}"] = _short(host.model_dump(mode="json"))
    for fabric, paths in fabrics.items():
        for name in touched & paths.nodes.keys():
            parts[f"fabric {fabric} {name}"] = _short(_node(paths, name))
    return dict(sorted(parts.items()))


def _short(value: Any) -> str:
    return digest(value)[:_SHORT]
