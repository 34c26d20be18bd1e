"""llmgw lock: who changes the site now, and the way out when it never comes back."""

import click

from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, operator, pass_workspace, say

COLUMNS = (
    Column("HOLDER", "name"),
    Column("PID", "pid"),
    Column("SINCE", "since"),
    Column("COMMAND", "command"),
)


@click.group()
def lock() -> None:
    """Show or break the lock of a running change.

    A lock whose holder has died on this machine, or has given no sign of life for a minute, is taken over by the next
    command without any help.
    """


@lock.command()
@output_options
@pass_workspace
def show(workspace: Workspace, output: Output) -> None:
    """Show who holds the lock."""
    from llmgw.store import held

    found = held(workspace.store)
    rows = []
    if found:
        holder = found.holder
        rows = [
            {
                "name": f"{holder.user}@{holder.host}",
                "pid": holder.pid,
                "since": holder.since,
                "command": holder.command,
            }
        ]
    output.rows("lock", rows, COLUMNS, empty="Nobody holds the lock.")


@lock.command(name="break")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_workspace
def break_(workspace: Workspace, yes: bool) -> None:
    """Take the lock from its holder.

    Whoever held it stops before its next step. Break it only when you know that it will not come back.
    """
    from llmgw.cli.confirm import confirm
    from llmgw.store import break_lock, held
    from llmgw.store.history import record

    found = held(workspace.store)
    if found is None:
        say("Nobody holds the lock.")
        return
    confirm(f"Take the lock from {found.holder}?", yes=yes)
    broken = break_lock(workspace.store)
    record(workspace.store, "lock", "site", f"lock of {broken} broken", by=operator())
    say(f"took the lock from {broken}")
