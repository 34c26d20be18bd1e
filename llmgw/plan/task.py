"""From the roster to the placer's problem, and from its answer to the spots of replicas by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from llmgw.engines import ENGINES
from llmgw.plan.holdings import NONE, STAYS, holdings, runs_of
from llmgw.plan.kinds import Eligibility
from llmgw.plan.nodes import Ground, NodeState, SiteNode
from llmgw.plan.placer import Demand, Held, Node, Problem, Spot
from llmgw.plan.roster import Fate, Member, Roster
from llmgw.site import Catalogue, Site, Spread


@dataclass(frozen=True, slots=True)
class Task:
    """The problem, and whose the placer's numbers are: `wanted` and `held` are members in its order."""

    problem: Problem
    wanted: tuple[Member, ...]
    held: tuple[Member, ...]


def make_task(site: Site, ground: Ground, roster: Roster, eligibility: Eligibility, *, repack: int) -> Task:
    """What the placer is asked: START and ELSEWHERE members, around those that stay where they are."""
    held = [member for member in roster.members if member.copy and member.fate in STAYS]
    wanted = [member for member in roster.members if member.fate not in STAYS]
    models = {name: number for number, name in enumerate(sorted({member.model for member in roster.members}))}
    problem = Problem(
        nodes=_nodes(site, ground, roster, eligibility),
        wanted=tuple(_demand(site.catalogue, member, models, eligibility) for member in wanted),
        held=tuple(_held(site.catalogue, ground, member, models, eligibility) for member in held),
        big=_biggest(site.catalogue),
        repack=repack,
    )
    return Task(problem, tuple(wanted), tuple(held))


def port_users(roster: Roster) -> dict[str, frozenset[int]]:
    """The TCP ports, by node, that runs of llmgw have: those of copies that stay and of those that are to end."""
    found: dict[str, set[int]] = {}
    copies = [member.copy for member in roster.members if member.copy]
    for copy in [*copies, *roster.bystanders, *(ending.copy for ending in roster.endings)]:
        for name, run in copy.runs():
            if run.port is not None:
                found.setdefault(name, set()).update(range(run.port, run.port + run.ports))
    return {name: frozenset(ports) for name, ports in found.items()}


def _most_ports(catalogue: Catalogue) -> int:
    """The longest row of ports that any rank of the catalogue takes."""
    return max(
        (
            ENGINES[profile.engine].ports_needed(rank, shape.nodes)
            for model in catalogue.models.values()
            for profile in model.profiles.values()
            for shape in profile.shapes
            for rank in (0, 1)
        ),
        default=1,
    )


def free_runs(site: Site, node: SiteNode, used: frozenset[int]) -> list[tuple[int, int]]:
    """First port and length of each row of the node's ports that nobody listens on or has."""
    ports = site.ports(node.host)
    busy = used | (frozenset(node.facts.listen_ports) if node.facts else NONE)
    rows, first = [], ports.first
    for port in sorted(port for port in busy if port in ports):
        if port > first:
            rows.append((first, port - first))
        first = port + 1
    return [*rows, (first, ports.last + 1 - first)] if first <= ports.last else rows


def _nodes(site: Site, ground: Ground, roster: Roster, eligibility: Eligibility) -> tuple[Node, ...]:
    """The placer's nodes, in the ground's order. Fabrics are numbered by name."""
    most = _most_ports(site.catalogue)
    ports, held = port_users(roster), holdings(roster)
    names = sorted({node.fabric for node in ground.nodes if node.fabric})
    fabrics = {name: number for number, name in enumerate(names)}
    found = []
    for number, node in enumerate(ground.nodes):
        kind = eligibility.kinds.of[number]
        free = node.gpus - held.kept.get(node.name, NONE) - node.taken.keys()
        rows = free_runs(site, node, ports.get(node.name, NONE))
        found.append(
            Node(
                kind=kind,
                gpus=len(node.gpus),
                free=len(free),
                leaf=node.leaf,
                pod=node.pod,
                fabric=fabrics.get(node.fabric or "", -1),
                short=len(node.path.short) if node.path else 0,
                off_rail=node.path.off_rail if node.path else False,
                open=node.state is NodeState.OK and kind >= 0,
                freed=len(free & held.freed.get(node.name, NONE)),
                room=sum(length // most for _, length in rows),
            )
        )
    return tuple(found)


def _demand(catalogue: Catalogue, member: Member, models: Mapping[str, int], eligibility: Eligibility) -> Demand:
    model = catalogue.models[member.model]
    profile = model.profiles[member.profile]
    return Demand(
        model=models[member.model],
        ordinal=member.ordinal,
        shapes=tuple((shape.nodes, shape.gpus) for shape in profile.shapes),
        kinds=eligibility.eligible(member.model, member.profile),
        one_leaf=profile.topology == "required",
        priority=model.priority,
        spread=_SPREAD[profile.spread],
    )


_SPREAD: dict[Spread, Literal["leaf", "node", "none"]] = {
    Spread.LEAF: "leaf",
    Spread.NODE: "node",
    Spread.NONE: "none",
}


def _held(
    catalogue: Catalogue, ground: Ground, member: Member, models: Mapping[str, int], eligibility: Eligibility
) -> Held:
    copy = member.copy
    assert copy is not None
    runs = runs_of(member)  # a rank that has ended holds nothing, unless its GPUs are to be had again
    names = {name for name, _ in runs} or set(copy.nodes)
    numbers = tuple(sorted(ground.number[name] for name in names if name in ground.number))
    counts = [len(run.gpus) for _, run in runs]
    gpus = max(counts, default=0)
    demand = _demand(catalogue, member, models, eligibility)
    shape = (len(copy.nodes), gpus)
    place = demand.shapes.index(shape) if shape in demand.shapes else 0
    movable = member.fate is Fate.KEEP and counts == [gpus] * len(copy.nodes) and shape in demand.shapes
    return Held(demand, Spot(numbers, gpus, place), movable=movable)


def _biggest(catalogue: Catalogue) -> tuple[int, int]:
    """The biggest shape of the catalogue, wanted now or not: most nodes, then most GPUs on each."""
    shapes = (
        (shape.nodes, shape.gpus)
        for model in catalogue.models.values()
        for profile in model.profiles.values()
        for shape in profile.shapes
    )
    return max(shapes, default=(1, 1))
