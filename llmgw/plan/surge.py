"""Room for starting a replica's new version before its old one stops, where its model could not spare it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llmgw.plan.copies import Copy
from llmgw.plan.placer import Answer, Spot, State, find
from llmgw.plan.roster import Fate, Member
from llmgw.plan.schedule import Floor
from llmgw.plan.task import Task


def surge(task: Task, answer: Answer, floors: Mapping[str, Floor], serves: Mapping[str, bool]) -> dict[str, Spot]:
    """New spots, by replica, for replacements in place that would take their model below its floor.

    A replica that is placed in this plan counts as ready by then. `serves` says which replicas are ready now. A
    spot never shares a node with the old copy: the two would have one unit name. GPUs that are free come
    first, those of copies that have moved before come last.
    """
    numbers = _needing(task, answer, floors, serves)
    if not numbers:
        return {}
    state = _state_of(task, answer)
    found: dict[str, Spot] = {}
    moved: list[int] = []
    for number in numbers:
        spot = _beside(state, number)
        if spot is None and moved:
            for other in moved:
                state.lift(other)
            moved = []
            spot = _beside(state, number)
        if spot is not None:
            _put_too(state, number, spot)
            moved.append(number)
            found[task.held[number - len(task.wanted)].name] = spot
    return found


def _needing(task: Task, answer: Answer, floors: Mapping[str, Floor], serves: Mapping[str, bool]) -> list[int]:
    """The numbers of held items that cannot be replaced in place without going below the floor."""
    coming: dict[str, int] = {}
    for member, spot in zip(task.wanted, answer.spots, strict=True):
        if spot and member.fate is Fate.START:
            coming[member.model] = coming.get(member.model, 0) + 1
    for member in task.held:
        if member.fate is Fate.AGAIN:
            coming[member.model] = coming.get(member.model, 0) + 1
    needing = []
    for number, member in enumerate(task.held, len(task.wanted)):
        floor = floors.get(member.model)
        if member.fate is Fate.REPLACE and serves.get(member.name) and floor:
            ready = floor.ready + coming.get(member.model, 0)
            if ready - 1 < floor.least <= floor.ready:
                needing.append(number)
    return needing


def _state_of(task: Task, answer: Answer) -> State:
    state = State(task.problem)
    for number, spot in enumerate(answer.spots):
        if spot:
            state.put(number, spot)
    for number, spot in answer.moved.items():
        state.lift(len(task.wanted) + number)
        state.put(len(task.wanted) + number, spot)
    return state


def _beside(state: State, number: int) -> Spot | None:
    """The best spot for the item on nodes that it is not on."""
    own = state.homes[number].nodes
    with_room = [state.room[node] for node in own]
    for node in own:
        state.set_room(node, 0)
    spot = find(state, number)
    for node, room in zip(own, with_room, strict=True):
        state.set_room(node, room)
    return spot


def _put_too(state: State, number: int, spot: Spot) -> None:
    """Places a second copy of the item."""
    state.put(state.add(state.items[number]), spot)


def moved_away(members: Sequence[Member], found: Mapping[str, Spot]) -> tuple[Member, ...]:
    """The members with those that surge as ones that go elsewhere."""
    return tuple(
        replace(member, fate=Fate.ELSEWHERE, why=f"{member.why}; started elsewhere first: {_reason(member.copy)}")
        if member.name in found
        else member
        for member in members
    )


def _reason(copy: Copy | None) -> str:
    assert copy is not None
    return f"without {copy.name} too few of {copy.model} would be ready"
