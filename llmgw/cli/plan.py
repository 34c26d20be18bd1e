"""llmgw plan: what would be changed, where, and why. Takes no lock and writes nothing but the plan file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode
from llmgw.base.bulk import collector_at_rest
from llmgw.cli.output import Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace
from llmgw.plan import Options, Plan

if TYPE_CHECKING:
    from llmgw.cli.planning import World
    from llmgw.plan.think import Thought


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Save the plan, for llmgw apply FILE.")
@click.option(
    "--explain", "explained", multiple=True, metavar="MODEL/N", help="Say how this replica's place was found."
)
@click.option(
    "--target", "targets", multiple=True, metavar="M|M/N|node:X", help="Only this model, replica or node."
)
@click.option(
    "--replace", "replaced", multiple=True, metavar="M/N", help="Restart this replica although nothing changed."
)
@click.option(
    "--repack",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Move up to N running replicas to make room.",
)
@click.option("--replace-unreachable", is_flag=True, help="Place replicas of silent nodes elsewhere at once.")
@click.option("--refresh/--no-refresh", default=True, help="Ask the nodes now, or take what was last seen.")
@click.option(
    "--facts", "facts_file", type=click.Path(path_type=Path), help="A facts document instead of the nodes."
)
@click.option("--allow-unplaced", is_flag=True, help="Exit 0 although something found no place.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 where there are changes.")
@output_options
@pass_workspace
def plan(
    workspace: Workspace,
    out: Path | None,
    explained: tuple[str, ...],
    targets: tuple[str, ...],
    replaced: tuple[str, ...],
    repack: int,
    replace_unreachable: bool,
    refresh: bool,
    facts_file: Path | None,
    allow_unplaced: bool,
    detailed_exitcode: bool,
    output: Output,
) -> int:
    """Show what would make the site run as the catalogue says.

    Nothing is changed. With --out the plan is saved, and llmgw apply FILE does exactly that or refuses. The nodes are
    asked what they have and run; --no-refresh and --facts plan without any SSH.
    """
    from llmgw.cli.planning import look

    options = Options(repack=repack, targets=targets, replace=replaced, replace_unreachable=replace_unreachable)
    world = look(workspace, refresh=refresh, facts_file=facts_file)
    with collector_at_rest():
        thought = world.think(options)
        made = world.plan_of(thought)
        if out:
            from llmgw.store.files import write_whole

            write_whole(out, made.text())
        if not output.for_people:
            output.document(made.model_dump(mode="json"))
        elif explained:
            explain(thought, explained)
        else:
            show_plan(workspace, world, made, saved=out)
    return exit_code(made, allow_unplaced=allow_unplaced, detailed=detailed_exitcode)


def show_plan(workspace: Workspace, world: "World", made: Plan, *, saved: Path | None) -> None:
    """The plan as text on stdout."""
    from llmgw.cli.colour import show, width
    from llmgw.cli.planning import heading
    from llmgw.plan.text import View, plan_lines

    footing = (f"Saved to {saved}. Apply exactly this with:  llmgw apply {saved}",) if saved else ()
    view = View(
        width=width(),
        heading=heading(workspace, world, made.body.inputs),
        footing=footing if made.body.actions else (),
        took_s=world.took_s,
        verbose=workspace.verbose > 0,
    )
    show(plan_lines(made, view))


def exit_code(made: Plan, *, allow_unplaced: bool, detailed: bool) -> int:
    """7 where something found no place, 10 where there are changes and that was asked for, else 0."""
    if made.body.unplaced and not allow_unplaced:
        return ExitCode.UNPLACED
    return ExitCode.CHANGES if detailed and made.body.actions else ExitCode.DONE


def explain(thought: "Thought", names: Sequence[str]) -> None:
    """How each replica's place was found, on stdout."""
    from llmgw.cli.colour import show, width
    from llmgw.plan.explain import explain as explained
    from llmgw.plan.text import explain_lines

    for number, name in enumerate(names):
        if number:
            click.echo()
        show(explain_lines(explained(thought, name), thought.ground, width=width()))
