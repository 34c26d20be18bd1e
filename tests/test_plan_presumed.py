"""Starts of which nobody knows what became: a plan takes them to run until their node answers or is lost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llmgw.observed import Facts
from llmgw.plan import Body, Options, Phase, Plan, Rules, make_plan
from llmgw.plan.presumed import BegunStart, SinceThen, presume
from llmgw.plan.progress import Step
from llmgw.remote.apply import apply
from llmgw.store import State, open_state
from llmgw.store.journal import consume, write
from llmgw.store.starts import starts_since
from tests.fakes.actions import placement, start
from tests.fakes.nodes import Clock, FakeJournal, FakeNodes
from tests.fakes.worlds import NOW, World

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def two_nodes() -> World:
    return World.of({"leaf-a": ["a1", "a2"]}).model("m", shapes=["1x8"], replicas=1)


def silent(world: World, node: str, seconds: int) -> World:
    """The world with a node that has not answered for so long."""
    world.nodes[node].silent_s = seconds
    return world


def planned(world: World, facts: Facts, **options: bool) -> Body:
    return make_plan(
        world.site(), world.paths(), facts, world.standing(), options=Options.model_validate(options), now=NOW
    )


def acts(body: Body) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(action.op.value, action.replica, action.nodes) for action in body.actions]


def begun(body: Body, *, ago_s: int) -> SinceThen:
    """What a journal has in which the plan's first start was begun so long ago."""
    (action,) = body.actions
    assert action.starts
    return SinceThen({("p1", action.id): BegunStart(NOW - timedelta(seconds=ago_s), action.starts)})


@pytest.mark.parametrize(
    ("silent_s", "begun_s", "options", "expected"),
    [
        (30, 20, {}, []),
        (600, 590, {}, []),
        (600, 590, {"replace_unreachable": True}, [("start", "m/0", ("a2",))]),
        (1000, 990, {}, [("start", "m/0", ("a2",))]),
        (1000, 800, {}, []),  # it was silent when last asked, but a start has reached for it since
        (30, 40, {}, [("start", "m/0", ("a2",))]),  # its last answer is later, and shows nothing
    ],
)
def test_a_start_on_a_node_that_fell_silent_holds_its_place_until_the_node_is_lost(
    silent_s: int, begun_s: int, options: dict[str, bool], expected: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    world = two_nodes()
    since = begun(world.plan(), ago_s=begun_s)
    facts = silent(world, "a1", silent_s).facts()
    assert acts(planned(world, facts)) == [("start", "m/0", ("a2",))]
    found = acts(planned(world, presume(facts, since), **options))
    assert [one for one in found if one[0] != "forget"] == expected


def test_a_node_that_answers_is_taken_at_its_word() -> None:
    world = two_nodes()
    since = begun(world.plan(), ago_s=5)
    assert presume(world.facts(), since) == world.facts()
    assert acts(planned(world, presume(world.facts(), since))) == [("start", "m/0", ("a1",))]


def test_what_was_proved_gone_is_not_held_although_the_last_facts_show_it() -> None:
    world = silent(two_nodes().run("m/0", ["a1"], action="a7"), "a1", 30)
    assert [run.replica for run in world.facts().nodes["a1"].runs] == ["m/0"]
    seen = presume(world.facts(), SinceThen(gone=frozenset({("000000000000", "a7")})))
    assert seen.nodes["a1"].runs == ()


def test_a_rank_of_several_is_presumed_only_where_its_node_is_silent() -> None:
    world = World.of({"leaf-a": ["a1", "a2"]}).model("m", shapes=["2x8"])
    since = begun(world.plan(), ago_s=5)
    seen = presume(silent(world, "a2", 30).facts(), since)
    assert [(name, run.rank, run.gpus) for name in ("a1", "a2") for run in seen.nodes[name].runs] == [
        ("a2", 1, tuple(range(8)))
    ]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def applied(state: State, world: World, *steps: Step) -> Plan:
    """A plan of the world, consumed, with these steps in its journal."""
    plan = Plan.of(world.plan(), created=NOW, by="test")
    consume(state, plan, by="test")
    rows: dict[tuple[str, str], int] = {}
    for step in steps:
        write(state, plan.id, [step], rows)
    return plan


BEGUN = Step("a1", Phase.START)
STARTED = Step("a1", Phase.START, "ok")
REFUSED = Step("a1", Phase.START, "failed", "GPU 0 is held")
UNANSWERED = Step("a1", Phase.START, "unreachable", "timed out")
UNDOING, UNDONE = Step("a1", Phase.UNDO), Step("a1", Phase.UNDO, "ok")
NOT_UNDONE = Step("a1", Phase.UNDO, "unreachable", "timed out")


@pytest.mark.parametrize(
    ("steps", "counts"),
    [
        ([], False),
        ([BEGUN], True),
        ([BEGUN, STARTED], True),
        ([BEGUN, UNANSWERED, UNDOING], True),
        ([BEGUN, UNANSWERED, UNDOING, NOT_UNDONE], True),
        ([BEGUN, REFUSED, UNDOING, UNDONE], False),
        ([BEGUN, REFUSED, UNDOING, UNDONE, BEGUN], True),
    ],
    ids=lambda value: "-".join(step.phase + step.outcome for step in value) if isinstance(value, list) else "",
)
def test_the_journal_gives_the_starts_that_nothing_proves_gone(
    state: State, steps: list[Step], counts: bool
) -> None:
    plan = applied(state, two_nodes(), *steps)
    found = starts_since(state, LONG_AGO)
    assert list(found.begun) == ([(plan.id, "a1")] if counts else [])
    assert starts_since(state, datetime.now(UTC) + timedelta(hours=1)) == SinceThen()


def test_a_stop_that_was_proved_ends_a_start_of_another_plan(state: State) -> None:
    world = two_nodes()
    first = applied(state, world, BEGUN, STARTED)
    later = world.applied(first.body)
    later.models["m"]["replicas"] = 0
    second = applied(state, later, Step("a1", Phase.STOP), Step("a1", Phase.STOP, "ok"))
    assert [action.op for action in second.body.actions] == ["stop"]
    assert starts_since(state, LONG_AGO) == SinceThen(gone=frozenset({(first.id, "a1")}))


def test_an_undone_start_that_a_node_did_not_answer_to_is_not_called_undone() -> None:
    actions, clock, journal = [start("a1", "m/0", "n1", "n2")], Clock(), FakeJournal()
    nodes = FakeNodes.of(actions, clock, refusing=frozenset({"n1"}), silent=frozenset({"n2"}))
    *_, last = apply(actions, nodes, journal, Rules(), clock=clock)
    assert last.states["a1"].status == "failed"
    undo = [step.outcome for step in journal.steps if step.phase is Phase.UNDO]
    assert undo == ["", "unreachable"]


def test_a_start_moves_the_time_of_silence_forward_and_never_back() -> None:
    world = silent(two_nodes(), "a1", 100)
    starts = placement("m/0", "a1")
    for ago_s, expected in ((40, 40), (99, 99), (100, 100), (300, 100)):
        since = SinceThen({("p1", "a1"): BegunStart(NOW - timedelta(seconds=ago_s), starts)})
        assert presume(world.facts(), since).silent == {"a1": NOW - timedelta(seconds=expected)}


def test_a_node_that_was_never_seen_has_nothing_to_presume() -> None:
    world = silent(two_nodes(), "a1", -1)
    assert presume(world.facts(), begun(two_nodes().plan(), ago_s=0)) == world.facts()
