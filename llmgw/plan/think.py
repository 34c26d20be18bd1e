"""How a plan is thought out: the nodes, what runs, what is to be, and the place of each replica."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmgw.base.bulk import collector_at_rest
from llmgw.plan.assess import Assessment, Question, assess
from llmgw.plan.copies import Copy, CopyState, PublishedAs, url_of
from llmgw.plan.document import Placement
from llmgw.plan.kinds import Eligibility
from llmgw.plan.nodes import Ground, NodeState
from llmgw.plan.placements import placements_of
from llmgw.plan.placer import Answer, Demand, Spot, place
from llmgw.plan.reasons import Reasons
from llmgw.plan.roster import Fate, Member, Roster
from llmgw.plan.schedule import Floor
from llmgw.plan.scope import Scope
from llmgw.plan.surge import moved_away, surge
from llmgw.plan.task import Task, make_task
from llmgw.site import Site


@dataclass(frozen=True, slots=True)
class Thought:
    """All that was found out on the way to a plan; what explains it later.

    `spots` are of replicas that are started, by name; `unplaced` are members without a place.
    """

    asked: Question
    ground: Ground
    found: tuple[Copy, ...]
    scope: Scope
    published: Mapping[str, PublishedAs]
    eligibility: Eligibility
    roster: Roster
    task: Task
    answer: Answer
    spots: Mapping[str, Spot]
    placements: Mapping[str, Placement]
    unplaced: tuple[Member, ...]
    floors: Mapping[str, Floor]


def think(asked: Question) -> Thought:
    """Everything that a plan needs but its actions. UsageError for a target that names nothing."""
    return think_on(assess(asked))


@collector_at_rest()
def think_on(known: Assessment) -> Thought:
    """The second half: the place of each replica."""
    asked, ground, published, eligibility = known.asked, known.ground, known.published, known.eligibility
    site = asked.site
    roster, task, answer, unplaced = _placed(asked, ground, known.roster, eligibility)
    floors = floors_of(site, ground, roster, published)
    spots = _spots(task, answer)
    roster = _with_moves(roster, task, answer)
    beside = surge(task, answer, floors, _serving(ground, roster, published))
    roster = replace(roster, members=moved_away(roster.members, beside))
    spots.update(beside)
    placements = placements_of(site, ground, roster, spots)
    reasons = Reasons(ground, task.problem, placements, demands_of(task))
    placements.update(
        (name, placements[name].model_copy(update={"why": reasons.codes(name, spot)}))
        for name, spot in spots.items()
    )
    return Thought(
        asked=asked,
        ground=ground,
        found=known.found,
        scope=known.scope,
        published=published,
        eligibility=eligibility,
        roster=roster,
        task=task,
        answer=answer,
        spots=spots,
        placements=placements,
        unplaced=unplaced,
        floors=floors,
    )


def _placed(
    asked: Question, ground: Ground, roster: Roster, eligibility: Eligibility
) -> tuple[Roster, Task, Answer, tuple[Member, ...]]:
    """The placer's answer. What should change but finds no new place, and does not have to go, stays as it is:
    then its GPUs are not free after all, and the placer is asked again."""
    stuck: list[Member] = []
    while True:
        task = make_task(asked.site, ground, roster, eligibility, repack=asked.options.repack)
        answer = place(task.problem)
        homeless = [member for member, spot in zip(task.wanted, answer.spots, strict=True) if spot is None]
        staying = {member.name for member in homeless if stays_without_place(ground, member)}
        if not staying:
            return roster, task, answer, (*stuck, *homeless)
        stuck += [member for member in homeless if member.name in staying]
        roster = replace(
            roster,
            members=tuple(
                replace(member, fate=Fate.HOLD, why=f"{member.why}; there is no room for that")
                if member.name in staying
                else member
                for member in roster.members
            ),
        )


def stays_without_place(ground: Ground, member: Member) -> bool:
    """Whether a replica that finds no new place runs on where it is: it is not lost, no node of its is drained."""
    copy = member.copy
    if copy is None or member.fate is not Fate.ELSEWHERE or copy.state is CopyState.LOST:
        return False
    return all((node := ground.get(name)) is None or node.state is not NodeState.DRAINING for name in copy.nodes)


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


def demands_of(task: Task) -> dict[str, Demand]:
    """What the placer was asked for, by replica."""
    wanted = zip(task.wanted, task.problem.wanted, strict=True)
    held = zip(task.held, (held.demand for held in task.problem.held), strict=True)
    return {member.name: demand for member, demand in (*wanted, *held)}


def serves(ground: Ground, published: Mapping[str, PublishedAs], copy: Copy | None) -> bool:
    """Whether the copy answers requests: routers send it some, and every rank runs as far as one knows."""
    if copy is None or copy.state not in (CopyState.RUNNING, CopyState.UNKNOWN):
        return False
    return published.get(url_of(ground, copy), PublishedAs()).state == "ready"


def _serving(ground: Ground, roster: Roster, published: Mapping[str, PublishedAs]) -> dict[str, bool]:
    return {member.name: serves(ground, published, member.copy) for member in roster.members}


def floors_of(
    site: Site, ground: Ground, roster: Roster, published: Mapping[str, PublishedAs]
) -> dict[str, Floor]:
    """Of each model: how many replicas are ready, and how many have to be during the plan.

    min_ready where the model has it, else one; never more than are wanted; none of a model that is not.
    """
    ready: dict[str, int] = {}
    for copy in [*(member.copy for member in roster.members), *(ending.copy for ending in roster.endings)]:
        if copy and serves(ground, published, copy):
            ready[copy.model] = ready.get(copy.model, 0) + 1
    floors = {name: Floor(number, 0) for name, number in ready.items()}
    for name, model in site.catalogue.models.items():
        wanted = sum(model.counts().values())
        least = model.min_ready if model.min_ready is not None else 1
        floors[name] = Floor(ready.get(name, 0), min(least, wanted))
    return floors
