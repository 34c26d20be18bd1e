"""From the roster to the placer's problem, and from its answer to the spots of replicas by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmgw.engines import ENGINES
from llmgw.plan.copies import Copy
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


@dataclass(frozen=True, slots=True)
class Holdings:
    """GPUs by node: `kept` are held by copies that stay, `freed` by copies that this plan ends or moves."""

    kept: Mapping[str, frozenset[int]]
    freed: Mapping[str, frozenset[int]]


_STAYS = (Fate.KEEP, Fate.HOLD, Fate.REPLACE, Fate.AGAIN)


def holdings(roster: Roster) -> Holdings:
    """What runs of llmgw hold. Copies that the operator's scope leaves alone stay."""
    staying = [member.copy for member in roster.members if member.copy and member.fate in _STAYS]
    again = [member.copy for member in roster.members if member.copy and member.fate is Fate.AGAIN]
    leaving = [member.copy for member in roster.members if member.copy and member.fate is Fate.ELSEWHERE]
    kept = _gpus([*staying, *roster.bystanders])
    for copy in again:
        for name, run in copy.last_runs():
            kept[name] = kept.get(name, _NONE) | frozenset(run.gpus)
    return Holdings(kept, _gpus([*leaving, *(ending.copy for ending in roster.endings)]))


def settle_again(ground: Ground, roster: Roster) -> Roster:
    """The roster in which only those start again where they were whose GPUs there nobody holds, or is to have."""
    claimed = {name: set(gpus) for name, gpus in holdings(_without_again(roster)).kept.items()}
    for name, gpus in holdings(roster).freed.items():
        claimed.setdefault(name, set()).update(gpus)
    members = []
    for member in roster.members:
        if member.fate is Fate.AGAIN and member.copy:
            places = [(name, run.gpus) for name, run in member.copy.last_runs()]
            free = all(
                set(gpus) <= ground[name].gpus - ground[name].taken.keys() - claimed.get(name, set())
                for name, gpus in places
            )
            if not free:
                members.append(replace(member, fate=Fate.START))
                continue
            for name, own in places:
                claimed.setdefault(name, set()).update(own)
        members.append(member)
    return replace(roster, members=tuple(members))


def _without_again(roster: Roster) -> Roster:
    return replace(roster, members=tuple(m for m in roster.members if m.fate is not Fate.AGAIN))


def make_task(site: Site, ground: Ground, roster: Roster, eligibility: Eligibility, *, repack: int) -> Task:
    """What the placer is asked: START and ELSEWHERE members, around those that stay where they are."""
    held = [member for member in roster.members if member.copy and member.fate in _STAYS]
    wanted = [member for member in roster.members if member.fate not in _STAYS]
    models = {name: number for number, name in enumerate(sorted({member.model for member in roster.members}))}
    problem = Problem(
        nodes=_nodes(site, ground, roster, eligibility),
        wanted=tuple(_demand(site.catalogue, member, models, eligibility) for member in wanted),
        held=tuple(_held(site.catalogue, ground, member, models, eligibility) for member in held),
        big=_biggest(site.catalogue),
        repack=repack,
    )
    return Task(problem, tuple(wanted), tuple(held))


_NONE: frozenset[int] = frozenset()


def _gpus(copies: Sequence[Copy]) -> dict[str, frozenset[int]]:
    """The GPUs that the copies hold, by node."""
    found: dict[str, set[int]] = {}
    for copy in copies:
        for name, run in copy.runs():
            found.setdefault(name, set()).update(run.gpus)
    return {name: frozenset(gpus) for name, gpus in found.items()}


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
    busy = used | (frozenset(node.facts.listen_ports) if node.facts else _NONE)
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
        free = node.gpus - held.kept.get(node.name, _NONE) - node.taken.keys()
        rows = free_runs(site, node, ports.get(node.name, _NONE))
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
                freed=len(free & held.freed.get(node.name, _NONE)),
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
    numbers = tuple(sorted(ground.number[name] for name in copy.nodes if name in ground.number))
    counts = [len(run.gpus) for _, run in (copy.last_runs() if member.fate is Fate.AGAIN else copy.runs())]
    gpus = max(counts, default=0)
    demand = _demand(catalogue, member, models, eligibility)
    shape = (len(copy.nodes), gpus)
    place = demand.shapes.index(shape) if shape in demand.shapes else 0
    movable = member.fate is Fate.KEEP and counts == [gpus] * len(copy.nodes) and shape in demand.shapes
    return Held(demand, Spot(numbers, gpus, place), movable=movable)


def _biggest(catalogue: Catalogue) -> tuple[int, int]:
    """The biggest shape of the catalogue: most nodes, then most GPUs on each."""
    shapes = (
        (shape.nodes, shape.gpus)
        for model in catalogue.models.values()
        for profile, number in model.counts().items()
        if number
        for shape in model.profiles[profile].shapes
    )
    return max(shapes, default=(1, 1))
