"""llmgw replicas: the copies that run, their logs, and taking one down by hand."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from llmgw.base import LlmgwError, UsageError, duration, near
from llmgw.cli.asking import ask_nodes
from llmgw.cli.history import ago
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace
from llmgw.observed import Facts, Incarnation, incarnations

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
    from llmgw.store.nodes import load_facts

    site = workspace.site if refresh else workspace.remembered_site
    if refresh:
        ask_nodes(workspace, site.nodes)
    return load_facts(workspace.store, [node.name for node in site.nodes])


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
@pass_workspace
def logs(
    workspace: Workspace,
    name: str,
    following: bool,
    rank: int | None,
    since: str | None,
    grep: str | None,
    count: int,
) -> None:
    """Show what a replica's engines print, from their nodes over SSH.

    Keys that llmgw gave to engines are masked.
    """
    from llmgw.cli.logs import Source, follow, log_command, masker
    from llmgw.remote.ssh import connected, lines, route_of
    from llmgw.store.published import all_engine_keys

    pattern = _pattern(grep)
    begin = ago(since, now=datetime.now(UTC)) if since else None
    site = workspace.site
    latest = max(_found(_facts(workspace, refresh=False), name), key=_age)
    sources = []
    for number, (host, run) in latest.ranks.items():
        if rank in (None, number):
            node = site.node(host)
            command = log_command(site, node, run, lines=count, since=begin, follow=following)
            sources.append(Source(node, run, command))
    if not sources:
        raise UsageError(f"{name} has no rank {rank}", hint=f"it has 0 to {len(latest.nodes) - 1}")
    mask = masker(all_engine_keys(workspace.store))
    connect_s = site.settings.timeouts.connect_s

    def read(source: Source) -> Iterator[str]:
        with connected(route_of(source.node), timeout_s=connect_s) as client:
            yield from lines(client, source.command, timeout_s=None if following else 60)

    def show_line(source: Source, line: str) -> None:
        if pattern is None or pattern.search(line):
            head = f"{source.node.name}: " if len(sources) > 1 else ""
            click.echo(head + mask(line))

    follow(sources, read, show=show_line)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise LlmgwError(f"--grep {text!r} is no regular expression: {error}") from None


def _age(found: Incarnation) -> datetime:
    return found.started_at or datetime.min.replace(tzinfo=UTC)
