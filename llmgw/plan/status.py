"""What runs, where, since when and how it is doing, beside what the catalogue asks for."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from llmgw.base import natural_key
from llmgw.fabric import NodePath
from llmgw.plan.assess import Assessment
from llmgw.plan.copies import Copy, CopyState, PublishedAs, seats_of, url_of
from llmgw.plan.document import Seat
from llmgw.plan.roster import Fate, Member
from llmgw.plan.spec import Change, Spec, changes

if TYPE_CHECKING:
    from llmgw.plan.think import Thought


class ReplicaState(StrEnum):
    """ready: routers send it requests. running: no router knows it. draining: it takes no new requests. broken: a
    rank has ended. unreachable: a node of it does not answer. lost: for so long that it may run elsewhere. ended:
    no rank runs. missing: wanted, and nothing of it is known."""

    READY = "ready"
    RUNNING = "running"
    DRAINING = "draining"
    BROKEN = "broken"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    ENDED = "ended"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica that runs or is wanted. `spec`: current, outdated, or unknown where nobody wants it.

    `paths` are the places of its nodes in the fabric, in rank order; None for a node on no map.
    """

    replica: str
    state: ReplicaState
    seats: tuple[Seat, ...]
    leaf: str
    url: str
    since: datetime | None
    engine: str
    spec: str
    changes: tuple[Change, ...]
    note: str
    paths: tuple[NodePath | None, ...]


def status_of(thought: "Assessment | Thought") -> list[ReplicaStatus]:
    """Every replica that is wanted or of which something runs, in natural order; older copies after newer ones.

    Of a settled assessment as of the whole thought; of another one members could come to stand otherwise.
    """
    found = [_of_member(thought, member) for member in (*thought.roster.members, *_missing(thought))]
    endings = (*thought.roster.endings, *thought.roster.stale)
    found += [_of_copy(thought, ending.copy, None, ending.why) for ending in endings]
    found += [_of_copy(thought, copy, None, "") for copy in thought.roster.bystanders]
    return sorted(found, key=lambda one: natural_key(one.replica))


def _missing(thought: "Assessment | Thought") -> list[Member]:
    known = {member.name for member in thought.roster.members}
    return [member for member in thought.unplaced if member.name not in known]


def _of_member(thought: "Assessment | Thought", member: Member) -> ReplicaStatus:
    if member.copy is None:
        return ReplicaStatus(
            member.name, ReplicaState.MISSING, (), "", "", None, _engine(member.spec), "", (), "", ()
        )
    return _of_copy(thought, member.copy, member, member.why if member.fate is not Fate.KEEP else "")


def _of_copy(thought: "Assessment | Thought", copy: Copy, member: Member | None, note: str) -> ReplicaStatus:
    url = url_of(thought.ground, copy)
    known = thought.published.get(url, PublishedAs())
    spec = thought.asked.standing.specs.get(copy.started.spec)
    current = member is not None and member.mark == copy.started.spec
    if current and member:
        spec = member.spec
    nodes = [thought.ground.get(name) for name in copy.nodes]
    leaves = sorted({node.leaf for node in nodes if node and node.fabric})
    return ReplicaStatus(
        replica=copy.name,
        state=_state(copy, known),
        seats=seats_of(copy),
        leaf=",".join(thought.ground.leaves[leaf] for leaf in leaves),
        url=url,
        since=copy.started.started_at,
        engine=_engine(spec),
        spec="current" if current else "outdated" if member else "unknown",
        changes=tuple(changes(spec, member.spec)) if spec and member and not current else (),
        note=copy.why if member and not current else note or copy.why,
        paths=tuple(node.path if node else None for node in nodes),
    )


def _engine(spec: Spec | None) -> str:
    return f"{spec.engine} {spec.version}" if spec else ""


def _state(copy: Copy, known: PublishedAs) -> ReplicaState:
    by_copy = {
        CopyState.UNKNOWN: ReplicaState.UNREACHABLE,
        CopyState.BROKEN: ReplicaState.BROKEN,
        CopyState.LOST: ReplicaState.LOST,
        CopyState.ENDED: ReplicaState.ENDED,
    }
    if copy.state in by_copy:
        return by_copy[copy.state]
    if known.state == "draining":
        return ReplicaState.DRAINING
    return ReplicaState.READY if known.state == "ready" else ReplicaState.RUNNING
