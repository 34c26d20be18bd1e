"""What is not as the catalogue says or as llmgw left it: changed files, ended ranks, hands of others."""

from dataclasses import dataclass

from llmgw.base import natural_key
from llmgw.plan.copies import CopyState, PublishedAs, url_of
from llmgw.plan.nodes import QUIET, NodeState
from llmgw.plan.roster import Fate, Member
from llmgw.plan.spec import Change, changes
from llmgw.plan.think import Thought


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `subject` is a replica or a node; `acts`: a plan does something about it."""

    subject: str
    text: str
    acts: bool
    changes: tuple[Change, ...] = ()


def drift_of(thought: Thought) -> list[Difference]:
    """All differences, in natural order of what they are of; replicas before nodes."""
    replicas = [*_members(thought), *_endings(thought), *_phantoms(thought)]
    nodes = _nodes(thought)
    return sorted(replicas, key=lambda one: natural_key(one.subject)) + nodes


def _members(thought: Thought) -> list[Difference]:
    found = []
    specs = thought.asked.standing.specs
    for member in thought.roster.members:
        copy = member.copy
        if copy is None or member.fate in (Fate.START, Fate.AGAIN):
            why = f"wanted, not running: {copy.why}" if copy else "wanted, not running"
            found.append(Difference(member.name, why, acts=True))
            continue
        if copy.started.spec != member.mark:
            old = specs.get(copy.started.spec)
            text = (
                "runs otherwise than the catalogue says"
                if old or not specs
                else "was started by none of llmgw's plans"
            )
            fields = tuple(changes(old, member.spec)) if old else ()
            found.append(Difference(member.name, text, member.fate not in (Fate.KEEP, Fate.HOLD), fields))
        if copy.state in (CopyState.BROKEN, CopyState.LOST, CopyState.UNKNOWN):
            found.append(Difference(member.name, copy.why, copy.state is not CopyState.UNKNOWN))
        known = thought.published.get(url_of(thought.ground, copy), PublishedAs())
        if copy.state is CopyState.RUNNING and (known.id != member.name or known.state != "ready"):
            text = f"runs and is published as {known.state}" if known.id else "runs and no router knows it"
            found.append(Difference(member.name, text, acts=member.fate is Fate.KEEP))
    return found


def _endings(thought: Thought) -> list[Difference]:
    where = thought.roster.endings, thought.roster.stale
    return [
        Difference(
            ending.copy.name, f"runs on {', '.join(ending.copy.nodes)}: {ending.why}", acts=endings is where[0]
        )
        for endings in where
        for ending in endings
    ]


def _phantoms(thought: Thought) -> list[Difference]:
    """Endpoints that routers have of nothing that runs."""
    copies = {url_of(thought.ground, copy) for copy in thought.found if copy.state is not CopyState.ENDED}
    return [
        Difference(name.partition("~")[0], f"routers know {endpoint.url}, and nothing of it runs", acts=True)
        for name, endpoint in sorted(thought.asked.standing.published.items())
        if endpoint.url not in copies
    ]


def _nodes(thought: Thought) -> list[Difference]:
    """Foreign processes, silence, and nodes on which what runs could not be started again."""
    here: dict[str, list[Member]] = {}
    for member in thought.roster.members:
        if member.copy and member.fate is Fate.KEEP:
            for name in member.copy.nodes:
                here.setdefault(name, []).append(member)
    found = []
    for number, node in enumerate(thought.ground.nodes):
        found += [
            Difference(node.name, f"GPU {index} is held by {who}", acts=False) for index, who in node.taken.items()
        ]
        if node.state in QUIET and node.state is not NodeState.UNKNOWN:
            found.append(Difference(node.name, f"does not answer, {node.note}", acts=False))
        kind = thought.eligibility.kinds.of[number]
        for member in here.get(node.name, ()):
            refusal = thought.eligibility.refusals(member.model, member.profile).get(kind)
            if refusal:
                why = refusal.reason.value + (f" ({refusal.detail})" if refusal.detail else "")
                found.append(
                    Difference(node.name, f"{member.name} could not be started there again: {why}", acts=False)
                )
    return found
