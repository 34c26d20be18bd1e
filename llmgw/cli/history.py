"""llmgw history: what happened, a line each."""

from datetime import UTC, datetime

import click

from llmgw.cli.output import Column, Output, newest_option, output_options
from llmgw.cli.times import ago
from llmgw.cli.workspace import Workspace, pass_workspace

COLUMNS = (
    Column("AT", "at"),
    Column("KIND", "kind"),
    Column("SUBJECT", "name"),
    Column("WHAT", "message"),
    Column("BY", "by", wide=True),
)


@click.command()
@click.argument("subject", required=False, default="")
@click.option("--since", help="Only what is newer: 30m, 2h, 7d, or a time.")
@newest_option(200)
@output_options
@pass_workspace
def history(workspace: Workspace, subject: str, since: str | None, limit: int, output: Output) -> None:
    """Show what happened, oldest first: changes, repairs, cordons, scans that found something.

    SUBJECT, a replica, a node or a fabric, shows only its own.
    """
    from llmgw.store.history import events

    begin = ago(since, now=datetime.now(UTC)) if since else None
    found = events(workspace.store, limit=limit, subject=subject, since=begin)
    rows = [
        {"name": event.subject, "at": event.at, "kind": event.kind, "message": event.message, "by": event.by}
        for event in found
    ]
    output.rows("events", rows, COLUMNS, empty="Nothing happened yet.")
