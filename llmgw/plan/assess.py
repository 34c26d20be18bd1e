"""What there is before anything is placed: the nodes, what runs, which replicas are to be and what becomes of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from llmgw.base.bulk import collector_at_rest
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan.copies import Copy, PublishedAs, copies, published_by_url
from llmgw.plan.document import Options
from llmgw.plan.holdings import settle_claims
from llmgw.plan.kinds import Eligibility
from llmgw.plan.nodes import Ground, NodeState, survey
from llmgw.plan.roster import Fate, Member, Roster, call_roll
from llmgw.plan.scope import Scope, scope_of
from llmgw.plan.standing import Standing
from llmgw.site import Site

_AT_HOME = frozenset({Fate.KEEP, Fate.HOLD, Fate.AGAIN})


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked: the arguments of make_plan."""

    site: Site
    fabrics: Mapping[str, Paths]
    facts: Facts
    standing: Standing
    options: Options
    now: datetime


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known without the placer."""

    asked: Question
    ground: Ground
    found: tuple[Copy, ...]
    scope: Scope
    published: Mapping[str, PublishedAs]
    eligibility: Eligibility
    roster: Roster

    @property
    def settled(self) -> bool:
        """Whether the placer would change nothing in the roster: nobody needs a place, nobody is to make room, and
        nobody is replaced, for which there may be a place beside the old one."""
        return not self.asked.options.repack and all(member.fate in _AT_HOME for member in self.roster.members)

    @property
    def unplaced(self) -> tuple[Member, ...]:
        """Of a settled roster nobody is without a place."""
        return ()


@collector_at_rest()
def assess(asked: Question) -> Assessment:
    """The first half of a plan. UsageError for a target that names nothing."""
    site, options = asked.site, asked.options
    ground = survey(site, asked.fabrics, asked.facts, asked.standing, now=asked.now)
    lost = frozenset({NodeState.LOST, *([NodeState.UNREACHABLE] if options.replace_unreachable else [])})
    found = copies(asked.facts, ground, given_up=lost)
    scope = scope_of(site, options, found)
    published = published_by_url(asked.standing)
    eligibility = Eligibility(site, ground)
    roster = call_roll(
        site.catalogue, ground, found, asked.standing, published=published, scope=scope, eligibility=eligibility
    )
    roster = settle_claims(ground, roster)
    return Assessment(asked, ground, tuple(found), scope, published, eligibility, roster)
