"""What admins read besides the plan: explanations, status and drift as case files; and lines that fit the terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmgw.base import UsageError
from llmgw.plan import Plan
from llmgw.plan.drift import drift_of
from llmgw.plan.explain import explain
from llmgw.plan.make import body_of
from llmgw.plan.status import status_of
from llmgw.plan.text import View, drift_lines, explain_lines, plan_lines, status_lines, to_text
from llmgw.plan.think import Thought, think_on
from tests.fakes.worlds import NOW, World

CASES = sorted((Path(__file__).parent / "cases" / "plan").glob("*.yml"))
EXPLAINED = {
    "s01_tightest_leaf": 1,
    "s04_one_leaf_before_a_good_cable": 1,
    "s07_fewest_leaves_tightest_last": 1,
    "s08_required_leaf_is_not_there": 1,
    "s09_what_runs_over_two_leaves_stays": 1,
    "s26_a_site_in_any_order": 5,
    "c04_priorities_under_shortage": 3,
    "c15_repack_zero_says_what_would_help": 1,
    "c27_what_a_node_lacks": 2,
    "c28_cannot_fit_the_memory": 2,
}
"""The cases, and of how many replicas of each the explanation is kept."""
STATUS = (
    "c20_lost_node_and_its_other_half",
    "c22_a_rank_has_ended",
    "c24_published_late_and_wrongly",
    "c25_foreign_processes_and_orphans",
    "c37_nothing_to_do",
    "s18_unreachable_is_held",
    "s26_a_site_in_any_order",
)


def case(name: str) -> tuple[World, dict[str, Any]]:
    written = yaml.safe_load((CASES[0].parent / f"{name}.yml").read_text())
    return World.read(written), written.get("options", {})


def names_of(thought: Thought) -> list[str]:
    """The replicas that wait or start, first those without a place, then by name; then what stays."""
    unplaced = [member.name for member in thought.unplaced]
    rest = sorted({*thought.placements, *(m.name for m in thought.roster.members)} - set(unplaced))
    return [*unplaced, *(n for n in rest if n in thought.spots), *(n for n in rest if n not in thought.spots)]


@pytest.mark.parametrize("name", EXPLAINED)
def test_explanations_are_as_reviewed(name: str, check_case: Callable[[str, str], None]) -> None:
    world, options = case(name)
    thought = world.thought(**options)
    parts = [
        to_text(explain_lines(explain(thought, replica), thought.ground))
        for replica in names_of(thought)[: EXPLAINED[name]]
    ]
    check_case(f"plan/{name}.explained.txt", "\n".join(parts))


@pytest.mark.parametrize("name", STATUS)
def test_status_and_drift_are_as_reviewed(name: str, check_case: Callable[[str, str], None]) -> None:
    world, options = case(name)
    thought = world.thought(**options)
    status = to_text(status_lines(status_of(thought), now=NOW))
    check_case(f"plan/{name}.status.txt", f"{status}\n---\n{to_text(drift_lines(drift_of(thought)))}")


def test_the_status_of_a_settled_roster_is_that_of_the_whole_thought() -> None:
    settled, open_ = 0, 0
    for path in CASES:
        world, _ = case(path.stem)
        for now in (world, world.applied(world.plan())):
            known = now.assessment()
            settled, open_ = settled + known.settled, open_ + (not known.settled)
            if known.settled:
                thought = think_on(known)
                assert status_of(known) == status_of(thought), path.stem
                assert thought.roster == known.roster, path.stem
                assert not thought.spots, path.stem
    assert settled > 20, "cases in which the placer is not asked"
    assert open_ > 20, "cases in which it is"


def test_a_roster_with_somebody_to_place_or_to_replace_is_not_settled() -> None:
    assert not case("s01_tightest_leaf")[0].assessment().settled
    world, _ = case("c37_nothing_to_do")
    assert world.assessment().settled
    assert not world.assessment(repack=1).settled
    running = status_of(world.assessment())[0].replica
    assert not world.assessment(replace=(running,)).settled


def test_a_replica_that_is_not_there_is_an_error_with_near_names() -> None:
    world, _ = case("s26_a_site_in_any_order")
    with pytest.raises(UsageError, match="chat/9") as caught:
        explain(world.thought(), "chat/9")
    assert "chat/" in caught.value.hint


@pytest.mark.parametrize("width", [80, 96])
@pytest.mark.parametrize("path", CASES[::5], ids=lambda path: path.stem)
def test_no_line_is_wider_than_the_terminal(path: Path, width: int) -> None:
    world, options = case(path.stem)
    heading = ("catalogue models.yml 9f31c2 | inventory hosts.yml 77aa01 | fabric ib0: scan 8812, 4 min old",)
    thought = world.thought(**options)
    plan = Plan.of(body_of(thought), created=NOW, by="test")
    lines = plan_lines(plan, View(width=width, heading=heading))
    lines += status_lines(status_of(thought), now=NOW, width=width)
    lines += drift_lines(drift_of(thought), width=width)
    for replica in names_of(thought)[:2]:
        lines += explain_lines(explain(thought, replica), thought.ground, width=width)
    assert [text for text in to_text(lines).splitlines() if len(text) > width] == []
