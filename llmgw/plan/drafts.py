"""Actions in the making: what each starts and ends, before they have an order and ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.engines import ENGINES, LoadProbe
from llmgw.plan.copies import Copy, CopyState, PublishedAs, seats_of, url_of
from llmgw.plan.document import Incumbent, Op, Placement, Precondition, Seat
from llmgw.plan.nodes import QUIET, Ground
from llmgw.plan.roster import Fate, Member, Roster
from llmgw.plan.scope import Scope
from llmgw.plan.standing import Standing
from llmgw.site import Engine, Site

OP_ORDER = {
    Op.FORGET: 0, Op.STOP: 1, Op.REPLACE: 2, Op.MOVE: 3, Op.START: 4, Op.ADOPT: 5, Op.PUBLISH: 6,
    Op.DRAIN: 7, Op.FETCH: 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """One action without its id. `old_ready`: what it ends serves requests now. `hopeless`: it cannot finish those
    that it has, so there is no use in waiting for them."""

    key: str
    op: Op
    replica: str
    why: str
    member: Member | None = None
    starts: Placement | None = None
    ends: Incumbent | None = None
    old_ready: bool = False
    hopeless: bool = False

    @property
    def model(self) -> str:
        return self.replica.partition("/")[0].partition(":")[0]


@dataclass(frozen=True, slots=True)
class Bench:
    """What drafting takes. `placements` are those of members that have a place, by replica."""

    site: Site
    ground: Ground
    standing: Standing
    published: Mapping[str, PublishedAs]
    placements: Mapping[str, Placement]
    scope: Scope


def draft_all(bench: Bench, roster: Roster) -> list[Draft]:
    """The drafts that turn what runs into what is to be, in no particular order."""
    drafts = [_stop(bench, ending.copy, ending.why) for ending in roster.endings]
    drafts += [
        _forget(bench, ending.copy, ending.why) for ending in roster.endings if _headless(bench, ending.copy)
    ]
    drafts += [_forget(bench, ending.copy, ending.why) for ending in roster.stale if _known(bench, ending.copy).id]
    for member in roster.members:
        drafts += _of_member(bench, member)
    known = {draft.replica for draft in drafts} | {member.name for member in roster.members}
    drafts += _phantoms(bench, roster, known)
    return drafts


def _headless(bench: Bench, copy: Copy) -> bool:
    """Whether routers know a copy whose first rank is on a node that does not answer: a stop would not find it."""
    head = copy.started.ranks.get(0)
    return bool(_known(bench, copy).id) and head is not None and not _answers(bench.ground, head[0])


def _of_member(bench: Bench, member: Member) -> list[Draft]:
    placement, copy = bench.placements.get(member.name), member.copy
    if member.fate is Fate.HOLD or not bench.scope.covers(member.name):
        return []
    if member.fate is Fate.KEEP:
        return _keep(bench, member)
    if copy is None or copy.state is CopyState.ENDED:
        return [_start(member, placement)] if placement else []
    if copy.state is CopyState.LOST:
        return _lost(bench, member, copy)
    if placement is None:
        return (
            [_stop(bench, copy, f"{member.why}, and there is no other place for it")]
            if _has_to_go(bench, member)
            else []
        )
    served = _serves(bench, copy)
    ends = incumbent(bench, copy)
    shared = [seat.n for seat in placement.nodes if seat.n in copy.nodes]
    op = Op.REPLACE if shared else Op.MOVE
    if member.fate is Fate.ELSEWHERE and shared:
        why = f"{member.why}; the old one has to stop first: both need {', '.join(shared)}"
        member = replace(member, why=why)
    hopeless = copy.state is CopyState.BROKEN
    key = f"{op.value} {member.name}"
    return [Draft(key, op, member.name, member.why, member, placement, ends, served, hopeless)]


def _has_to_go(bench: Bench, member: Member) -> bool:
    """Whether a copy without another place is stopped all the same: its node is drained."""
    assert member.copy is not None
    nodes = [bench.ground.get(name) for name in member.copy.nodes]
    return any(node is not None and node.state.value == "draining" for node in nodes)


def _start(member: Member, placement: Placement) -> Draft:
    return Draft(f"start {member.name}", Op.START, member.name, member.why, member, placement)


def _lost(bench: Bench, member: Member, copy: Copy) -> list[Draft]:
    """What is left of a replica that lost a node is stopped, its endpoint forgotten, and it is started elsewhere."""
    drafts = []
    if any(_answers(bench.ground, name) for name, _ in copy.runs()):
        drafts.append(_stop(bench, copy, f"{member.why}; what is left of it goes"))
    if _known(bench, copy).id:
        drafts.append(_forget(bench, copy, member.why))
    placement = bench.placements.get(member.name)
    return [*drafts, _start(member, placement)] if placement else drafts


def _keep(bench: Bench, member: Member) -> list[Draft]:
    """Nothing, or what makes routers know a copy that runs as it should."""
    assert member.copy is not None
    known = _known(bench, member.copy)
    placement = bench.placements.get(member.name)
    if placement is None or placement.port == 0 or (known.id == member.name and known.state == "ready"):
        return []
    if known.id:
        why = "it was left draining" if known.state == "draining" else f"it is published as {known.id}"
        return [Draft(f"publish {member.name}", Op.PUBLISH, member.name, why, member, placement)]
    return [
        Draft(f"adopt {member.name}", Op.ADOPT, member.name, "it runs and no router knows it", member, placement)
    ]


def _phantoms(bench: Bench, roster: Roster, known: set[str]) -> list[Draft]:
    """Endpoints that routers have although nothing is there: of replicas of which nothing runs and nothing is
    started, and of copies that are gone from where they were drained."""
    backed = {url_of(bench.ground, copy) for copy in _all_copies(roster)}
    found = []
    for name, endpoint in sorted(bench.standing.published.items()):
        replica, _, left = name.partition("~")
        if endpoint.url in backed or not bench.scope.covers(replica):
            continue
        if left and bench.ground.get(left):
            ends = _gone_from(left, endpoint.url)
            why = f"routers know a copy on {left}, and it is gone"
            found.append(Draft(f"forget {name}", Op.FORGET, replica, why, ends=ends))
        elif replica not in known:
            found.append(Draft(f"forget {name}", Op.FORGET, replica, "routers know it, and nothing of it runs"))
    return found


def _gone_from(node: str, where: str) -> Incumbent:
    """A copy of which only its endpoint is left."""
    port = int(where.rpartition(":")[2])
    return Incumbent(plan="", action="", spec="", nodes=(Seat(n=node, rank=0, gpus=(), port=port),))


def _all_copies(roster: Roster) -> list[Copy]:
    members = [member.copy for member in roster.members if member.copy]
    endings = [ending.copy for ending in (*roster.endings, *roster.stale)]
    return [*members, *endings, *roster.bystanders]


def _stop(bench: Bench, copy: Copy, why: str) -> Draft:
    served = _serves(bench, copy)
    key = f"stop {copy.name} {copy.started.plan} {copy.started.action}"
    hopeless = copy.state in (CopyState.BROKEN, CopyState.LOST)
    return Draft(key, Op.STOP, copy.name, why, None, None, incumbent(bench, copy), served, hopeless)


def _forget(bench: Bench, copy: Copy, why: str) -> Draft:
    key = f"forget {copy.name} {copy.started.plan} {copy.started.action}"
    ends = replace_nodes(incumbent(bench, copy), seats_of(copy, copy.last_runs()))
    return Draft(key, Op.FORGET, copy.name, why, None, None, ends)


def _known(bench: Bench, copy: Copy) -> PublishedAs:
    return bench.published.get(url_of(bench.ground, copy), PublishedAs())


def _serves(bench: Bench, copy: Copy) -> bool:
    """Whether the copy answers requests now: it is published, and every rank runs."""
    return _known(bench, copy).state == "ready" and copy.state in (CopyState.RUNNING, CopyState.UNKNOWN)


def _answers(ground: Ground, name: str) -> bool:
    node = ground.get(name)
    return node is not None and node.state not in QUIET


def incumbent(bench: Bench, copy: Copy) -> Incumbent:
    """The copy as an action ends it: the ranks on nodes that answer, those that have ended with them."""
    seats = tuple(seat for seat in seats_of(copy, copy.last_runs()) if _answers(bench.ground, seat.n))
    return Incumbent(
        plan=copy.started.plan,
        action=copy.started.action,
        spec=copy.started.spec,
        nodes=seats,
        load=_load(bench, copy),
    )


def replace_nodes(old: Incumbent, seats: Sequence[Seat]) -> Incumbent:
    """The same copy with these seats."""
    return old.model_copy(update={"nodes": tuple(seats)})


def _load(bench: Bench, copy: Copy) -> LoadProbe | None:
    """Where the copy's engine says how busy it is: by its spec, else by what the catalogue has for its name."""
    spec = bench.standing.specs.get(copy.started.spec)
    if spec:
        return ENGINES[Engine(spec.engine)].LOAD if spec.engine in set(Engine) else None
    model = bench.site.catalogue.models.get(copy.model)
    if model is None:
        return None
    profile = model.profiles.get(copy.profile or model.default)
    return ENGINES[profile.engine].LOAD if profile else None


