"""What runs, as copies of replicas, and how each is doing."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from llmgw.base import natural_key, replica_parts
from llmgw.observed import Facts, Incarnation, Run, incarnations
from llmgw.plan.document import Seat
from llmgw.plan.nodes import QUIET, Ground, NodeState
from llmgw.plan.standing import Standing
from llmgw.site import address


class CopyState(StrEnum):
    """running: every rank runs. unknown: every rank ran when its node last answered. broken: some rank has
    ended. lost: some rank's node is lost, or left the inventory. ended: no rank runs."""

    RUNNING = "running"
    UNKNOWN = "unknown"
    BROKEN = "broken"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Copy:
    """One start of a replica. `profile` is as the replica's name has it: None for the model's default."""

    started: Incarnation
    model: str
    profile: str | None
    ordinal: int
    state: CopyState
    why: str

    @property
    def name(self) -> str:
        return self.started.replica

    @property
    def nodes(self) -> tuple[str, ...]:
        """In rank order."""
        return self.started.nodes

    def runs(self) -> list[tuple[str, Run]]:
        """Node and run of the ranks that hold something, in rank order; of silent nodes the last known."""
        return [placed for placed in self.started.ranks.values() if placed[1].state != "exited"]

    def last_runs(self) -> list[tuple[str, Run]]:
        """Node and run of every rank that was seen, ended ones too, in rank order."""
        return list(self.started.ranks.values())


def copies(facts: Facts, ground: Ground, *, given_up: frozenset[NodeState]) -> list[Copy]:
    """Every start of a replica of which something is known, by replica name.

    `given_up` are the states of nodes whose copies count as lost.
    """
    found = []
    for started in incarnations(facts):
        try:
            model, profile, ordinal = replica_parts(started.replica)
        except ValueError:
            continue
        state, why = _judge(started, ground, given_up)
        found.append(Copy(started, model, profile, ordinal, state, why))
    return sorted(found, key=lambda copy: (natural_key(copy.name), copy.started.plan, copy.started.action))


def _judge(started: Incarnation, ground: Ground, given_up: frozenset[NodeState]) -> tuple[CopyState, str]:
    lost, ended, unknown, alive = [], [], [], []
    for rank, name in enumerate(started.nodes):
        node = ground.get(name)
        run = started.ranks[rank][1] if rank in started.ranks else None
        if node is None:
            lost.append(f"{name} has left the inventory")
        elif node.state in given_up:
            lost.append(f"{name} has not answered {node.note}")
        elif node.state in QUIET:
            unknown.append(f"{name} does not answer, {node.note}" if node.note else f"{name} does not answer")
        elif run is None or run.state == "exited":
            ended.append(_ending(rank, name, run, len(started.nodes)))
        else:
            alive.append(name)
    if not (alive or unknown or lost):
        return CopyState.ENDED, ended[0] if ended else "nothing of it is left"
    if lost:
        return CopyState.LOST, lost[0]
    if ended:
        return CopyState.BROKEN, ended[0]
    return (CopyState.UNKNOWN, unknown[0]) if unknown else (CopyState.RUNNING, "")


def _ending(rank: int, node: str, run: Run | None, ranks: int) -> str:
    what = "is gone from" if run is None else "has ended on"
    status = f" ({run.exit_status})" if run and run.exit_status else ""
    return (f"rank {rank} " if ranks > 1 else "") + f"{what} {node}{status}"


def seats_of(copy: Copy, runs: Sequence[tuple[str, Run]] | None = None) -> tuple[Seat, ...]:
    """The seats of a copy's runs that hold something, or of these runs, in rank order."""
    return tuple(
        Seat(n=node, rank=run.rank, gpus=run.gpus, port=run.port or 0, ports=run.ports)
        for node, run in (copy.runs() if runs is None else runs)
    )


def url(where: str, port: int) -> str:
    """The address of an endpoint."""
    return f"http://[{where}]:{port}" if ":" in where else f"http://{where}:{port}"


def url_of(ground: Ground, copy: Copy) -> str:
    """Where the copy answers; empty where its first rank was not seen or its node has left."""
    head = copy.started.ranks.get(0)
    node = ground.get(head[0]) if head else None
    if not head or not node or head[1].port is None:
        return ""
    return url(address(node.host), head[1].port)


@dataclass(frozen=True, slots=True)
class PublishedAs:
    """How routers know a copy: the endpoint's id, and whether it is ready or draining. Empty: not at all."""

    id: str = ""
    state: str = ""


def published_by_url(standing: Standing) -> dict[str, PublishedAs]:
    """The published endpoints by their URL."""
    return {known.url: PublishedAs(name, known.state) for name, known in sorted(standing.published.items())}
