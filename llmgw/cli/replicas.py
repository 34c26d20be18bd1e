"""llmgw replicas: the copies that run, their logs, and taking one down by hand."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from llmgw.base import UsageError, duration, near
from llmgw.cli.asking import ask_nodes
from llmgw.cli.locking import change, lock_option
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, operator, pass_workspace
from llmgw.observed import Facts, Incarnation, incarnations
from llmgw.plan import Plan

if TYPE_CHECKING:
    from llmgw.cli.logs import Stretch

COLUMNS = (
    Column("REPLICA", "name"),
    Column("STATE", "state"),
    Column("NODES", "nodes"),
    Column("GPUS", "gpus"),
    Column("PORT", "port"),
    Column("SINCE", "since"),
    Column("PLAN", "plan", wide=True),
    Column("SPEC", "spec", wide=True),
)


@click.group()
def replicas() -> None:
    """Show replicas, follow their logs, stop or restart one."""


def replica_state(found: Incarnation) -> str:
    """What its ranks' processes say: running, stopping, exited, or silent where its nodes do not answer."""
    if found.silent >= set(found.nodes):
        return "silent"
    states = {run.state for _, run in found.ranks.values()}
    missing = len(found.ranks) < len(found.nodes) and not found.silent
    if "exited" in states or missing:
        return "broken" if len(found.nodes) > 1 else "exited"
    return "stopping" if "stopping" in states else "running"


def replica_row(found: Incarnation, *, now: datetime) -> dict[str, Any]:
    """What a list shows of one start of a replica."""
    began = found.started_at
    return {
        "name": found.replica,
        "state": replica_state(found),
        "nodes": list(found.nodes),
        "gpus": "+".join(str(len(found.gpus(node))) for node in found.nodes),
        "port": found.port,
        "since": duration((now - began).total_seconds()) if began else None,
        "plan": f"{found.plan} {found.action}",
        "spec": found.spec[7:19],
    }


@replicas.command(name="list")
@click.option("--refresh", is_flag=True, help="Ask the nodes now instead of showing what was last seen.")
@output_options
@pass_workspace
def list_(workspace: Workspace, refresh: bool, output: Output) -> None:
    """List what runs, by what was last seen on the nodes."""
    now = datetime.now(UTC)
    rows = [replica_row(found, now=now) for found in incarnations(_facts(workspace, refresh=refresh))]
    output.rows("replicas", rows, COLUMNS, empty="Nothing runs.")


def _facts(workspace: Workspace, *, refresh: bool) -> Facts:
    from llmgw.cli.planning import known_facts

    site = workspace.site if refresh else workspace.remembered_site
    if refresh:
        ask_nodes(workspace, site.nodes)
    return known_facts(workspace.store, site)


@replicas.command()
@click.argument("name")
@output_options
@pass_workspace
def show(workspace: Workspace, name: str, output: Output) -> None:
    """Show everything that was last seen of a replica."""
    found = _found(_facts(workspace, refresh=False), name)
    document = {
        "schema": 1,
        "replicas": [
            {
                **replica_row(one, now=datetime.now(UTC)),
                "ranks": {
                    str(rank): {"node": node, **run.model_dump(mode="json")}
                    for rank, (node, run) in one.ranks.items()
                },
            }
            for one in found
        ],
    }
    (output if not output.for_people else Output("yaml", headers=True)).document(document)


def _found(facts: Facts, name: str) -> list[Incarnation]:
    """All starts of a replica that were seen; UsageError with near names where there is none."""
    known = incarnations(facts)
    found = [one for one in known if one.replica == name]
    if not found:
        close = near(name, sorted({one.replica for one in known}))
        raise UsageError(
            f"nothing was seen of a replica {name}", hint=f"did you mean {close[0]}?" if close else ""
        )
    return found


