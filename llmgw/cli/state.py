"""llmgw state: the store's own commands."""

from pathlib import Path

import click

from llmgw.base import size
from llmgw.cli.output import Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say


@click.group()
def state() -> None:
    """Back up the store, or show where it is.

    The store is one SQLite file: maps, facts, plans, journal, history. `cp` of it while llmgw runs can lose what was
    last written; `llmgw state backup` cannot.
    """


@state.command()
@click.argument("file", type=click.Path(path_type=Path))
@pass_workspace
def backup(workspace: Workspace, file: Path) -> None:
    """Write a whole, checked copy of the store to FILE, while it may be in use."""
    from llmgw.store import backup as copy

    copy(workspace.store, file)
    say(f"wrote {file} ({size(file.stat().st_size)}), checked")


@state.command()
@output_options
@pass_workspace
def show(workspace: Workspace, output: Output) -> None:
    """Show where the store is and what it is."""
    from llmgw.store import lineage, serial

    store = workspace.store
    document = {
        "name": str(store.path),
        "lineage": lineage(store),
        "serial": serial(store),
        "bytes": store.path.stat().st_size,
    }
    if output.for_people:
        for key, value in document.items():
            click.echo(f"{key:8} {value}")
    else:
        output.document(document)
