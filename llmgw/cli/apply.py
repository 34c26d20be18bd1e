"""llmgw apply: do what a plan says, exactly, or refuse."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode, RefusedError, UsageError
from llmgw.cli.locking import change, lock_option
from llmgw.cli.workspace import Workspace, operator, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.cli.applying import Wishes
    from llmgw.cli.planning import World
    from llmgw.plan import Options, Plan
    from llmgw.store import Lock


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--resume", is_flag=True, help="Go on with the apply that was not finished.")
@click.option("--allow-outage", is_flag=True, help="Let models go below their minimum of ready replicas.")
@click.option("--on-error", type=click.Choice(["continue", "stop"]), default="continue", show_default=True,
              help="After a failure: go on with other models, or begin nothing more.")  # fmt: skip
@click.option("--parallel", default=10, show_default=True, type=click.IntRange(1, 1000), help="Actions at a time.")
@click.option("--check", is_flag=True, help="Ask the nodes whether each step could be taken; change nothing.")
@click.option("--revert", "reverted", multiple=True, metavar="M/N",
              help="With --resume: put this replica back as it ran before the plan.")  # fmt: skip
@lock_option
@click.option(
    "--target", "targets", multiple=True, metavar="M|M/N|node:X", help="As in llmgw plan; not with FILE."
)
@click.option("--replace", "replaced", multiple=True, metavar="M/N", help="As in llmgw plan; not with FILE.")
@click.option(
    "--repack", type=click.IntRange(min=0), default=0, metavar="N", help="As in llmgw plan; not with FILE."
)
@pass_workspace
def apply(
    workspace: Workspace,
    file: Path | None,
    yes: bool,
    resume: bool,
    allow_outage: bool,
    on_error: str,
    parallel: int,
    check: bool,
    reverted: tuple[str, ...],
    lock_timeout: float,
    targets: tuple[str, ...],
    replaced: tuple[str, ...],
    repack: int,
) -> int:
    """Carry out a saved plan, or plan now, show it, ask, and carry it out.

    A saved plan is carried out exactly, once, and only while what it was made from still holds; otherwise it is
    refused (exit 3) with what has changed. Every step is written down before it is taken. Ctrl-C begins nothing new and
    lets what is under way end; a second one leaves it, and the next plan or --resume finds out by looking.

    --check asks every node and router host whether each step could be taken, changes nothing, and leaves a saved plan
    to be applied. --resume --revert M/N starts a replica that a failed replacement has ended again as it was.
    """
    from llmgw.cli.applying import Wishes
    from llmgw.plan import Options

    _refuse_contradictions(
        file, resume=resume, planned=bool(targets or replaced or repack), check=check, reverted=bool(reverted)
    )
    options = Options(targets=targets, replace=replaced, repack=repack)
    if check:
        return _check(workspace, file, options)
    wishes = Wishes(parallel=parallel, stop_on_error=on_error == "stop")
    with change(workspace, "llmgw " + " ".join(sys.argv[1:])[:200], wait_s=lock_timeout) as lock:
        if resume:
            return _resume(workspace, wishes, lock, reverted)
        if file:
            return _saved(workspace, file, wishes, lock, allow_outage=allow_outage)
        return apply_fresh(workspace, options, wishes, lock, yes=yes, allow_outage=allow_outage)


def _refuse_contradictions(file: Path | None, *, resume: bool, planned: bool, check: bool, reverted: bool) -> None:
    if (file or resume) and planned:
        raise UsageError(
            "--target, --replace and --repack go into the plan", hint="give them to llmgw plan --out FILE"
        )
    if file and resume:
        raise UsageError("--resume goes on with the plan that was begun; it takes no FILE")
    if reverted and not resume:
        raise UsageError("--revert goes with --resume: it puts back what the unfinished apply has ended")
    if check and resume:
        raise UsageError("--check looks at a plan that was not begun", hint="llmgw plan shows what is left")


def _check(workspace: Workspace, file: Path | None, options: "Options") -> int:
    """Ask whether each step could be taken. No lock, no journal, nothing consumed."""
    from llmgw.cli.plan import show_plan
    from llmgw.cli.planning import look
    from llmgw.cli.rehearsing import rehearse

    if file:
        world, plan = _still_true(workspace, file)
    else:
        world = look(workspace, refresh=True)
        plan = world.plan(options)
        show_plan(workspace, world, plan, saved=None)
    return rehearse(workspace, world, plan)


def _still_true(workspace: Workspace, file: Path) -> "tuple[World, Plan]":
    """A saved plan and the world that it holds for; RefusedError, before any node is spoken to, if it does not."""
    from llmgw.cli.planning import look
    from llmgw.plan import Plan
    from llmgw.plan.stale import stale
    from llmgw.store.files import read_text
    from llmgw.store.journal import consumed

    plan = Plan.read(read_text(file), str(file))
    world = look(workspace, refresh=False)
    differences = stale(plan, world.site, world.fabrics, world.standing, consumed=consumed(workspace.store))
    if differences:
        raise RefusedError(
            f"{file} is stale:\n" + "\n".join(differences), hint="make a new one:  llmgw plan --out FILE"
        )
    return world, plan


def _saved(workspace: Workspace, file: Path, wishes: "Wishes", lock: "Lock", *, allow_outage: bool) -> int:
    """Carry out a saved plan, if it still holds."""
    world, plan = _still_true(workspace, file)
    return _begin(workspace, world, plan, wishes, lock, allow_outage=allow_outage)


def apply_fresh(
    workspace: Workspace, options: "Options", wishes: "Wishes", lock: "Lock", *, yes: bool, allow_outage: bool
) -> int:
    """Plan now, show it, ask, and carry it out."""
    from llmgw.cli.confirm import confirm
    from llmgw.cli.plan import show_plan
    from llmgw.cli.planning import look

    _say_unfinished(workspace)
    world = look(workspace, refresh=True)
    plan = world.plan(options)
    show_plan(workspace, world, plan, saved=None)
    if not plan.body.actions:
        return ExitCode.UNPLACED if plan.body.unplaced else ExitCode.DONE
    confirm("Apply this?", yes=yes)
    return _begin(workspace, world, plan, wishes, lock, allow_outage=allow_outage)


def _begin(
    workspace: Workspace, world: "World", plan: "Plan", wishes: "Wishes", lock: "Lock", *, allow_outage: bool
) -> int:
    from llmgw.cli.applying import carry_out, outages
    from llmgw.store.journal import consume

    outage = outages(plan.body.actions)
    if outage and not allow_outage:
        raise RefusedError(
            f"this takes models below their minimum of ready replicas; {outage}", hint="--allow-outage"
        )
    if not plan.body.actions:
        say("Nothing to do.")
        return ExitCode.DONE
    consume(workspace.store, plan, by=operator())
    return carry_out(workspace, world, plan, wishes, lock=lock)


def _say_unfinished(workspace: Workspace) -> None:
    """One line about an apply that was broken off, which a new one takes the place of."""
    from llmgw.store.journal import unfinished

    found = unfinished(workspace.store)
    if found:
        say(
            f"plan {found.plan.id} of {found.by} was not finished (begun {found.consumed_at}); "
            "this plans for what is there now"
        )


def _resume(workspace: Workspace, wishes: "Wishes", lock: "Lock", reverted: tuple[str, ...]) -> int:
    """Look at every node, then go on with each action where the nodes show that it stands."""
    from llmgw.cli.applying import carry_out
    from llmgw.cli.planning import look
    from llmgw.observed import incarnations
    from llmgw.plan.resume import resumed_phases
    from llmgw.store.journal import finished_actions, resumable

    found = resumable(workspace.store)
    done = finished_actions(workspace.store, found.plan)
    plan = _with_reverts(workspace, found.plan, done, reverted)
    world = look(workspace, refresh=True)
    phases = resumed_phases(plan, done, incarnations(world.facts))
    left = sum(phase is not None for phase in phases.values())
    say(f"plan {plan.id} of {found.by}, {found.consumed_at}: {left} of {len(phases)} actions are left")
    return carry_out(workspace, world, plan, wishes, lock=lock, phases=phases)


def _with_reverts(workspace: Workspace, plan: "Plan", done: set[str], names: tuple[str, ...]) -> "Plan":
    """The plan, with the actions of the named replicas turned into ones that put back what ran before."""
    from llmgw.plan.revert import revert
    from llmgw.store.journal import applied

    for name in names:
        action = next((one for one in plan.body.actions if one.replica == name and one.id not in done), None)
        if action is None or action.ends is None or action.starts is None:
            raise UsageError(
                f"plan {plan.id} has no unfinished replacement of {name}", hint="llmgw apply --resume"
            )
        before = applied(workspace.store, action.ends.plan)
        plan = revert(plan, action, before.plan if before else None)
    return plan
