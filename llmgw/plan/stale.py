"""Whether a plan still stands for the site that it is about to be applied to."""

from collections.abc import Collection, Mapping

from llmgw.base import count, natural
from llmgw.fabric import Paths
from llmgw.plan.document import Plan
from llmgw.plan.inputs import MOST_NAMED, fabric_digest, parts_of, places_of
from llmgw.plan.standing import Standing
from llmgw.site import Site


def stale(
    plan: Plan,
    site: Site,
    fabrics: Mapping[str, Paths],
    standing: Standing,
    *,
    consumed: Collection[str] = (),
) -> list[str]:
    """What has changed since the plan was made, in words; empty where it may be applied.

    Of the fabric maps only what they say of the nodes that the plan touches counts, whatever scan it is from.
    What runs on the nodes is not asked here: every action checks that just before it begins.
    """
    inputs = plan.body.inputs
    if inputs.state.lineage != standing.lineage:
        return [
            f"it is a plan for another site: its store is {inputs.state.lineage}, this one is {standing.lineage}"
        ]
    found = []
    if plan.id in consumed:
        found.append(f"plan {plan.id} has been applied already")
    if inputs.state.serial != standing.serial:
        found.append(
            f"something was applied since: the plan is of serial {inputs.state.serial}, "
            f"the store is at {standing.serial}"
        )
    nodes = touched(plan)
    moved = _moved(plan, site, fabrics, nodes)
    if inputs.catalogue != site.catalogue_digest():
        what = [part for part in moved if part == "llmgw.yml" or part.startswith("model ")]
        found.append(f"the catalogue or llmgw.yml has changed: {_named(what)}")
    if inputs.inventory != site.inventory_digest():
        what = [part.removeprefix("host ") for part in moved if part.startswith("host ")]
        others = (
            "hosts that the plan does not touch" if len(nodes) <= MOST_NAMED else "it is a plan for many hosts"
        )
        found.append(f"the inventory has changed: {_named(what) if what else others}")
    return found + _fabrics(plan, fabrics, nodes, moved)


def touched(plan: Plan) -> list[str]:
    """The nodes on which the plan's actions do something."""
    return sorted({name for action in plan.body.actions for name in action.nodes})


def _moved(plan: Plan, site: Site, fabrics: Mapping[str, Paths], nodes: list[str]) -> list[str]:
    """The parts of the inputs that are not as they were, gone or new."""
    places = {name: places_of(paths, nodes) for name, paths in fabrics.items()}
    now, then = parts_of(site, places, nodes), plan.body.inputs.parts
    return natural(part for part in {*now, *then} if now.get(part) != then.get(part))


def _named(what: list[str]) -> str:
    if not what:
        return "its order or a part that has no name"
    return ", ".join(what) if len(what) <= 6 else ", ".join(what[:5]) + f" and {count(len(what) - 5, 'other')}"


def _fabrics(plan: Plan, fabrics: Mapping[str, Paths], nodes: list[str], moved: list[str]) -> list[str]:
    found = []
    then = plan.body.inputs.fabric
    for name in natural({*then, *fabrics}):
        if name not in fabrics:
            found.append(f"there is no map of the fabric {name} any more")
        elif name not in then:
            if any(node in fabrics[name].nodes for node in nodes):
                found.append(f"the fabric {name} was not known when the plan was made")
        elif then[name].facts != fabric_digest(fabrics[name], places_of(fabrics[name], nodes)):
            changed = [part.split(" ", 2)[2] for part in moved if part.startswith(f"fabric {name} ")]
            found.append(f"the fabric {name} is not as it was: " + "; ".join(_cables(fabrics[name], changed)))
    return found


def _cables(paths: Paths, changed: list[str]) -> list[str]:
    """What there is to say of each node of which the map changed: its short cables now, or that it moved."""
    if not changed:
        return ["its part has changed"]
    said = []
    for node in changed[:6]:
        path = paths.nodes.get(node)
        if path is None:
            said.append(f"{node} is not on the map")
        elif path.short:
            short = path.short[0]
            said.append(f"{node}: {short.node_end} - {short.switch_end} now at {short.rate} of {short.expected}")
        else:
            domain = paths.domains.get(path.domain)
            said.append(f"{node} has other cables now, under {domain.name if domain else path.domain}")
    return said + ([f"and {count(len(changed) - 6, 'more node')}"] if len(changed) > 6 else [])
