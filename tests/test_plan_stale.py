"""What makes a saved plan stale, and in which words; what does not."""

from collections.abc import Callable

import pytest

from llmgw.base import DocumentError
from llmgw.plan import Plan
from llmgw.plan.stale import stale
from tests.fakes.worlds import NOW, World


def world() -> World:
    made = World.of({"leaf-a": ["a1", "a2"], "leaf-b": ["b1", "b2"]})
    return made.model("pair", shapes=["2x8"]).model("spare", shapes=["1x8"], replicas=0)


def complaints(later: World, plan: Plan | None = None, *, consumed: tuple[str, ...] = ()) -> list[str]:
    made = plan or Plan.of(world().plan(), created=NOW, by="test")
    return stale(made, later.site(), later.paths(), later.standing(), consumed=consumed)


def test_nothing_changed_and_a_scan_that_says_the_same_make_no_plan_stale() -> None:
    later = world()
    later.scan += 1
    assert complaints(later) == []


def test_a_cable_of_a_node_that_the_plan_does_not_touch_does_not_matter() -> None:
    touched = {seat.n for placement in world().plan().placements for seat in placement.nodes}
    later = world()
    other = next(name for name in later.nodes if name not in touched)
    later.nodes[other].short = 1
    assert complaints(later) == []


def shorter(later: World) -> None:
    later.nodes["a1"].short = 1


def more_args(later: World) -> None:
    later.models["pair"]["profiles"]["main"]["args"] = ["--max-model-len", "4096"]


def other_host(later: World) -> None:
    later.nodes["b1"].labels = ("nvme",)


def other_environment(later: World) -> None:
    later.nodes["a2"].env = {"NCCL_DEBUG": "INFO"}


def applied(later: World) -> None:
    later.serial += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (shorter, ["the fabric ib0 is not as it was: a1: a1 mlx5_0/1 - leaf-a port 1 now at 2xNDR of 4xNDR"]),
        (more_args, ["the catalogue or llmgw.yml has changed: model pair"]),
        (other_host, ["the inventory has changed: hosts that the plan does not touch"]),
        (other_environment, ["the inventory has changed: a2"]),
        (applied, ["something was applied since: the plan is of serial 41, the store is at 42"]),
    ],
)
def test_what_changed_is_named(change: Callable[[World], None], words: list[str]) -> None:
    later = world()
    change(later)
    assert complaints(later) == words


def test_a_plan_is_applied_once() -> None:
    plan = Plan.of(world().plan(), created=NOW, by="test")
    assert complaints(world(), plan, consumed=(plan.id,)) == [f"plan {plan.id} has been applied already"]


def test_a_plan_file_that_was_edited_is_refused() -> None:
    text = Plan.of(world().plan(), created=NOW, by="test").text()
    assert Plan.read(text, "plan.json").text() == text
    with pytest.raises(DocumentError, match="changed after planning"):
        Plan.read(text.replace('"port":8000', '"port":8001').replace('"port": 8000', '"port": 8001'), "plan.json")


def test_when_and_by_whom_it_was_made_is_not_part_of_the_id() -> None:
    body = world().plan()
    assert Plan.of(body, created=NOW, by="a").id == Plan.of(body, created=NOW.replace(year=2027), by="b").id
