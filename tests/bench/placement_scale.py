"""Generated sites for the placer: thousands of nodes, shortage, small changes, and cases that need a repack."""

from dataclasses import replace
from time import process_time

from llmgw.plan.placer import Answer, Demand, Held, Node, Problem, Spot, State, place
from llmgw.plan.placer.rng import SplitMix64
from tests.bench.placement import peak_mib

SHAPES = [(1, 1)] * 30 + [(1, 2)] * 20 + [(1, 4)] * 20 + [(1, 8)] * 15 + [(2, 8)] * 10 + [(4, 8)] * 5
LEAF, POD, BIG = 32, 16, (4, 8)


def site(count: int, *, load: float, models: int = 500, seed: int = 1) -> Problem:
    """So many nodes of 8 GPUs under leaves of 32, a fifth of them of another kind, 2 % with a short cable, 1 % off
    rail; replicas of `models` models that ask for `load` of all GPUs."""
    rng = SplitMix64(seed)
    nodes = tuple(
        Node(
            kind=int(n // LEAF % 5 == 4),
            gpus=8,
            free=8,
            leaf=n // LEAF,
            pod=n // LEAF // POD,
            fabric=0,
            short=int(rng.below(50) == 0),
            off_rail=rng.below(100) == 0,
        )
        for n in range(count)
    )
    kinds = [frozenset({0, 1})] * 8 + [frozenset({0}), frozenset({1})]
    profiles = [(SHAPES[rng.below(100)], kinds[rng.below(10)], rng.below(2) == 0) for _ in range(models)]
    room = {kind: int(sum(8 for node in nodes if node.kind == kind) * load) for kind in (0, 1)}
    asked, target = 0, int(count * 8 * load)
    numbers = [0] * models
    for _ in range(60 * count):
        model = rng.below(models)
        (width, gpus), kind, _ = profiles[model]
        size = width * gpus
        if asked + size > target or (len(kind) == 1 and room[min(kind)] < 2 * size):
            continue
        if len(kind) == 1:
            room[min(kind)] -= size
        numbers[model] += 1
        asked += size
    wanted = tuple(
        Demand(model, ordinal, (shape,), kind, one_leaf)
        for model, (shape, kind, one_leaf) in enumerate(profiles)
        for ordinal in range(numbers[model])
    )
    return Problem(nodes, wanted, (), BIG)


def running(problem: Problem, answer: Answer, *, without: int) -> Problem:
    """The site with all of that running but the first `without` replicas, which are wanted."""
    free = [node.free for node in problem.nodes]
    held = []
    for number, (demand, spot) in enumerate(zip(problem.wanted, answer.spots, strict=True)):
        if spot and number >= without:
            held.append(Held(demand, spot))
            for node in spot.nodes:
                free[node] -= spot.gpus
    nodes = tuple(replace(node, free=left) for node, left in zip(problem.nodes, free, strict=True))
    return replace(problem, nodes=nodes, wanted=problem.wanted[:without], held=tuple(held))


def scale(sizes: list[int]) -> None:
    """From empty at load 0.9, 110 % wanted, and ten replicas changed, at each size."""
    print(" nodes case         replicas  CPU s unplaced  whole  bound  slots  bound   MiB")
    for size in sizes:
        problem = site(size, load=0.9)
        answer = _row(size, "from empty", problem)
        _row(size, "10 changed", running(problem, answer, without=10))
        _row(size, "110 % wanted", site(size, load=1.1))


def _row(size: int, case: str, problem: Problem) -> Answer:
    before = process_time()
    answer = place(problem)
    took = process_time() - before
    unplaced = sum(spot is None for spot in answer.spots)
    asked = sum(d.shapes[0][0] * d.shapes[0][1] for d in problem.wanted)
    state = State(problem)
    free, partly = (
        sum(node.free for node in problem.nodes),
        sum(node.free for node in problem.nodes if node.free < 8),
    )
    whole = max(0, (free - max(asked, partly)) // 8) if asked >= partly else -state.whole_cost
    slots = whole // BIG[0]
    print(
        f"{size:>6} {case:<12} {len(problem.wanted):>8} {took:>6.2f} {unplaced:>8} {-answer.cost.whole:>6} {whole:>6} "
        f"{-answer.cost.slots:>6} {slots:>6} {peak_mib():>5}"
    )
    return answer


def fragmented(seed: int) -> Problem:
    """A small site whose replicas were put anywhere, and one or two wanted ones that may fit only after moves."""
    rng = SplitMix64(seed)
    leaves, per = 1 + rng.below(3), 3 + rng.below(6)
    count = leaves * per
    free = [8] * count
    held = []
    shapes = [(1, 1), (1, 2), (1, 4), (1, 8), (1, 1), (1, 2), (1, 4), (2, 8), (2, 4)]
    target = count * 8 * (55 + rng.below(28)) // 100
    for model in range(400):
        width, gpus = shapes[rng.below(len(shapes))]
        leaf = rng.below(leaves)
        fit = [n for n in range(count) if free[n] >= gpus and (width == 1 or n // per == leaf)]
        if 8 * count - sum(free) + width * gpus > target or len(fit) < width:
            continue
        rng.shuffle(fit)
        on = tuple(sorted(fit[:width]))
        for node in on:
            free[node] -= gpus
        held.append(Held(Demand(model, 0, ((width, gpus),), frozenset({0}), spread="none"), Spot(on, gpus)))
    nodes = tuple(Node(0, 8, free[n], n // per, 0, 0, int(rng.below(10) == 0)) for n in range(count))
    choices = [(1, 8), (2, 8), (2, 8), (2, 4), (3, 8), (4, 8)]
    wanted = tuple(
        Demand(1000 + n, 0, (choices[rng.below(6)],), frozenset({0}), one_leaf=True, spread="none")
        for n in range(1 + rng.below(2))
    )
    return Problem(nodes, wanted, tuple(held), BIG, repack=(1, 2, 3, 4, 6)[rng.below(5)])


def repack(count: int) -> None:
    """Cases that a repack solves: how many, by how many moves, and how long it took."""
    needing = solved = moves = 0
    times = []
    for seed in range(count):
        problem = fragmented(seed)
        if all(place(replace(problem, repack=0)).spots):
            continue
        before = process_time()
        answer = place(problem)
        times.append(process_time() - before)
        needing += 1
        if all(answer.spots):
            solved += 1
            moves += len(answer.moved)
    print(
        f"{needing} of {count} cases do not fit as they are (not all of them can); a repack solves {solved} by {moves} "
        f"moves; mean {sum(times) / max(1, len(times)):.2f} s, max {max(times, default=0):.2f} s CPU"
    )
