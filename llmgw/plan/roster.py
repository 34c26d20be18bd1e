"""Which replicas there are to be, which copy is each of them, and which copies have to end."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from llmgw.base import count, natural_key, replica_name
from llmgw.plan.choice import View, leaving, preference, worst_first
from llmgw.plan.copies import Copy, CopyState, PublishedAs
from llmgw.plan.kinds import Eligibility
from llmgw.plan.nodes import QUIET, Ground, NodeState
from llmgw.plan.scope import Scope
from llmgw.plan.spec import Spec, changes, spec_of
from llmgw.plan.standing import Standing
from llmgw.site import Catalogue, Shape

WANTED = "wanted and not running"
"""Why a replica is started of which nothing is known."""


class Fate(Enum):
    """What becomes of a replica. KEEP: it runs as it should. HOLD: it should change, but its nodes do not answer.
    REPLACE: it is started anew where it is. ELSEWHERE: it has to leave where it is. START: nothing of it runs.
    AGAIN: nothing of it runs, and it is started again where it last ran."""

    KEEP = auto()
    HOLD = auto()
    REPLACE = auto()
    ELSEWHERE = auto()
    START = auto()
    AGAIN = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """A replica that is to be. `profile` is the catalogue's name of it; `why` is in the words of an action."""

    name: str
    model: str
    profile: str
    ordinal: int
    spec: Spec
    mark: str
    copy: Copy | None
    fate: Fate
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """A copy that is to end, and why."""

    copy: Copy
    why: str


@dataclass(frozen=True, slots=True)
class Roster:
    """`stale` are copies that cannot be ended, because no node of theirs answers. `bystanders` are copies that
    the operator's scope leaves alone."""

    members: tuple[Member, ...]
    endings: tuple[Ending, ...]
    stale: tuple[Ending, ...] = ()
    bystanders: tuple[Copy, ...] = ()


def call_roll(
    catalogue: Catalogue,
    ground: Ground,
    found: Sequence[Copy],
    standing: Standing,
    *,
    published: Mapping[str, PublishedAs],
    scope: Scope,
    eligibility: Eligibility,
) -> Roster:
    """Members in natural order of their names; endings in that order too."""
    view = View(catalogue, ground, standing, published, scope, eligibility)
    best, endings = _one_each(view, found)
    members: list[Member] = []
    groups = _groups(catalogue)
    by_group: dict[tuple[str, str | None], dict[int, Copy]] = {}
    for copy in best:
        by_group.setdefault((copy.model, copy.profile), {})[copy.ordinal] = copy
    for (model, written), profile in groups.items():
        here = by_group.get((model, written), {})
        kept, dropped = _ordinals(view, model, profile, here)
        spec = spec_of(model, catalogue.models[model], profile)
        mark = spec.mark()
        members += [
            _member(view, replica_name(model, written, n), (model, profile, n), (spec, mark), here.get(n))
            for n in kept
        ]
        endings += dropped
    endings += [
        Ending(
            copy, "not in the catalogue" if copy.model not in catalogue.models else "its profile is wanted no more"
        )
        for copy in best
        if (copy.model, copy.profile) not in groups and copy.state is not CopyState.ENDED
    ]
    members = [m for m in members if m.fate not in (Fate.START, Fate.AGAIN) or scope.covers(m.name)]
    members.sort(key=lambda member: natural_key(member.name))
    endings.sort(key=lambda ending: (natural_key(ending.copy.name), ending.copy.started.plan))
    inside = [ending for ending in endings if scope.covers(ending.copy.name)]
    return Roster(
        members=tuple(members),
        endings=tuple(ending for ending in inside if reachable(ground, ending.copy)),
        stale=tuple(ending for ending in inside if not reachable(ground, ending.copy)),
        bystanders=tuple(ending.copy for ending in endings if not scope.covers(ending.copy.name)),
    )


def _groups(catalogue: Catalogue) -> dict[tuple[str, str | None], str]:
    """Profiles of which replicas are wanted, by model and by the profile as replica names have it."""
    return {
        (name, None if profile == model.default else profile): profile
        for name, model in catalogue.models.items()
        for profile, number in model.counts().items()
        if number
    }


