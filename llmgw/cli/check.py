"""llmgw check: are the files right, and are the nodes ready."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode, count
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import HOSTS, SETTINGS, Workspace, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.remote.findings import Finding

COLUMNS = (
    Column("HOST", "name"),
    Column("", "severity"),
    Column("WHAT", "what"),
    Column("NEXT", "next"),
)


@click.command()
@click.option(
    "--nodes", is_flag=True, help="Reach every node too: host key, sudo, Python, tools, GPUs, clock, disk…"
)
@click.option(
    "--sudoers", metavar="USER", help="Print the sudoers lines that USER needs on nodes, and do nothing else."
)
@click.option(
    "-l", "--limit", metavar="PATTERN", help="Only these nodes: names, gpu[01-16], or globs, with commas."
)
@output_options
@pass_workspace
def check(workspace: Workspace, nodes: bool, sudoers: str | None, limit: str | None, output: Output) -> int:
    """Validate the site's files, and with --nodes every node.

    The files are read as every other command reads them: the first thing wrong is shown with its file, line and path.
    With --nodes each node is reached once, and each thing that is wrong there is shown with the command to run next.
    `--sudoers USER -o json` prints the variables that playbooks/node_prepare.yml takes.
    """
    site = workspace.site
    if sudoers:
        from llmgw.remote.sudoers import node_prepare, sudoers_lines

        if output.for_people:
            click.echo("\n".join(sudoers_lines(site, sudoers)))
        else:
            output.document({"node_prepare": node_prepare(site, sudoers)})
        return ExitCode.DONE
    wanted = sum(sum(model.counts().values()) for model in site.catalogue.models.values())
    say(
        f"{workspace.path(HOSTS)}: {count(len(site.nodes), 'node')}, {count(len(site.routers), 'router host')}; "
        f"{count(len(site.catalogue.models), 'model')}, {count(wanted, 'replica')} wanted"
    )
    from llmgw.site import unknown_scanners

    for line in unknown_scanners(site):
        say(f"{workspace.path(SETTINGS)}: {line}")
    if not nodes:
        if unknown_scanners(site):
            return ExitCode.ERROR
        say("The files are right. Next: llmgw check --nodes")
        return ExitCode.DONE
    return _check_nodes(workspace, limit, output)


def _check_nodes(workspace: Workspace, limit: str | None, output: Output) -> int:
    from llmgw.cli.asking import ask_nodes, chosen, enrolling
    from llmgw.remote.findings import node_findings, unreachable_finding
    from llmgw.remote.sudoers import privileged_commands

    site = workspace.site
    picked = chosen(site.nodes, limit)
    privileged = privileged_commands(site, scans=True)
    seen = ask_nodes(workspace, picked, privileged=privileged)
    findings: list[Finding] = []
    for node in picked:
        if node.name in seen.answered:
            findings += node_findings(site, node, seen.answered[node.name], privileged=privileged)
        else:
            why = seen.unreachable.get(node.name) or seen.failed[node.name]
            findings.append(unreachable_finding(node.name, why, enrol=enrolling(node, why)))
    _show(findings, output, len(seen.answered), len(picked))
    if any(finding.severity == "error" and finding.host in seen.answered for finding in findings) or seen.failed:
        return ExitCode.ERROR
    return ExitCode.UNREACHABLE if seen.unreachable else ExitCode.DONE


def _show(findings: "Sequence[Finding]", output: Output, answered: int, asked: int) -> None:
    rows = [{"name": one.host, "severity": one.severity, "what": one.what, "next": one.next} for one in findings]
    if output.for_people:
        for row in rows:
            _paragraph(row)
    else:
        output.rows("findings", rows, COLUMNS, empty="")
    errors = sum(one.severity == "error" for one in findings)
    say(
        f"{answered} of {count(asked, 'node')} answered; {count(errors, 'error')}, "
        f"{count(len(findings) - errors, 'warning')}"
        + ("." if errors else ": nothing keeps engines from running.")
    )


def _paragraph(row: dict[str, str]) -> None:
    from llmgw.base import visible

    mark = click.style(row["severity"], fg="red" if row["severity"] == "error" else "yellow")
    click.echo(f"{row['name']}: {mark}: {visible(row['what'])}")
    if row["next"]:
        click.echo(f"    next: {visible(row['next'])}", file=sys.stdout)
