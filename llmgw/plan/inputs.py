"""Digests of what a plan was made from, so that apply can tell whether it still holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from llmgw.base import digest
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan.document import FabricInput, Inputs, StateInput
from llmgw.plan.standing import Standing
from llmgw.site import Site

MOST_NAMED = 3000
"""Nodes up to which a plan keeps a digest of each that it touches, so that a refusal can name what changed."""
_SHORT = len("sha256:") + 12


def inputs_of(
    site: Site, fabrics: Mapping[str, Paths], facts: Facts, standing: Standing, *, nodes: Iterable[str]
) -> Inputs:
    """The inputs of a plan whose actions touch `nodes`."""
    touched = sorted(set(nodes))
    places = {name: places_of(paths, touched) for name, paths in sorted(fabrics.items())}
    return Inputs(
        catalogue=site.catalogue_digest(),
        inventory=site.inventory_digest(),
        fabric={
            name: FabricInput(scan=paths.scan, facts=fabric_digest(paths, places[name]))
            for name, paths in sorted(fabrics.items())
        },
        state=StateInput(lineage=standing.lineage, serial=standing.serial),
        observed=observed_digest(facts),
        parts=parts_of(site, places, touched),
    )


def places_of(paths: Paths, nodes: Iterable[str]) -> dict[str, Any]:
    """What a map says of these nodes: leaves, rails, short cables. Not the adapters' GUIDs, nor when it was made."""
    rails: dict[int, str] = {}  # by the identity of what nodes under the same leaves share
    return {name: _place(paths, name, rails) for name in nodes if name in paths.nodes}


def _place(paths: Paths, name: str, rails: dict[int, str]) -> Any:
    path = paths.nodes[name]
    if id(path.rails) not in rails:
        rails[id(path.rails)] = digest(
            [[r.device, r.port, r.leaf, r.rail, r.off_rail, r.rate, r.expected] for r in path.rails]
        )
    domain = paths.domains.get(path.domain)
    return [
        list(domain.leaves) if domain else path.domain,
        path.pod,
        rails[id(path.rails)],
        [[short.node_end, short.switch_end, short.rate, short.expected] for short in path.short],
    ]


def fabric_digest(paths: Paths, places: Mapping[str, Any]) -> str:
    """The digest of what places_of found."""
    return digest([paths.role, dict(places)])


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


def parts_of(site: Site, places: Mapping[str, Mapping[str, Any]], nodes: Iterable[str]) -> dict[str, str]:
    """Short digests by part: the settings, each model, each touched host, each touched node on each map.

    Of more than MOST_NAMED nodes none is named: a refusal then says only which file or map it was.
    """
    touched = set(nodes)
    if len(touched) > MOST_NAMED:
        touched, places = set(), {}
    parts = {"llmgw.yml": _short(site.settings.model_dump(mode="json"))}
    for name, model in site.catalogue.models.items():
        parts[f"model {name}"] = _short(model.model_dump(mode="json"))
    for host in (*site.nodes, *site.routers):
        if host.name in touched:
            parts[f"host {host.name}"] = _short(host.model_dump(mode="json"))
    for fabric, known in places.items():
        parts.update((f"fabric {fabric} {name}", _short(place)) for name, place in known.items())
    return dict(sorted(parts.items()))


def _short(value: Any) -> str:
    return digest(value)[:_SHORT]