def _one_each(view: View, found: Sequence[Copy]) -> tuple[list[Copy], list[Ending]]:
    """Of each replica the copy to keep, and the duplicates to end."""
    by_name: dict[str, list[Copy]] = {}
    for copy in found:
        by_name.setdefault(copy.name, []).append(copy)
    best, endings = [], []
    for copies in by_name.values():
        if len(copies) > 1:
            copies.sort(key=lambda copy: preference(view, copy))
        first, *others = copies
        best.append(first)
        endings += [
            Ending(other, f"an older copy: {other.name} runs on {', '.join(first.nodes)}")
            for other in others
            if other.state is not CopyState.ENDED
        ]
    return best, endings


def reachable(ground: Ground, copy: Copy) -> bool:
    """Whether some rank of it runs on a node that answers."""
    return any((node := ground.get(name)) is not None and node.state not in QUIET for name, _ in copy.runs())


def _ordinals(view: View, model: str, profile: str, here: Mapping[int, Copy]) -> tuple[list[int], list[Ending]]:
    """The ordinals to have, and the copies that are too many: what runs keeps its ordinal."""
    wanted = view.catalogue.models[model].counts()[profile]
    alive = {n: copy for n, copy in here.items() if copy.state is not CopyState.ENDED}
    if len(alive) > wanted:
        order = worst_first(view, model, profile, alive)
        gone = order[: len(alive) - wanted]
        why = f"{count(wanted, 'replica')} wanted, {len(alive)} run"
        return sorted(set(alive) - set(gone)), [Ending(alive[n], why) for n in gone]
    free = (n for n in range(wanted + len(alive)) if n not in alive)
    return sorted([*alive, *(next(free) for _ in range(wanted - len(alive)))]), []


def _member(
    view: View, name: str, what: tuple[str, str, int], spec: tuple[Spec, str], copy: Copy | None
) -> Member:
    model, profile, ordinal = what
    fate, why = _fate(view, name, (model, profile), spec, copy)
    return Member(name, model, profile, ordinal, spec[0], spec[1], copy, fate, why)


def _fate(
    view: View, name: str, what: tuple[str, str], spec: tuple[Spec, str], copy: Copy | None
) -> tuple[Fate, str]:
    if copy is None:
        return Fate.START, WANTED
    if copy.state is CopyState.ENDED:
        return (Fate.AGAIN if _fits_there(view, what, copy) else Fate.START), copy.why
    if not view.scope.covers(name):
        return Fate.KEEP, ""
    if copy.state is CopyState.LOST:
        return Fate.ELSEWHERE, copy.why
    why = _wish(view, name, spec, copy)
    if copy.state is CopyState.UNKNOWN:
        return Fate.HOLD, f"{copy.why}{f'; to be changed when it does: {why}' if why else ''}"
    away = leaving(view, copy)
    if away:
        return Fate.ELSEWHERE, away
    if not why:
        return Fate.KEEP, ""
    return (Fate.REPLACE if _fits_there(view, what, copy) else Fate.ELSEWHERE), why


def _wish(view: View, name: str, spec: tuple[Spec, str], copy: Copy) -> str:
    """Why a copy has to be started anew; empty where it has not."""
    if copy.state is CopyState.BROKEN:
        return copy.why
    if copy.started.spec != spec[1]:
        old = view.standing.specs.get(copy.started.spec)
        return "; ".join(map(str, changes(old, spec[0]))) if old else "its profile has changed"
    return "asked for with --replace" if name in view.scope.replace else ""


def _fits_there(view: View, what: tuple[str, str], copy: Copy) -> bool:
    """Whether the copy's nodes and GPUs are one of the profile's shapes, and its nodes may be started on."""
    profile = view.catalogue.models[what[0]].profiles[what[1]]
    counts: Collection[int] = {len(run.gpus) for _, run in copy.last_runs()}
    nodes = [view.ground.get(name) for name in copy.nodes]
    kinds = view.eligibility.eligible(*what)
    return (
        len(counts) == 1
        and len(copy.last_runs()) == len(copy.nodes)
        and Shape(len(copy.nodes), next(iter(counts))) in profile.shapes
        and all(node is not None and node.state is NodeState.OK for node in nodes)
        and all(view.eligibility.kinds.of[view.ground.number[name]] in kinds for name in copy.nodes)
    )
