"""From drafts to actions: what waits for what, how many replicas of a model are ready meanwhile, and ids."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmgw.base import natural_key
from llmgw.engines import Launch
from llmgw.plan.document import Action, Op, Placement
from llmgw.plan.drafts import OP_ORDER, Draft, ending_of, preconditions, split_move
from llmgw.plan.launches import drain_s, start_s
from llmgw.plan.order import Waits, in_order, shortest
from llmgw.site import Profile, Site

_CHAINED = (Op.REPLACE, Op.MOVE, Op.STOP)
_RISING = (Op.START, Op.ADOPT, Op.PUBLISH)


@dataclass(frozen=True, slots=True)
class Floor:
    """Of one model: the replicas that are ready now, and the fewest that may be during the plan."""

    ready: int
    least: int


def schedule(
    site: Site,
    drafts: Sequence[Draft],
    floors: Mapping[str, Floor],
    launches_of: Callable[[Draft], tuple[Launch, ...]],
) -> tuple[Action, ...]:
    """The actions in an order in which they can be done one by one; ids count from a1 in that order."""
    drafts, waits = _without_circles(drafts)
    by_key = {draft.key: draft for draft in drafts}
    _one_by_one(drafts, floors, waits)
    rank = {draft.key: _rank(draft) for draft in drafts}
    order = in_order(waits, rank)
    ids = {key: f"a{number}" for number, key in enumerate(order, 1)}
    ready = {model: floor.ready for model, floor in floors.items()}
    actions = []
    for key in order:
        draft = by_key[key]
        after = sorted((ids[first] for first in shortest(waits, key)), key=natural_key)
        counts = _counts(draft, ready)
        ready[draft.model] = counts[-1]
        least = floors[draft.model].least if draft.model in floors else 0
        outage = min(counts) < least and min(counts) < counts[0]
        actions.append(_action(site, draft, ids[key], tuple(after), counts, outage, launches_of(draft)))
    return tuple(actions)


def _rank(draft: Draft) -> tuple[object, ...]:
    return OP_ORDER[draft.op], natural_key(draft.replica), draft.key


def _without_circles(drafts: Sequence[Draft]) -> tuple[list[Draft], Waits]:
    """Drafts and what has to wait for GPUs; a move in a circle becomes a stop and a start."""
    current = list(drafts)
    while True:
        waits = Waits(draft.key for draft in current)
        _gpus_first(current, waits)
        circle = waits.circle({draft.key: _rank(draft) for draft in current})
        moves = [draft for draft in current if draft.key in circle and draft.op is Op.MOVE]
        if not moves:
            return current, waits
        chosen = min(moves, key=_rank)
        current.remove(chosen)
        current += split_move(chosen)


def _gpus_first(drafts: Sequence[Draft], waits: Waits) -> None:
    """A start waits for whatever holds its GPUs, and for older ranks of its replica on its nodes."""
    owner: dict[tuple[str, int], str] = {}
    for draft in drafts:
        owner.update(ending_of(draft))
    stops: dict[str, list[Draft]] = {}
    for draft in drafts:
        if draft.op is Op.STOP:
            stops.setdefault(draft.replica, []).append(draft)
    for draft in drafts:
        if draft.starts and draft.op in (Op.START, Op.REPLACE, Op.MOVE):
            for seat in draft.starts.nodes:
                for gpu in seat.gpus:
                    first = owner.get((seat.n, gpu))
                    if first:
                        waits.must(draft.key, first)
            nodes = {seat.n for seat in draft.starts.nodes}
            for stop in stops.get(draft.replica, ()):
                if stop.ends and nodes & {seat.n for seat in stop.ends.nodes}:
                    waits.must(draft.key, stop.key)


def _one_by_one(drafts: Sequence[Draft], floors: Mapping[str, Floor], waits: Waits) -> None:
    """Inside a model: changes one after the other, first what adds where the floor needs it, last what takes away."""
    by_model: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_model.setdefault(draft.model, []).append(draft)
    for model, own in sorted(by_model.items()):
        floor = floors.get(model)
        if floor is None:
            continue
        own.sort(key=_rank)
        chain = [draft for draft in own if draft.op in _CHAINED and (draft.old_ready or draft.op is not Op.STOP)]
        chain.sort(key=lambda draft: (draft.op is Op.STOP, natural_key(draft.replica)))
        for first, then in pairwise(chain):
            waits.wish(then.key, first.key)
        for stop in (draft for draft in chain if draft.op is Op.STOP):
            for kept in (draft for draft in own if draft.op in _RISING and draft.replica == stop.replica):
                waits.wish(stop.key, kept.key)
        dips = [draft for draft in chain if draft.op is not Op.MOVE and draft.old_ready]
        if dips and floor.ready - 1 < floor.least:
            for rising in (draft for draft in own if draft.op in _RISING):
                for dip in dips:
                    waits.wish(dip.key, rising.key)


def _counts(draft: Draft, ready: Mapping[str, int]) -> tuple[int, ...]:
    """The model's ready replicas before, during and after the action."""
    now = ready.get(draft.model, 0)
    lost = int(draft.old_ready)
    if draft.op in (Op.STOP, Op.FORGET, Op.DRAIN):
        return now, now - lost
    if draft.op is Op.REPLACE:
        return now, now - lost, now - lost + 1
    if draft.op is Op.MOVE:
        return now, now + 1, now + 1 - lost
    return now, now + 1


def _action(
    site: Site,
    draft: Draft,
    action_id: str,
    after: tuple[str, ...],
    counts: tuple[int, ...],
    outage: bool,  # noqa: FBT001
    launches: tuple[Launch, ...],
) -> Action:
    starting, ending = draft.op in (*_RISING, Op.REPLACE, Op.MOVE), draft.op in _CHAINED
    profile = _profile(site, draft)
    nodes = [seat.n for seat in draft.ends.nodes] if draft.ends else []
    nodes += [seat.n for seat in draft.starts.nodes if seat.n not in nodes] if draft.starts else []
    return Action(
        id=action_id,
        op=draft.op,
        replica=draft.replica,
        nodes=tuple(nodes),
        after=after,
        why=draft.why,
        pre=preconditions(draft),
        starts=draft.starts,
        launches=launches if starting else (),
        ends=draft.ends,
        drain_s=drain_s(site, profile) if ending and not draft.hopeless else 0,
        stop_s=site.settings.timeouts.stop_s,
        start_s=start_s(site, profile) if starting and profile else 0,
        ready=counts,
        outage=outage,
    )


def _profile(site: Site, draft: Draft) -> Profile | None:
    """The catalogue's profile of the replica, None where it has none (any more)."""
    if draft.member:
        return site.catalogue.models[draft.member.model].profiles[draft.member.profile]
    model = site.catalogue.models.get(draft.model)
    name = draft.replica.partition("/")[0].partition(":")[2]
    return model.profiles.get(name or model.default) if model else None


def placement_key(placement: Placement) -> tuple[object, ...]:
    """The order of placements in a plan."""
    return natural_key(placement.replica)
