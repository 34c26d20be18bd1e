"""What would give a replica a place: tried out on the board, one change at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from llmgw.base import count as count_of
from llmgw.plan.board import CLOSED, Board
from llmgw.plan.kinds import Reason, refuse
from llmgw.plan.nodes import NodeState
from llmgw.plan.placer import Node, Problem, Spot, State, find, moved, repack
from llmgw.plan.placer.repack import movable_held
from llmgw.plan.roster import Member

_TRIES = 8
_REPACK_ROUNDS = 500
_REPACKS = (1, 2, 4)
_LARGE = 2048  # nodes from which on single nodes are not tried out


def would_fit(board: Board, member: Member) -> list[str]:
    """Changes each of which would do, in words; empty where nothing that was tried helps."""
    if not board.state.items[board.numbers[member.name]].kinds:
        return list(_missing(board, member))
    found = [*_repacked(board, member), *_topology(board, member), *_opened(board, member)]
    found += [*_released(board, member), *_smaller(board, member)]
    return found or list(_added(board, member))


def _fits(state: State, number: int) -> Spot | None:
    return find(state, number) if state.spots[number] is None else None


def _missing(board: Board, member: Member) -> Iterable[str]:
    """What to install or to fetch, where nodes lack nothing else; how to make a model fit that is too big."""
    model = board.thought.asked.site.catalogue.models[member.model]
    profile = model.profiles[member.profile]
    refusals = board.thought.eligibility.refusals(member.model, member.profile)
    lacking = set()
    for number, refusal in refusals.items():
        kind = board.thought.eligibility.kinds.kinds[number]
        engines, weights = (*kind.engines, (profile.engine, profile.version)), (*kind.weights, model.source.path)
        if refuse(model, member.profile, replace(kind, engines=engines, weights=weights)) is None:
            lacking.add(refusal.reason)
    if Reason.ENGINE in lacking:
        version = f"{profile.engine} {profile.version}"
        yield f"where {version} is installed"
    if Reason.WEIGHTS in lacking:
        yield f"where its weights are ({model.source.path})"
    if any(refusal.reason is Reason.MEMORY_FIT for refusal in refusals.values()):
        yield "split over more GPUs (tensor_parallel, pipeline_parallel), or on GPUs of more memory"


def _repacked(board: Board, member: Member) -> Iterable[str]:
    """With --repack N, and what that moves."""
    if member.copy is not None and board.numbers[member.name] >= len(board.thought.task.wanted):
        return  # it runs, and would be put back where it is
    if not _worth_moving(board.state, board.numbers[member.name]):
        return
    for moves in _REPACKS:
        state = _again(board, board.thought.task.problem)
        number = board.numbers[member.name]
        enough = (state.unplaced - state.weights[number], moves + 1)
        repack(state, enough, moves=moves, rounds=_REPACK_ROUNDS)
        if state.spots[number] is not None:
            gone = moved(state)
            yield f"with --repack {len(gone)} ({', '.join(_moves(board, gone))})"
            return


def _worth_moving(state: State, number: int) -> bool:
    """Whether something may be moved, and what is free is enough: moves free no GPU."""
    nodes, gpus = min(state.items[number].shapes, key=lambda shape: shape[0] * shape[1])
    free = sum(left for left, kind in zip(state.free, state.class_of, strict=True) if kind >= 0)
    return free >= nodes * gpus and bool(movable_held(state))


def _moves(board: Board, gone: dict[int, Spot]) -> list[str]:
    found = []
    for number, spot in sorted(gone.items()):
        member = board.thought.task.held[number]
        old = " ".join(member.copy.nodes) if member.copy else ""
        found.append(f"{member.name} {old} -> {' '.join(board.ground.nodes[node].name for node in spot.nodes)}")
    return found


def _again(board: Board, problem: Problem) -> State:
    """The board's placement in a variant of its problem with the same items."""
    state = State(problem)
    for number in range(len(problem.wanted)):
        spot = board.state.spots[number]
        if spot:
            state.put(number, spot)
    for number in state.homes:
        if board.state.spots[number] is None:
            state.lift(number)
    return state


def _topology(board: Board, member: Member) -> Iterable[str]:
    number = board.numbers[member.name]
    demand = board.state.items[number]
    if demand.one_leaf:
        board.state.items[number] = replace(demand, one_leaf=False)
        fits = _fits(board.state, number)
        board.state.items[number] = demand
        if fits:
            yield "with topology: preferred"


