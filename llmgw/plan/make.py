"""The plan of a site at one moment. Same arguments, same plan, to the byte."""

from collections.abc import Mapping
from datetime import datetime

from llmgw import __version__
from llmgw.base import natural_key
from llmgw.base.bulk import collector_at_rest
from llmgw.engines import Launch
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan.assess import Question
from llmgw.plan.document import Action, Body, Options
from llmgw.plan.drafts import Bench, Draft, draft_all
from llmgw.plan.drift import drift_of
from llmgw.plan.inputs import inputs_of
from llmgw.plan.launches import launches
from llmgw.plan.notes import notes_of
from llmgw.plan.placer import PLACER
from llmgw.plan.runner_up import with_runners_up
from llmgw.plan.schedule import schedule
from llmgw.plan.spec import Spec
from llmgw.plan.standing import Standing
from llmgw.plan.think import Thought, think
from llmgw.plan.unplaced import unplaced_of
from llmgw.plan.warnings import warnings_of
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
    return body_of(think(Question(site, fabrics, facts, standing, options, now)))


@collector_at_rest()
def body_of(thought: Thought) -> Body:
    """The plan that was thought out."""
    thought = with_runners_up(thought)
    asked = thought.asked
    actions = _actions(thought)
    unplaced = unplaced_of(thought)
    differences = drift_of(thought)
    still = sum(not one.acts for one in differences)
    return Body(
        llmgw=__version__,
        placer=PLACER,
        options=asked.options,
        inputs=inputs_of(
            asked.site,
            asked.fabrics,
            asked.facts,
            asked.standing,
            nodes={name for action in actions for name in action.nodes},
        ),
        applyable=bool(actions),
        complete=not unplaced,
        placements=tuple(thought.placements[name] for name in sorted(thought.placements, key=natural_key)),
        actions=actions,
        unplaced=unplaced,
        warnings=warnings_of(thought),
        drift=tuple(f"{one.subject}: {one.text}" for one in differences if one.acts),
        specs=_specs(thought),
        notes=notes_of(thought.ground, thought.task.problem, thought.placements, thought.found, drift=still),
    )


def _actions(thought: Thought) -> tuple[Action, ...]:
    asked, ground = thought.asked, thought.ground
    bench = Bench(asked.site, ground, asked.standing, thought.published, thought.placements, thought.scope)

    def launches_of(draft: Draft) -> tuple[Launch, ...]:
        if draft.starts is None or draft.member is None:
            return ()
        return launches(asked.site, asked.fabrics, ground, draft.member, draft.starts.nodes)

    return schedule(asked.site, draft_all(bench, thought.roster), thought.floors, launches_of)


def _specs(thought: Thought) -> dict[str, Spec]:
    """The specs that the plan's marks stand for, as far as they are known."""
    standing, roster = thought.asked.standing, thought.roster
    found = {member.mark: member.spec for member in roster.members}
    old = [member.copy.started.spec for member in roster.members if member.copy]
    old += [ending.copy.started.spec for ending in roster.endings]
    found.update({mark: standing.specs[mark] for mark in old if mark in standing.specs})
    return dict(sorted(found.items()))
