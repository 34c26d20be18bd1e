"""The plan of a site at one moment. Same arguments, same plan, to the byte."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from llmgw import __version__
from llmgw.base import natural_key
from llmgw.engines import Launch
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan.copies import CopyState, PublishedAs, copies, published_by_url, url_of
from llmgw.plan.document import Body, Options, Placement, Seat, Unplaced
from llmgw.plan.drafts import Bench, Draft, draft_all
from llmgw.plan.inputs import inputs_of
from llmgw.plan.kinds import Eligibility, kinds_of
from llmgw.plan.launches import launches
from llmgw.plan.nodes import Ground, NodeState, survey
from llmgw.plan.notes import notes_of
from llmgw.plan.placer import PLACER, Answer, Spot, place
from llmgw.plan.roster import Fate, Member, Roster, call_roll
from llmgw.plan.schedule import Floor, schedule
from llmgw.plan.scope import scope_of
from llmgw.plan.seating import Seating, biggest_first, seats_of
from llmgw.plan.spec import Spec
from llmgw.plan.standing import Standing
from llmgw.plan.task import Task, make_task
from llmgw.site import Site


def make_plan(
    site: Site,
    fabrics: Mapping[str, Paths],
    facts: Facts,
    standing: Standing,
    *,
    options: Options,
    now: datetime,
) -> Body:
    """What would make the site run as its catalogue says. UsageError for a target that names nothing."""
    ground = survey(site, fabrics, facts, standing, now=now)
    given_up = frozenset({NodeState.LOST, *([NodeState.UNREACHABLE] if options.replace_unreachable else [])})
    found = copies(facts, ground, given_up=given_up)
    scope = scope_of(site, options, found)
    published = published_by_url(standing)
    eligibility = Eligibility(site.catalogue, kinds_of(site, ground))
    roster = call_roll(
        site.catalogue, ground, found, standing, published=published, scope=scope, eligibility=eligibility
    )
    task = make_task(site, ground, roster, eligibility, repack=options.repack)
    answer = place(task.problem)
    roster = _with_moves(roster, task, answer)
    spots = _spots(task, answer)
    placements = _placements(site, ground, roster, task, spots)
    bench = Bench(site, ground, standing, published, placements, scope)
    drafts = draft_all(bench, roster)

    def launches_of(draft: Draft) -> tuple[Launch, ...]:
        if draft.starts is None or draft.member is None:
            return ()
        return launches(site, fabrics, ground, draft.member, draft.starts.nodes)

    actions = schedule(site, drafts, _floors(site, ground, roster, published), launches_of)
    unplaced = _unplaced(site, task, answer)
    touched = {name for action in actions for name in action.nodes}
    return Body(
        llmgw=__version__,
        placer=PLACER,
        options=options,
        inputs=inputs_of(site, fabrics, facts, standing, nodes=touched),
        applyable=bool(actions),
        complete=not unplaced,
        placements=tuple(placements[name] for name in sorted(placements, key=natural_key)),
        actions=actions,
        unplaced=unplaced,
        specs=_specs(roster, standing),
        notes=notes_of(ground, task.problem, placements, found, drift=0),
    )


def _with_moves(roster: Roster, task: Task, answer: Answer) -> Roster:
    """The roster after a repack: what it moves has to go elsewhere."""
    moved = {task.held[number].name for number in answer.moved}
    return replace(
        roster,
        members=tuple(
            replace(member, fate=Fate.ELSEWHERE, why="makes room (--repack)") if member.name in moved else member
            for member in roster.members
        ),
    )


def _spots(task: Task, answer: Answer) -> dict[str, Spot]:
    """Where replicas that are started go, by name."""
    found = {member.name: spot for member, spot in zip(task.wanted, answer.spots, strict=True) if spot}
    found.update({task.held[number].name: spot for number, spot in answer.moved.items()})
    return found


def _placements(
    site: Site, ground: Ground, roster: Roster, task: Task, spots: Mapping[str, Spot]
) -> dict[str, Placement]:
    """Every replica that has a place when the plan has been applied."""
    seating = Seating(site, ground, roster, task)
    new = [member for member in roster.members if member.name in spots]
    seats = {member.name: seating.new(member, spots[member.name]) for member in biggest_first(new, spots)}
    for member in roster.members:
        if member.copy and member.fate is Fate.REPLACE:
            seats[member.name] = seating.again(member, member.copy)
        elif member.copy and member.fate in (Fate.KEEP, Fate.HOLD):
            seats[member.name] = seats_of(member.copy)
    return {
        member.name: _placement(ground, member, seats[member.name])
        for member in roster.members
        if seats.get(member.name)
    }


def _placement(ground: Ground, member: Member, seats: Sequence[Seat]) -> Placement:
    nodes = [ground[seat.n] for seat in seats]
    leaves = sorted({node.leaf for node in nodes if node.fabric})
    kept = member.fate in (Fate.KEEP, Fate.HOLD) and member.copy is not None
    head = next((seat.port for seat in seats if seat.rank == 0), 0)
    return Placement(
        replica=member.name,
        model=member.model,
        profile=member.profile,
        shape=f"{len(seats)}x{max(len(seat.gpus) for seat in seats)}",
        nodes=tuple(seats),
        fabric=nodes[0].fabric,
        leaf=",".join(ground.leaves[leaf] for leaf in leaves),
        port=head,
        spec=member.copy.started.spec if kept and member.copy else member.mark,
    )


def _floors(site: Site, ground: Ground, roster: Roster, published: Mapping[str, PublishedAs]) -> dict[str, Floor]:
    """Of each model of the catalogue: how many replicas are ready, and how many have to be during the plan."""
    ready: dict[str, int] = {}
    everything = [member.copy for member in roster.members] + [ending.copy for ending in roster.endings]
    for copy in everything:
        if copy and copy.state in (CopyState.RUNNING, CopyState.UNKNOWN):
            known = published.get(url_of(ground, copy), PublishedAs())
            ready[copy.model] = ready.get(copy.model, 0) + (known.state == "ready")
    floors = {}
    for name, model in site.catalogue.models.items():
        wanted = sum(model.counts().values())
        least = model.min_ready if model.min_ready is not None else 1
        floors[name] = Floor(ready.get(name, 0), min(least, wanted))
    for name, number in ready.items():
        floors.setdefault(name, Floor(number, 0))
    return floors


def _unplaced(site: Site, task: Task, answer: Answer) -> tuple[Unplaced, ...]:
    found = []
    for member, spot in zip(task.wanted, answer.spots, strict=True):
        if spot is None:
            profile = site.catalogue.models[member.model].profiles[member.profile]
            needs = " or ".join(f"{shape.nodes} x {shape.gpus} GPUs" for shape in profile.shapes)
            found.append(Unplaced(replica=member.name, needs=needs, why="no room"))
    return tuple(found)


def _specs(roster: Roster, standing: Standing) -> dict[str, Spec]:
    """The specs that the plan's marks stand for, as far as they are known."""
    found = {member.mark: member.spec for member in roster.members}
    old = [member.copy.started.spec for member in roster.members if member.copy]
    old += [ending.copy.started.spec for ending in roster.endings]
    found.update({mark: standing.specs[mark] for mark in old if mark in standing.specs})
    return dict(sorted(found.items()))