def _opened(board: Board, member: Member) -> Iterable[str]:
    """With a node given back, or when one answers."""
    demand = board.state.items[board.numbers[member.name]]
    nodes = board.thought.task.problem.nodes
    closed = [
        n for n, node in enumerate(board.ground.nodes) if node.state in CLOSED and nodes[n].kind in demand.kinds
    ]
    if not closed or not _fits_with(board, member, closed):
        return
    if len(nodes) <= _LARGE:
        for number in closed[:_TRIES]:
            if _fits_with(board, member, [number]):
                yield _opening(board, [number])
                return
    yield _opening(board, closed[:_TRIES])


def _fits_with(board: Board, member: Member, opened: Sequence[int]) -> bool:
    problem = board.thought.task.problem
    nodes = list(problem.nodes)
    for number in opened:
        nodes[number] = replace(nodes[number], open=True)
    state = _again(board, replace(problem, nodes=tuple(nodes)))
    return _fits(state, board.numbers[member.name]) is not None


def _opening(board: Board, numbers: Sequence[int]) -> str:
    names = " and ".join(board.ground.nodes[n].name for n in numbers)
    state = board.ground.nodes[numbers[0]].state
    one = len(numbers) == 1
    if state in (NodeState.CORDONED, NodeState.DRAINING):
        return f"when {names} {'is' if one else 'are'} uncordoned"
    if state is NodeState.SLURM:
        return f"when Slurm gives up {names}"
    return f"when {names} {'answers' if one else 'answer'}"


def _released(board: Board, member: Member) -> Iterable[str]:
    """When a process that is not llmgw's leaves its GPUs."""
    number = board.numbers[member.name]
    problem = board.thought.task.problem
    held = [
        n
        for n, node in enumerate(board.ground.nodes)
        if node.taken and node.state is NodeState.OK and problem.nodes[n].kind in board.state.items[number].kinds
    ]
    for one in held[:_TRIES]:
        node = problem.nodes[one]
        freed: list[Node] = list(problem.nodes)
        freed[one] = replace(node, free=node.free + len(board.ground.nodes[one].taken))
        if _fits(_again(board, replace(problem, nodes=tuple(freed))), number):
            who = sorted(set(board.ground.nodes[one].taken.values()))
            yield f"when {', '.join(who)} leaves {board.ground.nodes[one].name}"
            return


def _added(board: Board, member: Member) -> Iterable[str]:
    """With more nodes that can run it: how many where the most are, under one leaf or on one fabric."""
    state = board.state
    demand = state.items[board.numbers[member.name]]
    count, gpus = demand.shapes[0]
    room: dict[int, int] = {}
    for number, kind in enumerate(state.class_of):
        node = state.nodes[number]
        if kind >= 0 and node.kind in demand.kinds and state.free[number] >= gpus and node.fabric >= 0:
            area = node.leaf if demand.one_leaf else node.fabric
            room[area] = room.get(area, 0) + 1
    missing = count - max(room.values(), default=0) if count > 1 else 1
    each = " each" if missing > 1 else ""
    where = "" if count == 1 else " under one leaf" if demand.one_leaf else " on one fabric"
    yield f"with {count_of(missing, 'more node')} of {count_of(gpus, 'free GPU')}{each}{where}"


def _smaller(board: Board, member: Member) -> Iterable[str]:
    """With a replica fewer of a model of lower priority."""
    catalogue = board.thought.asked.site.catalogue
    number = board.numbers[member.name]
    priority = catalogue.models[member.model].priority
    members = (*board.thought.task.wanted, *board.thought.task.held)
    lower = [
        n for n, other in enumerate(members)
        if catalogue.models[other.model].priority < priority and board.state.spots[n] is not None
    ]  # fmt: skip
    lower.sort(key=lambda n: (catalogue.models[members[n].model].priority, -n))
    for other in lower[: 4 * _TRIES]:
        spot = board.state.lift(other)
        fits = _fits(board.state, number)
        board.state.put(other, spot)
        if fits:
            name = members[other].model
            yield f"with one replica fewer of {name} (priority {catalogue.models[name].priority})"
            return