@replicas.command()
@click.argument("name")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on showing lines as they come.")
@click.option("--rank", type=int, help="Only this rank; else all, each line with its node.")
@click.option("--since", help="Only what is newer: 30m, 2h, or a time.")
@click.option("--grep", help="Only lines that match this regular expression.")
@click.option("-n", "--lines", "count", default=200, show_default=True, help="At most so many of the last lines.")
@click.option("-p", "--previous", is_flag=True, help="What was printed before the start that runs now.")
@click.option("--plan", "plan_id", metavar="ID", help="What the start that this plan made has printed.")
@pass_workspace
def logs(
    workspace: Workspace,
    name: str,
    following: bool,
    rank: int | None,
    since: str | None,
    grep: str | None,
    count: int,
    previous: bool,
    plan_id: str | None,
) -> None:
    """Show what a replica's engines print, from their nodes over SSH.

    Of a replica of which nothing runs, what its last start printed. Keys that llmgw gave to engines are masked.
    """
    from llmgw.cli.logs import Reading, of_run, show_logs

    facts = _facts(workspace, refresh=False)
    here = [one for one in incarnations(facts) if one.replica == name]
    if plan_id or not here:
        ranks = dict(enumerate(_past(workspace, facts, name, plan_id or "")))
    else:
        latest = max(here, key=_age)
        ranks = {number: of_run(*found) for number, found in latest.ranks.items()}
    if rank is not None and rank not in ranks:
        raise UsageError(f"{name} has no rank {rank}", hint=f"it has {', '.join(map(str, sorted(ranks)))}")
    shown = [found for number, found in sorted(ranks.items()) if rank in (None, number)]
    show_logs(workspace, shown, Reading(count=count, since=since, grep=grep, follow=following, previous=previous))


def _past(workspace: Workspace, facts: Facts, name: str, plan: str) -> "list[Stretch]":
    """The logs of the last start of a replica, or of the one that a plan made, by rank."""
    from llmgw.cli.logs import of_past
    from llmgw.store.starts import past_start

    found = past_start(workspace.store, name, plan=plan)
    if found is None:
        _found(facts, name)
        raise UsageError(f"plan {plan} has started no {name}", hint="llmgw history " + name)
    return of_past(found, facts)


_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_OUTAGE = click.option("--allow-outage", is_flag=True, help="Although its model then has too few ready replicas.")


@replicas.command()
@click.argument("name")
@_YES
@lock_option
@pass_workspace
def stop(workspace: Workspace, name: str, yes: bool, lock_timeout: float) -> int:
    """Drain a replica and stop it now.

    The catalogue still asks for it: the next apply or reconcile starts it again. To be rid of it change models.yml.
    """
    return _by_hand(workspace, name, "stop", yes=yes, wait_s=lock_timeout)


@replicas.command()
@click.argument("name")
@_YES
@lock_option
@pass_workspace
def drain(workspace: Workspace, name: str, yes: bool, lock_timeout: float) -> int:
    """Take a replica out of every router and wait until it has nothing under way; it goes on running.

    The next apply publishes it again.
    """
    return _by_hand(workspace, name, "drain", yes=yes, wait_s=lock_timeout)


def _by_hand(workspace: Workspace, name: str, word: str, *, yes: bool, wait_s: float) -> int:
    from llmgw.cli.applying import Wishes, carry_out
    from llmgw.cli.confirm import confirm
    from llmgw.cli.planning import look
    from llmgw.plan import Op, Options
    from llmgw.plan.byhand import by_hand
    from llmgw.store.journal import consume

    with change(workspace, f"llmgw replicas {word} {name}", wait_s=wait_s) as lock:
        world = look(workspace, refresh=True)
        thought = world.think(Options())
        action = by_hand(thought, name, Op(word))
        confirm(f"{word} {name} on {', '.join(action.nodes)}?", yes=yes)
        whole = world.plan_of(thought)
        body = whole.body.model_copy(update={"actions": (action,), "unplaced": ()})
        plan = Plan.of(body, created=whole.created, by=whole.by)
        consume(workspace.store, plan, by=operator(), supersede=False)
        return carry_out(workspace, world, plan, Wishes(), lock=lock)


@replicas.command()
@click.argument("name")
@_YES
@_OUTAGE
@lock_option
@pass_workspace
def restart(workspace: Workspace, name: str, yes: bool, allow_outage: bool, lock_timeout: float) -> int:
    """Drain a replica, stop it and start it again, by the catalogue as it is now."""
    from llmgw.cli.apply import apply_fresh
    from llmgw.cli.applying import Wishes
    from llmgw.plan import Options

    with change(workspace, f"llmgw replicas restart {name}", wait_s=lock_timeout) as lock:
        options = Options(targets=(name,), replace=(name,))
        return apply_fresh(workspace, options, Wishes(), lock, yes=yes, allow_outage=allow_outage)


def _age(found: Incarnation) -> datetime:
    return found.started_at or datetime.min.replace(tzinfo=UTC)