def preconditions(draft: Draft) -> tuple[Precondition, ...]:
    """What must hold on each node just before the action touches it."""
    old = {seat.n: seat for seat in draft.ends.nodes} if draft.ends and draft.op is not Op.FORGET else {}
    new = {seat.n: seat for seat in draft.starts.nodes} if draft.starts and draft.op in _STARTING else {}
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        here, mine = old.get(name), new.get(name)
        idle = tuple(gpu for gpu in mine.gpus if not here or gpu not in here.gpus) if mine else ()
        own = range(here.port, here.port + here.ports) if here else range(0)
        ports = tuple(p for p in range(mine.port, mine.port + mine.ports) if p not in own) if mine else ()
        found.append(
            Precondition(
                n=name,
                replica=draft.replica if here else None,
                spec=draft.ends.spec if here and draft.ends else None,
                gpus_idle=idle,
                ports_free=ports,
            )
        )
    return tuple(found)


_STARTING = frozenset({Op.START, Op.REPLACE, Op.MOVE})


def split_move(draft: Draft) -> tuple[Draft, Draft]:
    """A move as a stop and a start after it, for moves that wait for each other in a circle."""
    stop = replace(draft, key=f"stop {draft.replica}", op=Op.STOP, member=None, starts=None)
    start = replace(draft, key=f"start {draft.replica}", op=Op.START, ends=None, old_ready=False)
    return stop, start


def ending_of(draft: Draft) -> Mapping[tuple[str, int], str]:
    """The GPUs, by node and index, that are free once the draft is done, with its key."""
    if not draft.ends or draft.op is Op.FORGET:
        return {}
    new = {(seat.n, gpu) for seat in draft.starts.nodes for gpu in seat.gpus} if draft.starts else set()
    return {(seat.n, gpu): draft.key for seat in draft.ends.nodes for gpu in seat.gpus if (seat.n, gpu) not in new}
