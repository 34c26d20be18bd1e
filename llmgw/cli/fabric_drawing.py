"""A stored map as a picture."""

from dataclasses import dataclass, replace
from pathlib import Path

from llmgw.cli.drawing import IRREGULAR, PLACED, render
from llmgw.cli.maps import ground, load, pick
from llmgw.cli.workspace import Workspace
from llmgw.fabric import Change, ChangeItem, Fabric, Topology
from llmgw.fabric.diff import diff
from llmgw.fabric.drawing import (
    Ask,
    Marks,
    Part,
    change_marks,
    dot,
    fault_marks,
    lay_out,
    limited,
    mesh_dot,
    replica_groups,
)
from llmgw.store.maps import StoredFabric, StoredScan, topology_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What the picture is to show, and in which format."""

    form: str
    colour: str
    full: bool
    limit: str | None
    old: int | None
    plan_file: Path | None


def drawn(workspace: Workspace, fabric: StoredFabric, scan: StoredScan, wish: Wish) -> bytes:
    """The picture's bytes; DOT text where that was asked for."""
    shape = load(workspace.store, scan, ground(workspace))
    part = limited(shape, wish.limit) if wish.limit else None
    marks = _marks(workspace, fabric, scan, _told_of(shape, part), wish, part)
    ask = Ask(
        title=f"{fabric.name}, scan {scan.number} of {scan.at}",
        marks=marks,
        colouring="plan" if wish.plan_file else wish.colour,  # type: ignore[arg-type]
        every_cable=wish.full,
        switches=part.switches if part else None,
        nodes=part.nodes if part else None,
    )
    layout = lay_out(shape, ask)
    text = dot(layout) if layout else mesh_dot(shape, ask)
    return text.encode() if wish.form == "dot" else render(text, PLACED if layout else IRREGULAR, wish.form)


def _told_of(shape: Fabric, part: Part | None) -> Fabric:
    """The fabric with the findings of the part that is drawn alone."""
    if part is None:
        return shape
    return replace(shape, findings=tuple(one for one in shape.findings if part.has(shape, one.guid, one.port)))


def _marks(
    workspace: Workspace, fabric: StoredFabric, scan: StoredScan, shape: Fabric, wish: Wish, part: Part | None
) -> Marks:
    if wish.old is not None:
        before = pick(workspace.store, fabric, wish.old)
        old = Topology.read(topology_text(workspace.store, before.number) or "", f"scan {before.number}")
        new = Topology.read(topology_text(workspace.store, scan.number) or "", f"scan {scan.number}")
        changes = diff(old, new)
        if part is not None:
            own = tuple(one for one in changes.changes if _in_part(shape, part, one))
            changes = changes.model_copy(update={"changes": own})
        return change_marks(shape, old, changes)
    marks = fault_marks(shape)
    return replica_groups(marks, _replicas(wish.plan_file)) if wish.plan_file else marks


def _in_part(shape: Fabric, part: Part, change: ChangeItem) -> bool:
    """Whether a change is told with the part: what it has now, what its nodes had, and every switch that is gone."""
    mine = part.nodes is not None and change.node in part.nodes
    return mine or change.kind is Change.SWITCH_GONE or part.has(shape, change.guid, change.port)


def _replicas(file: Path) -> dict[str, list[str]]:
    """Where a plan puts its replicas."""
    from llmgw.plan import Plan
    from llmgw.store.files import read_text

    plan = Plan.read(read_text(file), str(file))
    return {placed.replica: [seat.n for seat in placed.nodes] for placed in plan.body.placements}
