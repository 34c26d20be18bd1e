"""The plan document (llmgw-plan/1): a canonical body, its id, and an envelope that is not part of the id."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field

from llmgw.base import Document, DocumentError, HostName, Place, Value, canonical_of, digest_of_bytes
from llmgw.engines.launch import Launch, LoadProbe
from llmgw.plan.spec import Spec


class Op(StrEnum):
    """What an action does.

    replace = drain, stop, start, publish on the same GPUs; move = start and publish elsewhere, then drain, stop;
    forget = stop counting on a lost copy, nothing is run; adopt = publish what already runs; publish = the
    endpoint only.
    """

    FETCH = "fetch"
    START = "start"
    PUBLISH = "publish"
    DRAIN = "drain"
    STOP = "stop"
    REPLACE = "replace"
    MOVE = "move"
    FORGET = "forget"
    ADOPT = "adopt"


class Seat(Value):
    """One rank's place: its node, the GPUs there, and its first TCP port of `ports` one after the other."""

    n: HostName
    rank: int
    gpus: tuple[int, ...]
    port: int
    ports: int = 1


class Placement(Value):
    """Where a replica is to be when the plan has been applied."""

    replica: str
    model: str
    profile: str
    shape: str
    nodes: tuple[Seat, ...]
    fabric: str | None = None
    leaf: str = Field("", description="the leaf domain's name; several, with commas, where it spans them")
    port: int = Field(description="where rank 0 answers")
    spec: str
    why: tuple[str, ...] = Field((), description="the levels that decided, as short codes")


class Incumbent(Value):
    """A start of a replica that now holds GPUs and that an action ends, by its marks."""

    plan: str
    action: str
    spec: str
    nodes: tuple[Seat, ...]
    load: LoadProbe | None = Field(None, description="where its head says how busy it is")


class Precondition(Value):
    """What must hold on a node just before an action touches it. Fields left out are not checked."""

    n: HostName
    replica: str | None = Field(None, description="this replica runs there…")
    spec: str | None = Field(None, description="…with this spec")
    gpus_idle: tuple[int, ...] = ()
    ports_free: tuple[int, ...] = ()


class Action(Value):
    """One step of the plan. `after` names the actions that must have been done before it."""

    id: str
    op: Op
    replica: str
    nodes: tuple[HostName, ...]
    after: tuple[str, ...] = ()
    why: str
    pre: tuple[Precondition, ...] = ()
    starts: Placement | None = None
    launches: tuple[Launch, ...] = Field((), description="by rank, for an action that starts something")
    ends: Incumbent | None = None
    drain_s: int = 0
    stop_s: int = 0
    start_s: int = 0
    ready: tuple[int, ...] = Field((), description="the model's ready replicas before, during and after: 2, 1, 2")
    outage: bool = Field(default=False, description="takes the model below its minimum; needs --allow-outage")


class Unplaced(Value):
    """A wanted replica that found no place, why, and what would make it fit."""

    replica: str
    needs: str
    why: str
    would_fit: tuple[str, ...] = ()


class FabricInput(Value):
    """The map that was planned by, and the digest of what it says of the nodes that the plan touches."""

    scan: int
    facts: str


class StateInput(Value):
    """The store's identity and its count of changes."""

    lineage: str
    serial: int


class Inputs(Value):
    """What apply checks before it does anything."""

    catalogue: str
    inventory: str
    fabric: dict[str, FabricInput]
    state: StateInput
    observed: str
    parts: dict[str, str] = Field(
        {}, description="short digests of parts of these, so that a refusal can name what moved"
    )


class Options(Value):
    """What the operator asked of the planner."""

    repack: int = Field(0, ge=0)
    targets: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    replace_unreachable: bool = False


class Body(Value):
    """All that the plan's id stands for. No times, no floats, no secrets."""

    llmgw: str
    placer: int
    options: Options
    inputs: Inputs
    applyable: bool
    complete: bool
    placements: tuple[Placement, ...]
    actions: tuple[Action, ...]
    unplaced: tuple[Unplaced, ...] = ()
    warnings: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    specs: dict[str, Spec] = Field({}, description="the specs that are spoken of, by their digest")
    notes: dict[str, Any] = Field({}, description="figures for the reader: what is left free, what is excluded")


class Plan(Document):
    """A plan file."""

    format: Literal["llmgw-plan/1"] = "llmgw-plan/1"
    id: str
    created: datetime
    by: str
    body: Body

    @classmethod
    def of(cls, body: Body, *, created: datetime, by: str) -> Self:
        """The plan of a body, under the id that its canonical bytes give."""
        return cls(id=plan_id(body), created=created, by=by, body=body)

    @classmethod
    def read(cls, text: str | bytes, source: str) -> Self:
        """As Document.read; DocumentError too where the id is not that of the body (edited by hand)."""
        plan = super().read(text, source)
        if plan.id != plan_id(plan.body):
            raise DocumentError(
                Place(source, "id"),
                f"the body was changed after planning: it has the id {plan_id(plan.body)}, not {plan.id}",
                hint="make a new one with llmgw plan",
            )
        return plan


def plan_id(body: Body) -> str:
    """The first 12 hex digits of the SHA-256 of the canonical body."""
    return digest_of_bytes(canonical_of(body))[len("sha256:") :][:12]
