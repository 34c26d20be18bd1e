"""How replicas are judged, and what may be repaired without asking."""

from datetime import UTC, datetime, timedelta

import pytest

from llmgw.observed import Incarnation, Run
from llmgw.plan import Action, Body, Inputs, Op, Options, StateInput
from llmgw.plan.judge import Condition, Health, Patience, Reading, judge
from llmgw.plan.repair import Retry, after_failure, is_quiet, repairs
from tests.fakes.actions import incumbent, move, replace, start, stop

NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
PATIENCE = Patience(start_s=600, unreachable_after_s=90, lost_after_s=900)
READY = Reading(ready=True, tokens=10)
BUSY = Reading(ready=False, why="gives no token: timed out", in_flight=30, tokens=10)


def copy(
    *nodes: str, states: dict[int, str] | None = None, silent: tuple[str, ...] = (), age_s: float = 3600
) -> Incarnation:
    """A start of m/0 on the nodes, every rank running but for `states`; an empty state: that rank was not seen."""
    ranks = {}
    for rank, node in enumerate(nodes):
        state = (states or {}).get(rank, "running")
        if state:
            run = Run(
                replica="m/0",
                rank=rank,
                plan="p1",
                action="a1",
                spec="s",
                state=state,  # type: ignore[arg-type]
                supervisor="systemd",
                unit="llmgw-m-0",
                port=18000,
                nodes=nodes,
                started_at=NOW - timedelta(seconds=age_s),
                exit_status="exit-code, status 1" if state == "exited" else "",
            )
            ranks[rank] = (node, run)
    return Incarnation("m/0", "p1", "a1", "s", nodes, ranks, frozenset(silent))


def judged(
    one: Incarnation, reading: Reading | None, before: Condition | None = None, **silent: float
) -> Condition:
    since = {node: NOW - timedelta(seconds=seconds) for node, seconds in silent.items()}
    return judge(one, reading, before, silent_since=since, patience=PATIENCE, now=NOW)


def condition(health: Health, *, tokens: int | None = 10, suspect: int = 0, age_s: float = 3600) -> Condition:
    return Condition(health, NOW - timedelta(seconds=age_s), "before", tokens, suspect)


def test_one_token_makes_a_replica_ready() -> None:
    assert judged(copy("n1"), READY).health is Health.READY


def test_a_young_replica_without_a_token_is_starting_and_an_old_one_has_failed() -> None:
    assert judged(copy("n1", age_s=60), BUSY).health is Health.STARTING
    found = judged(copy("n1", age_s=3600), BUSY, condition(Health.STARTING))
    assert found.health is Health.FAILED
    assert found.why == "not ready in 10m00s: gives no token: timed out"


def test_a_rank_that_ended_fails_the_replica_although_its_head_answers() -> None:
    found = judged(copy("n1", "n2", states={1: "exited"}), READY, condition(Health.READY))
    assert found.health is Health.FAILED
    assert found.why == "rank 1 on n2 has ended (exit-code, status 1)"


def test_a_rank_of_which_nothing_is_left_fails_the_replica() -> None:
    assert judged(copy("n1", "n2", states={1: ""}), READY).why == "rank 1 is gone from n2"


def test_a_replica_that_gives_no_token_is_suspect_first_and_then_stalled() -> None:
    first = judged(copy("n1"), BUSY, condition(Health.READY))
    assert (first.health, first.suspect) == (Health.READY, 1)
    second = judged(copy("n1"), BUSY, first)
    assert (second.health, second.suspect) == (Health.STALLED, 2)
    assert judged(copy("n1"), BUSY, second).health is Health.STALLED
    assert judged(copy("n1"), READY, second).health is Health.READY


def test_a_busy_replica_whose_counter_moves_is_never_stalled() -> None:
    before = condition(Health.READY, tokens=10)
    for tokens in range(11, 40):
        before = judged(copy("n1"), Reading(ready=False, why="timed out", in_flight=99, tokens=tokens), before)
        assert before.health is Health.READY
        assert before.suspect == 0


@pytest.mark.parametrize(
    ("silent_s", "health"),
    [(30, Health.READY), (91, Health.UNREACHABLE), (899, Health.UNREACHABLE), (901, Health.LOST)],
)
def test_a_silent_node_is_unreachable_and_lost_after_their_times(silent_s: float, health: Health) -> None:
    found = judged(copy("n1", silent=("n1",)), None, condition(Health.READY), n1=silent_s)
    assert found.health is health


