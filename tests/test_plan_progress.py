"""The state machine of apply, on nodes in memory."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.plan import Action, Kind, Phase, Progress, Rules
from llmgw.remote.apply import apply
from tests.fakes.actions import move, replace, start, stop
from tests.fakes.nodes import Clock, FakeJournal, FakeNodes

RULES = Rules()


def carried_out(
    actions: Sequence[Action], rules: Rules = RULES, journal: FakeJournal | None = None, **faults: Any
) -> tuple[Progress, FakeNodes, FakeJournal]:
    """The end of an apply, with the nodes and the journal as they are then."""
    clock, journal = Clock(), journal or FakeJournal()
    nodes = FakeNodes.of(actions, clock, **faults)
    *_, last = apply(actions, nodes, journal, rules, clock=clock)
    return last, nodes, journal


def statuses(progress: Progress) -> dict[str, str]:
    return {action: state.status for action, state in progress.states.items()}


def test_a_start_goes_through_its_phases_and_is_published_last() -> None:
    progress, nodes, journal = carried_out([start("a1", "m/0", "n1", "n2")])
    assert statuses(progress) == {"a1": "done"}
    assert journal.phases("a1") == [Phase.START, Phase.AWAIT_READY, Phase.PUBLISH]
    assert nodes.starts() == {("m/0", "n1"): 1, ("m/0", "n2"): 1}


def test_a_stop_drains_before_it_stops_and_withdraws_last() -> None:
    progress, nodes, journal = carried_out([stop("a1", "m/0", "n1")], busy={"m/0": 3})
    assert statuses(progress) == {"a1": "done"}
    assert journal.phases("a1") == [Phase.DRAIN, Phase.AWAIT_DRAINED, Phase.STOP, Phase.WITHDRAW]
    kinds = [ask.kind for ask in nodes.taken]
    assert kinds.index(Kind.STOP) > max(i for i, kind in enumerate(kinds) if kind is Kind.ROUTERS)


def test_a_move_serves_from_the_new_place_before_the_old_one_drains() -> None:
    progress, _, journal = carried_out([move("a1", "m/0", "n1", "n2")])
    assert statuses(progress) == {"a1": "done"}
    assert journal.phases("a1") == [
        Phase.START,
        Phase.AWAIT_READY,
        Phase.PUBLISH,
        Phase.AWAIT_DRAINED,
        Phase.STOP,
        Phase.WITHDRAW,
    ]


def test_an_action_waits_for_those_that_it_comes_after() -> None:
    actions = [stop("a1", "old/0", "n1"), start("a2", "new/0", "n1", after=("a1",))]
    _, nodes, _ = carried_out(actions)
    order = [(ask.action, ask.kind) for ask in nodes.taken]
    assert order.index(("a2", Kind.START)) > order.index(("a1", Kind.STOP))


def test_two_replicas_of_a_model_are_never_replaced_at_once() -> None:
    actions = [replace("a1", "m/0", "n1"), replace("a2", "m/1", "n2"), replace("a3", "other/0", "n3")]
    _, nodes, journal = carried_out(actions)
    ends = {step.action: index for index, step in enumerate(journal.steps) if step.outcome}
    begins = {step.action: index for index, step in reversed(list(enumerate(journal.steps)))}
    assert begins["a2"] > ends["a1"]
    assert begins["a3"] < ends["a1"]
    assert nodes.starts()["m/0", "n1"] == 1


def test_no_more_actions_are_under_way_than_allowed() -> None:
    actions = [start(f"a{n}", f"m{n}/0", f"n{n}") for n in range(9)]
    clock = Clock()
    nodes = FakeNodes.of(actions, clock)
    most = 0
    for progress in apply(actions, nodes, FakeJournal(), Rules(parallel=3), clock=clock):
        most = max(most, sum(state.status == "running" for state in progress.states.values()))
    assert most == 3


def test_a_rank_that_cannot_start_ends_the_ranks_that_did() -> None:
    progress, nodes, journal = carried_out([start("a1", "m/0", "n1", "n2")], refusing=frozenset({"n2"}))
    assert statuses(progress) == {"a1": "failed"}
    assert "GPU 0 is held" in progress.states["a1"].why
    assert journal.phases("a1") == [Phase.START, Phase.UNDO]
    assert nodes.started_at == {}


def test_an_engine_that_dies_fails_its_action_with_its_last_lines() -> None:
    progress, nodes, _ = carried_out([start("a1", "m/0", "n1")], dying=frozenset({"n1"}))
    assert statuses(progress) == {"a1": "failed"}
    assert progress.states["a1"].log == ("CUDA out of memory",)
    assert nodes.started_at == {}


def test_an_engine_that_is_never_ready_is_given_up_after_its_time() -> None:
    progress, nodes, _ = carried_out([start("a1", "m/0", "n1", start_s=60)], slow={"n1": 1e9})
    assert statuses(progress) == {"a1": "failed"}
    assert "not ready in 1m00s" in progress.states["a1"].why
    assert nodes.clock.now - 1000 < 120


def test_after_a_failure_the_model_changes_no_further_and_others_go_on() -> None:
    actions = [
        replace("a1", "m/0", "n1"),
        replace("a2", "m/1", "n2", after=("a1",)),
        start("a3", "other/0", "n3"),
        start("a4", "late/0", "n4", after=("a2",)),
    ]
    progress, nodes, _ = carried_out(actions, dying=frozenset({"n1"}))
    assert statuses(progress) == {"a1": "failed", "a2": "skipped", "a3": "done", "a4": "skipped"}
    assert progress.states["a2"].why == "not started: a1 failed"
    assert ("m/1", "n2") not in nodes.starts()


def test_stop_on_error_begins_nothing_after_a_failure() -> None:
    actions = [start("a1", "m/0", "n1"), start("a2", "other/0", "n2", after=())]
    progress, _, _ = carried_out(actions, Rules(parallel=1, stop_on_error=True), refusing=frozenset({"n1"}))
    assert statuses(progress) == {"a1": "failed", "a2": "skipped"}


def test_a_replica_whose_drain_is_not_seen_by_a_router_is_not_stopped_but_served_again() -> None:
    progress, nodes, journal = carried_out([stop("a1", "m/0", "n1")], behind=("router r2 is still at 41",))
    assert statuses(progress) == {"a1": "failed"}
    assert "r2 is still at 41" in progress.states["a1"].why
    assert journal.phases("a1") == [Phase.DRAIN, Phase.AWAIT_DRAINED, Phase.RESTORE]
    assert Kind.STOP not in {ask.kind for ask in nodes.taken}


def test_requests_that_do_not_end_are_left_behind_at_the_drain_limit() -> None:
    progress, _, _ = carried_out([stop("a1", "m/0", "n1", drain_s=30)], busy={"m/0": 10_000})
    assert statuses(progress) == {"a1": "done"}
    assert any("of 10000 still in flight after 30s" in note for note in progress.states["a1"].notes)


def test_a_drain_says_how_many_requests_it_waited_for() -> None:
    progress, _, _ = carried_out([stop("a1", "m/0", "n1")], busy={"m/0": 3})
    assert any(note.startswith("drained (3 -> 0 in flight, ") for note in progress.states["a1"].notes)


def test_a_rank_that_cannot_be_proved_gone_fails_and_is_killed_first() -> None:
    progress, nodes, _ = carried_out([stop("a1", "m/0", "n1")], stuck=frozenset({"n1"}))
    assert statuses(progress) == {"a1": "failed"}
    assert "cannot be proved gone: GPU 0 is held by pid 9" in progress.states["a1"].why
    kinds = [ask.kind for ask in nodes.taken]
    assert Kind.KILL in kinds
    assert kinds.index(Kind.STOP) < kinds.index(Kind.KILL)


def test_a_silent_node_is_asked_again_and_then_given_up_as_unreachable() -> None:
    actions = [start("a1", "m/0", "n1"), start("a2", "other/0", "n2")]
    progress, nodes, _ = carried_out(actions, silent=frozenset({"n1"}))
    assert statuses(progress) == {"a1": "unreachable", "a2": "done"}
    assert sum(ask.node == "n1" and ask.kind is Kind.START for ask in nodes.taken) > 2


def test_an_interrupted_apply_finishes_what_is_under_way_and_begins_nothing() -> None:
    actions = [start("a1", "m/0", "n1"), start("a2", "other/0", "n2", after=("a1",))]
    clock = Clock()
    nodes = FakeNodes.of(actions, clock, slow={"n1": 30})
    *_, last = apply(actions, nodes, FakeJournal(), RULES, clock=clock, interrupted=lambda: int(clock.now > 1010))
    assert statuses(last) == {"a1": "done", "a2": "skipped"}


def test_a_second_interrupt_leaves_at_once_and_the_journal_says_what_is_open() -> None:
    actions = [start("a1", "m/0", "n1")]
    clock, journal = Clock(), FakeJournal()
    nodes = FakeNodes.of(actions, clock, slow={"n1": 1e6})
    states = list(
        apply(actions, nodes, journal, RULES, clock=clock, interrupted=lambda: 2 * int(clock.now > 1010))
    )
    assert states[-1].states["a1"].status == "running"
    assert [step.phase for step in journal.steps if not step.outcome][-1] is Phase.AWAIT_READY


@pytest.mark.parametrize("broken_after", range(7))
def test_what_cannot_be_journalled_is_not_done(broken_after: int) -> None:
    actions = [stop("a1", "m/0", "n1"), start("a2", "m/0", "n1", after=("a1",))]
    clock, journal = Clock(), FakeJournal(broken_after=broken_after)
    nodes = FakeNodes.of(actions, clock)
    with pytest.raises(OSError, match="No space left"):
        for _ in apply(actions, nodes, journal, RULES, clock=clock):
            pass
    begun = {(step.action, step.phase) for step in journal.steps if not step.outcome}
    assert {(ask.action, ask.phase) for ask in nodes.taken} <= begun


FAULTS = st.fixed_dictionaries(
    {
        "refusing": st.frozensets(st.sampled_from(["n0", "n1", "n2"])),
        "silent": st.frozensets(st.sampled_from(["n1", "n3"])),
        "dying": st.frozensets(st.sampled_from(["n2", "n4"])),
        "stuck": st.frozensets(st.sampled_from(["n0", "n5"])),
    }
)


@st.composite
def plans(draw: st.DrawFn) -> list[Action]:
    made: list[Action] = []
    for number in range(draw(st.integers(1, 6))):
        after = tuple(draw(st.sets(st.sampled_from([a.id for a in made])))) if made else ()
        maker = draw(st.sampled_from([start, stop, replace]))
        replica = f"m{draw(st.integers(0, 2))}/{number}"
        made.append(maker(f"a{number}", replica, f"n{number}", after=after))
    return made


@given(plans(), FAULTS, st.integers(1, 4), st.booleans())
def test_every_apply_ends_and_nothing_is_left_half_done(
    actions: list[Action], faults: dict[str, frozenset[str]], parallel: int, stop_on_error: bool
) -> None:
    progress, nodes, journal = carried_out(
        actions, Rules(parallel=parallel, stop_on_error=stop_on_error), **faults
    )
    assert progress.over
    done = {action.id for action in actions if progress.states[action.id].status == "done"}
    for action in actions:
        if progress.states[action.id].status != "skipped":
            assert set(action.after) <= done
        if action.starts and action.id not in done:
            running = {node for replica, node in nodes.started_at if replica == action.replica}
            assert running <= faults["stuck"] | faults["silent"]
    begun = [(step.action, step.phase) for step in journal.steps if not step.outcome]
    ended = [(step.action, step.phase) for step in journal.steps if step.outcome]
    assert sorted(begun) == sorted(ended)
    assert max(nodes.starts().values(), default=0) <= 1


def test_without_patience_an_engine_that_loads_is_left_to_become_ready() -> None:
    actions = [start("a1", "m/0", "n1"), start("a2", "other/0", "n2")]
    progress, nodes, _ = carried_out(actions, Rules(patient=False), slow={"n1": 1e6})
    assert statuses(progress) == {"a1": "left", "a2": "done"}
    assert ("m/0", "n1") in nodes.started_at
    assert nodes.clock.now - 1000 < 30
