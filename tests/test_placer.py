"""The placer on small problems in whole numbers: against every placement there is, against plain packers, and its
own counters against counting anew."""

from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from llmgw.plan.placer import Cost, Demand, Held, Node, Problem, Spot, State, find, place
from llmgw.plan.placer.bound import LEVELS, bound
from llmgw.plan.placer.canon import canonical
from llmgw.plan.placer.rng import SplitMix64

EXAMPLES = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)


def on_problems(few: int, many: int = 300) -> pytest.MarkDecorator:
    """So many examples in a fast run, and more of them in a slow one."""
    slow = pytest.param(many, id="many problems", marks=pytest.mark.slow)
    return pytest.mark.parametrize("examples", [pytest.param(few, id="few problems"), slow])


def holds_of(examples: int, *problems: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
    """Runs a property on so many examples."""
    return lambda claim: settings(EXAMPLES, max_examples=examples)(given(*problems)(claim))()


@st.composite
def problems(draw: st.DrawFn, *, most_nodes: int = 12, most_wanted: int = 8) -> Problem:
    """Nodes under a few leaves, some short, off-rail or closed; demands of one to three nodes; some that run."""
    leaves = draw(st.integers(1, 4))
    nodes = []
    for _ in range(draw(st.integers(1, most_nodes))):
        leaf = draw(st.integers(0, leaves - 1))
        gpus = draw(st.sampled_from((8, 8, 4)))
        nodes.append(
            Node(
                kind=draw(st.integers(0, 1)),
                gpus=gpus,
                free=gpus,
                leaf=leaf,
                pod=leaf // 2,
                fabric=draw(st.just(0)) if leaf < 3 else 1,
                short=draw(st.sampled_from((0, 0, 0, 1))),
                off_rail=draw(st.sampled_from((False, False, True))),
                open=draw(st.sampled_from((True, True, True, False))),
                room=draw(st.sampled_from((1 << 30, 1 << 30, 2))),
            )
        )
    demands = []
    for model in range(draw(st.integers(1, 4))):
        shape = draw(st.sampled_from(((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (3, 8))))
        kinds = draw(st.sampled_from((frozenset({0, 1}), frozenset({0}), frozenset({1}))))
        one_leaf, spread = draw(st.booleans()), draw(st.sampled_from(("leaf", "leaf", "node", "none")))
        priority = draw(st.sampled_from((50, 50, 90)))
        count = draw(st.integers(1, 3))
        demands += [Demand(model, n, (shape,), kinds, one_leaf, priority, spread) for n in range(count)]
    return Problem(tuple(nodes), tuple(demands[:most_wanted]), (), (draw(st.integers(1, 3)), 8))


def spots_of(problem: Problem, demand: Demand) -> Iterator[Spot]:
    """Every spot that the hard rules allow on an empty site."""
    for number, (count, gpus) in enumerate(demand.shapes):
        fit = [
            n
            for n, node in enumerate(problem.nodes)
            if node.open and node.kind in demand.kinds and node.free >= gpus and node.room > 0
        ]
        for chosen in combinations(fit, count):
            nodes = [problem.nodes[n] for n in chosen]
            apart = len({node.leaf for node in nodes}) > 1
            if count > 1 and (len({node.fabric for node in nodes}) > 1 or (demand.one_leaf and apart)):
                continue
            yield Spot(chosen, gpus, number)


def fits(problem: Problem, spots: list[Spot | None]) -> bool:
    """Whether no node is asked for more than it has."""
    gpus, ranks = [0] * len(problem.nodes), [0] * len(problem.nodes)
    for spot in spots:
        for node in spot.nodes if spot else ():
            gpus[node] += spot.gpus if spot else 0
            ranks[node] += 1
    return all(
        used <= node.free and number <= node.room
        for used, number, node in zip(gpus, ranks, problem.nodes, strict=True)
    )


def counted(problem: Problem, spots: list[Spot | None]) -> Cost:
    """The cost of a placement, counted from nothing and without the placer's counters."""
    priorities = sorted({demand.priority for demand in problem.wanted})
    base = sum(demand.shapes[0][0] * demand.shapes[0][1] for demand in problem.wanted) + 1
    free = [node.free for node in problem.nodes]
    unplaced = shapes = pods = leaves = short = off_rail = waits = 0
    for demand, spot in zip(problem.wanted, spots, strict=True):
        if spot is None:
            nodes, gpus = demand.shapes[0]
            unplaced += nodes * gpus * base ** priorities.index(demand.priority)
            continue
        shapes += spot.shape
        on = [problem.nodes[node] for node in spot.nodes]
        for node in spot.nodes:
            free[node] -= spot.gpus
        waits += sum(node.freed > 0 for node in on)
        if len(on) > 1:
            pods += len({node.pod for node in on}) - 1
            leaves += len({node.leaf for node in on}) - 1
            short += sum(node.short for node in on)
            off_rail += sum(node.off_rail and not node.short for node in on)
    whole: dict[int, int] = {}
    good: dict[int, int] = {}
    for node, left in zip(problem.nodes, free, strict=True):
        if node.open and left == node.gpus:
            whole[node.leaf] = whole.get(node.leaf, 0) + 1
            if not node.short and node.gpus >= problem.big[1]:
                good[node.leaf] = good.get(node.leaf, 0) + 1
    return Cost(
        unplaced, 0, shapes, pods, leaves, exposed(problem, spots), short, off_rail,
        -sum(n // problem.big[0] for n in good.values()), -sum(whole.values()),
        -sum(n * n for n in whole.values()), waits,
    )  # fmt: skip


def exposed(problem: Problem, spots: list[Spot | None]) -> int:
    """Models of two or more replicas that one leaf, or one node, takes down."""
    areas: dict[int, list[set[int]]] = {}
    members: dict[int, int] = {}
    for demand, spot in zip(problem.wanted, spots, strict=True):
        if demand.spread == "none":
            continue
        members[demand.model] = members.get(demand.model, 0) + 1
        if spot:
            area = (
                set(spot.nodes) if demand.spread == "node" else {problem.nodes[node].leaf for node in spot.nodes}
            )
            areas.setdefault(demand.model, []).append(area)
    return sum(
        count >= 2 and (len(areas.get(model, [])) < 2 or bool(set.intersection(*areas[model])))
        for model, count in members.items()
    )


@on_problems(20)
def test_an_answer_keeps_the_hard_rules_and_costs_what_it_says(examples: int) -> None:
    @holds_of(examples, problems())
    def claim(problem: Problem) -> None:
        answer = place(problem)
        for demand, spot in zip(problem.wanted, answer.spots, strict=True):
            assert spot is None or spot in set(spots_of(problem, demand))
        assert fits(problem, list(answer.spots))
        assert answer.cost == counted(problem, list(answer.spots))


@on_problems(40)
def test_on_small_sites_no_placement_at_all_is_better(examples: int) -> None:
    @holds_of(examples, problems(most_nodes=5, most_wanted=3))
    def claim(problem: Problem) -> None:
        choices = [[None, *spots_of(problem, demand)] for demand in problem.wanted]
        best = min(counted(problem, list(spots)) for spots in product(*choices) if fits(problem, list(spots)))
        assert place(problem).cost == best


def plainly(problem: Problem, tightest: bool) -> list[Spot | None]:
    """Plain packing: demands as they come, each on the first nodes, or those with the fewest GPUs left over."""
    placed: list[Spot | None] = []
    for demand in problem.wanted:
        rest = [None] * (len(problem.wanted) - len(placed) - 1)
        options = [spot for spot in spots_of(problem, demand) if fits(problem, [*placed, spot, *rest])]

        def over(spot: Spot) -> tuple[int, ...]:
            used = [0] * len(problem.nodes)
            for other in placed:
                for node in other.nodes if other else ():
                    used[node] += other.gpus if other else 0
            return sum(
                problem.nodes[n].free - used[n] - spot.gpus for n in spot.nodes
            ) if tightest else 0, *spot.nodes

        placed.append(min(options, key=over) if options else None)
    return placed


@on_problems(20)
def test_plain_first_fit_and_plain_best_fit_are_never_better(examples: int) -> None:
    @holds_of(examples, problems())
    def claim(problem: Problem) -> None:
        cost = place(problem).cost
        assert cost <= counted(problem, plainly(problem, tightest=False))
        assert cost <= counted(problem, plainly(problem, tightest=True))


@on_problems(40)
def test_the_counters_are_right_after_any_puts_and_lifts(examples: int) -> None:
    @holds_of(examples, problems(), st.integers(0, 2**64 - 1))
    def claim(problem: Problem, seed: int) -> None:
        rng, state = SplitMix64(seed), State(problem)
        for _ in range(30):
            number = rng.below(len(problem.wanted))
            if state.spots[number]:
                state.lift(number)
            else:
                spot = find(state, number, rng)
                if spot:
                    state.put(number, spot)
            assert state.cost() == counted(problem, list(state.spots))


@on_problems(20)
def test_the_bound_is_never_above_what_was_found(examples: int) -> None:
    @holds_of(examples, problems())
    def claim(problem: Problem) -> None:
        least, cost = bound(State(problem)), place(problem).cost
        assert tuple(cost[:LEVELS]) >= least


@on_problems(15)
def test_the_canonical_form_costs_the_same_and_is_its_own(examples: int) -> None:
    @holds_of(examples, problems())
    def claim(problem: Problem) -> None:
        spots = list(place(problem).spots)
        again = canonical(problem, spots)
        assert again == spots
        assert counted(problem, again) == counted(problem, spots)


def test_low_names_come_first_among_equals() -> None:
    nodes = tuple(Node(0, 8, 8, leaf, 0, 0) for leaf in (0, 0, 1, 1))
    wanted = tuple(Demand(0, n, ((1, 8),), frozenset({0}), spread="none") for n in range(2))
    assert [spot.nodes for spot in place(Problem(nodes, wanted)).spots if spot] == [(0,), (1,)]


def test_what_runs_is_moved_only_when_asked_and_no_more_than_needed() -> None:
    nodes = tuple(Node(0, 8, free, 0, 0, 0) for free in (7, 7, 8, 8))
    one = Demand(0, 0, ((1, 1),), frozenset({0}), spread="none")
    held = tuple(Held(one, Spot((node,), 1)) for node in (0, 1))
    wanted = (Demand(1, 0, ((3, 8),), frozenset({0}), one_leaf=True),)
    assert place(Problem(nodes, wanted, held)).spots == (None,)
    answer = place(Problem(nodes, wanted, held, repack=4))
    assert answer.spots[0] is not None
    assert len(answer.moved) == 1


def test_gpus_of_high_priority_are_never_given_up_for_more_gpus_of_low() -> None:
    nodes = (Node(0, 8, 8, 0, 0, 0), Node(0, 8, 8, 0, 0, 0))
    small = Demand(0, 0, ((1, 1),), frozenset({0}), priority=90)
    big = Demand(1, 0, ((2, 8),), frozenset({0}), priority=10)
    first, second = place(Problem(nodes, (big, small))).spots
    assert first is None
    assert second is not None


def test_splitmix64_gives_the_numbers_of_its_reference() -> None:
    rng = SplitMix64(1234567)
    assert [rng.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
