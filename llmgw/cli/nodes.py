"""llmgw nodes: what the nodes are and how they stand; taking them out and giving them back."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import click

from llmgw.base import duration
from llmgw.cli.asking import ask_nodes, chosen, chosen_one
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, operator, pass_workspace, say
from llmgw.observed import Facts, NodeFacts, Orphan
from llmgw.plan import Cordon
from llmgw.site import Site

State = Literal["ok", "cordoned", "draining", "unreachable", "lost", "unknown"]
COLUMNS = (
    Column("NODE", "name"),
    Column("STATE", "state"),
    Column("GPUS", "gpus"),
    Column("MODEL", "gpu_model"),
    Column("RUNS", "runs"),
    Column("RUNNING", "replicas"),
    Column("ADAPTERS", "adapters", wide=True),
    Column("SUPERVISOR", "supervisor", wide=True),
    Column("LABELS", "labels", wide=True),
    Column("SEEN", "seen"),
    Column("REASON", "reason"),
)


def node_state(name: str, facts: Facts, cordons: Mapping[str, Cordon], site: Site, *, now: datetime) -> State:
    """ok, cordoned, draining, unreachable, lost, or unknown where the node was never asked."""
    if name in facts.silent and (name in facts.nodes or name not in cordons):
        since = facts.silent[name]
        if since is None:
            return "unknown" if name not in facts.nodes else "unreachable"
        return "lost" if (now - since).total_seconds() > site.settings.lost_after_s else "unreachable"
    if name in cordons:
        return "draining" if cordons[name].kind == "drain" else "cordoned"
    return "ok"


def node_row(node: NodeFacts | None) -> dict[str, Any]:
    """What of a node's facts a list shows."""
    if node is None:
        return {"gpus": None, "gpu_model": "", "runs": "", "replicas": [], "adapters": None, "supervisor": ""}
    models = sorted({gpu.model for gpu in node.gpus})
    running = [run for run in node.runs if run.state != "exited"]
    return {
        "gpus": len(node.gpus),
        "gpu_model": models[0] if len(models) == 1 else ", ".join(models),
        "runs": f"{sum(len(run.gpus) for run in running)} of {len(node.gpus)} GPUs",
        "replicas": [run.replica for run in running],
        "adapters": sum(adapter.link_layer == "InfiniBand" for adapter in node.adapters),
        "supervisor": node.supervisor,
    }


@click.group()
def nodes() -> None:
    """Show nodes; cordon, drain and uncordon them.

    PATTERN is names with commas, hostlists like gpu[01-16], or globs like gpu0*.
    """


@nodes.command(name="list")
@click.argument("pattern", required=False)
@click.option("--refresh", is_flag=True, help="Ask the nodes now instead of showing what was last seen.")
@output_options
@pass_workspace
def list_(workspace: Workspace, pattern: str | None, refresh: bool, output: Output) -> None:
    """List the nodes with what was last seen of them."""
    from llmgw.store.nodes import cordons, load_facts

    site = workspace.site if refresh else workspace.remembered_site
    picked = chosen(site.nodes, pattern)
    if refresh:
        ask_nodes(workspace, picked)
    facts = load_facts(workspace.store, [node.name for node in picked])
    out, now = cordons(workspace.store), datetime.now(UTC)
    rows = []
    for node in picked:
        seen = facts.nodes.get(node.name)
        cordon = out.get(node.name)
        rows.append(
            {
                "name": node.name,
                "state": node_state(node.name, facts, out, site, now=now),
                **node_row(seen),
                "labels": list(node.variables.labels),
                "seen": f"{duration((now - seen.seen_at).total_seconds())} ago" if seen else "never",
                "reason": "; ".join(_reasons(cordon, seen)),
            }
        )
    output.rows("nodes", rows, COLUMNS, empty="The inventory has no nodes.")


def _reasons(cordon: Cordon | None, seen: NodeFacts | None) -> list[str]:
    """Why less is placed on a node than it could take."""
    found = [f"{cordon.reason} ({cordon.by})"] if cordon else []
    return found + [_orphan_words(orphan) for orphan in (seen.orphans if seen else ())]


def _orphan_words(orphan: Orphan) -> str:
    what = orphan.replica or orphan.unit
    pids = ", ".join(map(str, orphan.pids))
    gpus = f", GPU {','.join(map(str, orphan.gpus))}" if orphan.gpus else ""
    return f"left over from {what}: pid {pids}{gpus}"