def test_a_node_that_returns_with_its_replica_is_ready_at_once() -> None:
    assert judged(copy("n1"), READY, condition(Health.LOST)).health is Health.READY


def test_a_condition_keeps_its_beginning_while_it_lasts() -> None:
    before = condition(Health.READY)
    assert judged(copy("n1"), READY, before).since == before.since
    assert judged(copy("n1", states={0: "exited"}), None, before).since == NOW


def test_the_wait_doubles_with_each_failure_up_to_its_bound() -> None:
    waits, retry = [], None
    for _ in range(8):
        retry = after_failure(retry, base_s=10, max_s=300, now=NOW)
        waits.append((retry.next - NOW).total_seconds())
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


def test_failures_are_forgotten_after_a_quiet_time() -> None:
    retry = Retry(3, NOW - timedelta(seconds=3000), NOW)
    assert is_quiet(retry, condition(Health.READY, age_s=2000), reset_s=1800, now=NOW)
    assert not is_quiet(retry, condition(Health.READY, age_s=1000), reset_s=1800, now=NOW)
    assert not is_quiet(retry, condition(Health.STALLED, age_s=2000), reset_s=1800, now=NOW)


# -- what of a plan is repaired -------------------------------------------------------------------------------------
def body(*actions: Action) -> Body:
    inputs = Inputs(catalogue="", inventory="", fabric={}, state=StateInput(lineage="", serial=0), observed="")
    return Body(
        llmgw="0",
        placer=1,
        options=Options(),
        inputs=inputs,
        applyable=True,
        complete=True,
        placements=(),
        actions=actions,
    )


def kept(*actions: Action, tries: dict[str, Retry] | None = None, **health: Health) -> list[str]:
    """The actions that are carried out, where the copies of plan `old` action `a9` are as `health` says by model."""
    conditions = {(f"{model}/0", "old", "a9"): condition(one) for model, one in health.items()}
    return [action.id for action in repairs(body(*actions), conditions, tries or {}, now=NOW).actions]


def test_what_is_missing_is_started_and_what_is_well_is_left_alone() -> None:
    actions = [start("a1", "new/0", "n1"), replace("a2", "m/0", "n2"), move("a3", "k/0", "n3", "n4")]
    assert kept(*actions, m=Health.READY, k=Health.STARTING) == ["a1"]


@pytest.mark.parametrize("health", [Health.FAILED, Health.STALLED, Health.LOST])
def test_a_broken_copy_is_replaced_without_waiting_for_its_requests(health: Health) -> None:
    found = repairs(body(replace("a1", "m/0", "n1")), {("m/0", "old", "a9"): condition(health)}, {}, now=NOW)
    assert [(action.id, action.drain_s) for action in found.actions] == [("a1", 0)]


def test_an_unreachable_copy_is_left_where_it_is() -> None:
    assert kept(replace("a1", "m/0", "n1"), m=Health.UNREACHABLE) == []


def test_a_replica_that_keeps_failing_waits_for_its_turn() -> None:
    later = {"m/0": Retry(2, NOW, NOW + timedelta(seconds=20))}
    found = repairs(body(start("a1", "m/0", "n1")), {}, later, now=NOW)
    assert found.actions == ()
    assert found.waiting == {"m/0": "failed 2 times, is started again in 20s"}
    assert kept(start("a1", "m/0", "n1"), tries={"m/0": Retry(2, NOW, NOW)}) == ["a1"]


def test_nothing_is_stopped_that_the_catalogue_only_wants_no_more() -> None:
    assert kept(stop("a1", "m/0", "n1"), m=Health.READY) == []


def test_the_older_of_two_copies_is_stopped() -> None:
    older = stop("a1", "m/0", "n1")
    conditions = {
        ("m/0", "old", "a9"): condition(Health.READY),
        ("m/0", "new", "a1"): condition(Health.READY),
    }
    assert [action.id for action in repairs(body(older), conditions, {}, now=NOW).actions] == ["a1"]


def test_what_comes_after_something_left_out_is_left_out_too() -> None:
    actions = [stop("a1", "m/0", "n1"), start("a2", "k/0", "n1", after=("a1",))]
    assert kept(*actions, m=Health.READY) == []


def test_only_what_is_ready_is_published() -> None:
    adopt = start("a1", "m/0", "n1").model_copy(update={"op": Op.ADOPT, "ends": None})
    assert kept(adopt, m=Health.STARTING) == []
    assert kept(adopt, m=Health.READY) == ["a1"]
    assert incumbent("n1").plan == "old"
