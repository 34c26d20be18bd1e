"""llmgw status and drift: what runs and how it is; what is not as the catalogue says, or was changed by hand."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from llmgw.base import ExitCode
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace

if TYPE_CHECKING:
    from llmgw.plan.drift import Difference
    from llmgw.plan.judge import Condition
    from llmgw.plan.repair import CopyKey
    from llmgw.plan.status import ReplicaStatus

COLUMNS = (
    Column("REPLICA", "name"),
    Column("STATE", "state"),
    Column("HEALTH", "health"),
    Column("NODES", "nodes"),
    Column("GPUS", "gpus"),
    Column("LEAF", "leaf"),
    Column("SINCE", "since"),
    Column("ENGINE", "engine"),
    Column("SPEC", "spec"),
    Column("URL", "url", wide=True),
    Column("RAILS", "rails", wide=True),
    Column("NOTE", "note", wide=True),
)


@click.command()
@click.option("--refresh", is_flag=True, help="Ask the nodes now instead of showing what was last seen.")
@output_options
@pass_workspace
def status(workspace: Workspace, refresh: bool, output: Output) -> None:
    """Show what runs: where, since when, how healthy, on which leaf and rails, which version and spec.

    By what was last seen, which llmgw reconcile keeps fresh; --refresh asks the nodes.
    """
    from llmgw.cli.planning import look
    from llmgw.plan.status import status_of
    from llmgw.store.health import conditions

    world = look(workspace, refresh=refresh, remembered=not refresh)
    found = status_of(world.as_it_stands())
    health = conditions(workspace.store)
    if output.format == "table":
        from llmgw.cli.colour import show, width
        from llmgw.plan.text import status_lines

        show(status_lines(found, now=world.now, width=width()))
        for line in _unwell(health):
            click.echo(line)
        return
    rows = [_row(one, health, now=world.now) for one in found]
    output.rows("replicas", rows, COLUMNS, empty="No replica runs and none is wanted.")


def _unwell(health: "dict[CopyKey, Condition]") -> list[str]:
    """A line for every copy that the last look of reconcile found not ready."""
    from llmgw.base import visible

    return [
        f"{key[0]}: {one.health} since {one.since:%Y-%m-%d %H:%M:%SZ}: {visible(one.why)}"
        for key, one in sorted(health.items())
        if one.health.value != "ready" or one.suspect
    ]


def _row(one: "ReplicaStatus", health: "dict[CopyKey, Condition]", *, now: datetime) -> dict[str, Any]:
    from llmgw.plan.text import status_cells

    cells = status_cells(one, now=now)
    keys = ("name", "state", "nodes", "gpus", "leaf", "since", "engine", "spec", "url", "rails")
    words = dict(zip(keys, cells, strict=True))
    conditions = [found for key, found in health.items() if key[0] == one.replica]
    return {
        **words,
        "health": conditions[-1].health.value if conditions else None,
        "since_at": one.since.isoformat() if one.since else None,
        "note": one.note,
        "changes": [str(change) for change in one.changes],
    }


@click.command()
@click.option("--refresh/--no-refresh", default=True, help="Ask the nodes now, or take what was last seen.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 where something differs.")
@output_options
@pass_workspace
def drift(workspace: Workspace, refresh: bool, detailed_exitcode: bool, output: Output) -> int:
    """Show what differs from the catalogue, and what was changed by hand. Changes nothing."""
    from llmgw.cli.planning import look
    from llmgw.plan import Options
    from llmgw.plan.drift import drift_of

    world = look(workspace, refresh=refresh)
    found = drift_of(world.think(Options()))
    if output.format == "table":
        from llmgw.cli.colour import show, width
        from llmgw.plan.text import drift_lines

        show(drift_lines(found, width=width()))
    else:
        columns = (Column("WHAT", "name"), Column("DIFFERENCE", "text"), Column("PLAN ACTS", "acts"))
        output.rows("differences", [_difference(one) for one in found], columns, empty="Nothing differs.")
    return ExitCode.CHANGES if detailed_exitcode and found else ExitCode.DONE


def _difference(one: "Difference") -> dict[str, Any]:
    return {"name": one.subject, "text": one.text, "acts": one.acts}