@nodes.command()
@click.argument("name")
@output_options
@pass_workspace
def show(workspace: Workspace, name: str, output: Output) -> None:
    """Show everything that is known of one node."""
    from llmgw.store.nodes import cordons, load_facts

    site = workspace.remembered_site
    node = chosen_one(site.nodes, name)
    facts = load_facts(workspace.store, [node.name])
    out = cordons(workspace.store)
    document = {
        "schema": 1,
        "name": node.name,
        "state": node_state(node.name, facts, out, site, now=datetime.now(UTC)),
        "cordon": {"reason": out[name].reason, "by": out[name].by} if name in out else None,
        "inventory": node.model_dump(mode="json"),
        "facts": facts.nodes[node.name].model_dump(mode="json") if node.name in facts.nodes else None,
    }
    (output if not output.for_people else Output("yaml", headers=True)).document(document)
    for orphan in facts.nodes[node.name].orphans if node.name in facts.nodes else ():
        pids = " ".join(map(str, orphan.pids))
        say(f"{node.name}: {_orphan_words(orphan)}. Nothing is placed on its GPUs.")
        say(f"    next: llmgw replicas stop {orphan.replica or '?'}, or on {node.name}: kill -9 {pids}")


@nodes.command(name="facts")
@click.argument("pattern", required=False)
@click.option("--refresh/--stored", default=True, help="Ask the nodes now, or show what was last seen.")
@pass_workspace
def facts_(workspace: Workspace, pattern: str | None, refresh: bool) -> None:
    """Print the facts document (llmgw-facts/1), which llmgw plan --facts reads."""
    from llmgw.store.nodes import load_facts

    picked = chosen(workspace.site.nodes, pattern)
    if refresh:
        ask_nodes(workspace, picked)
    click.echo(load_facts(workspace.store, [node.name for node in picked]).text(), nl=False)


def _take_out(workspace: Workspace, pattern: str, reason: str, kind: str) -> None:
    from llmgw.store.history import record
    from llmgw.store.nodes import set_cordon

    for node in chosen(workspace.remembered_site.nodes, pattern):
        at = datetime.now(UTC)
        set_cordon(workspace.store, Cordon(node.name, kind, reason, operator(), at))  # type: ignore[arg-type]
        record(workspace.store, kind, node.name, reason, by=operator())
        say(f"{node.name}: {'draining' if kind == 'drain' else 'cordoned'} ({reason})")


@nodes.command()
@click.argument("pattern")
@click.option("-r", "--reason", required=True, help="Why; shown wherever the node is missed.")
@pass_workspace
def cordon(workspace: Workspace, pattern: str, reason: str) -> None:
    """Place nothing new on nodes. What runs there goes on."""
    _take_out(workspace, pattern, reason, "cordon")


@nodes.command()
@click.argument("pattern")
@click.option("-r", "--reason", required=True, help="Why; shown wherever the node is missed.")
@pass_workspace
def drain(workspace: Workspace, pattern: str, reason: str) -> None:
    """Place nothing new on nodes, and have the next plan move away what runs there."""
    _take_out(workspace, pattern, reason, "drain")
    say("next: llmgw plan  shows what moves, llmgw apply moves it")


@nodes.command()
@click.argument("pattern")
@pass_workspace
def uncordon(workspace: Workspace, pattern: str) -> None:
    """Give nodes back to placement."""
    from llmgw.store.history import record
    from llmgw.store.nodes import remove_cordon

    for node in chosen(workspace.remembered_site.nodes, pattern):
        if remove_cordon(workspace.store, node.name):
            record(workspace.store, "uncordon", node.name, "given back to placement", by=operator())
            say(f"{node.name}: given back to placement")
        else:
            say(f"{node.name}: was not cordoned")


@nodes.command()
@click.argument("name")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on showing lines as they come.")
@click.option("--since", help="Only what is newer: 30m, 2h, or a time.")
@click.option("--grep", help="Only lines that match this regular expression.")
@click.option("-n", "--lines", "count", default=100, show_default=True, help="At most so many of each engine.")
@click.option("-p", "--previous", is_flag=True, help="What was printed before the starts that run now.")
@pass_workspace
def logs(
    workspace: Workspace,
    name: str,
    following: bool,
    since: str | None,
    grep: str | None,
    count: int,
    previous: bool,
) -> None:
    """Show what the engines on a node print, each line with its unit."""
    from llmgw.cli.logs import Reading, of_run, show_logs
    from llmgw.store.nodes import load_facts

    node = chosen_one(workspace.site.nodes, name)
    seen = load_facts(workspace.store, [node.name]).nodes.get(node.name)
    runs = [of_run(node.name, run) for run in (seen.runs if seen else ())]
    if not runs:
        say(f"{node.name}: no engine was seen there")
        return
    show_logs(workspace, runs, Reading(count=count, since=since, grep=grep, follow=following, previous=previous))
