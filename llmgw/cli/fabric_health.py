"""llmgw fabric verify and export: what is wrong now, and maps for other programs."""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode, LlmgwError, UsageError, duration
from llmgw.cli.output import Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.cli.maps import Ground
    from llmgw.fabric import Fabric, Finding, Findings, Part, Sample
    from llmgw.store.maps import StoredFabric, StoredScan


@click.command()
@click.argument("names", metavar="[FABRIC]…", nargs=-1)
@click.option(
    "--max-age", metavar="TIME", help="A map that no scan has confirmed for so long is an error: 15m, 2h."
)
@output_options
@pass_workspace
def verify(workspace: Workspace, names: tuple[str, ...], max_age: str | None, output: Output) -> int:
    """Show what is wrong with the fabrics now; exit 1 where anything is worse than a note. For monitoring.

    Short cables, adapters off their rail, cables and switches that earlier scans saw, ports that are down and had a
    cable, names that two devices claim, a last scan that was partial or rejected. All fabrics, or the named ones.
    What was taken away on purpose: llmgw fabric forget FABRIC --missed.
    """
    from llmgw.cli.maps import ground, stored
    from llmgw.fabric import finding_lines
    from llmgw.store.maps import fabrics

    state, under = workspace.store, ground(workspace)
    found = [stored(state, name) for name in names] or fabrics(state)
    if not found:
        raise UsageError("there is no fabric yet", hint="llmgw fabric scan")
    oldest = _oldest(max_age)
    results = [checked(workspace, under, one, oldest=oldest) for one in found]
    healthy = all(one.healthy for one in results)
    if not output.for_people:
        output.document(
            {"schema": 1, "healthy": healthy, "fabrics": [one.model_dump(mode="json") for one in results]}
        )
        return ExitCode.DONE if healthy else ExitCode.ERROR
    for one in results:
        lines = finding_lines(one)
        click.echo(f"{one.fabric}: " + ("nothing is wrong" if one.healthy else "not well"))
        for line in lines:
            click.echo(f"  {line}")
    return ExitCode.DONE if healthy else ExitCode.ERROR


def _oldest(max_age: str | None) -> datetime | None:
    from llmgw.cli.times import ago

    return ago(max_age, now=datetime.now(UTC)) if max_age else None


def checked(
    workspace: Workspace, under: "Ground", fabric: "StoredFabric", *, oldest: datetime | None = None
) -> "Findings":
    """What is wrong with one fabric: its map, what is missed, what is down, and how the last scan ended."""
    return _looked_at(workspace, under, fabric, oldest)[1]


def _looked_at(
    workspace: Workspace, under: "Ground", fabric: "StoredFabric", oldest: datetime | None
) -> "tuple[Fabric, Findings, StoredScan]":
    from llmgw.cli.keeping import missed_in, newest_states, read_topology
    from llmgw.cli.maps import load, pick
    from llmgw.fabric import cabled_ports, down_ports, parse_linkinfo
    from llmgw.fabric.verify import verify as verified

    state = workspace.store
    scan = pick(state, fabric, None)
    shape, missed = load(state, scan, under), missed_in(state, fabric.name)
    whole = read_topology(state, scan.number)
    newest = read_topology(state, fabric.newest) if fabric.newest not in (None, scan.number) else whole
    states, _ = parse_linkinfo(newest_states(state, fabric))
    part = under.stored_parts(state).get(fabric.name)
    more = [*_about_scans(workspace, under, fabric, shape), *_about_part(part), *_about_age(scan, oldest)]
    found = verified(
        shape,
        name=fabric.name,
        scanned_at=datetime.fromisoformat(scan.at),
        down=down_ports(states, cabled_ports(missed, [newest, whole]), now=newest),
        missed=missed,
        more=more,
    )
    return shape, found, scan


def _about_scans(
    workspace: Workspace, under: "Ground", fabric: "StoredFabric", shape: "Fabric"
) -> "Iterator[Finding]":
    """How the scans since the map ended, and what a partial one of them saw that is new."""
    from llmgw.cli.maps import load
    from llmgw.fabric import Finding, Severity
    from llmgw.store.maps import stored_scan

    last = stored_scan(workspace.store, fabric.last)
    if last and last.verdict == "rejected":
        reason = last.problems.splitlines()[0] if last.problems else "no reason was kept"
        yield Finding(Severity.WARNING, "last scan rejected", f"scan {last.number} of {last.at}: {reason}")
    partial = stored_scan(workspace.store, fabric.partial) if fabric.map is not None else None
    if partial is None:
        return
    since = load(workspace.store, partial, under)
    yield Finding(
        Severity.WARNING, "last scan partial", f"scan {partial.number} of {partial.at}: {since.verdict.reason}"
    )
    told = {one.text for one in shape.findings}
    yield from (one for one in since.findings if one.kind in ("short cable", "off rail") and one.text not in told)


def _about_part(part: "Part | None") -> "Iterator[Finding]":
    from llmgw.fabric import Finding, Severity

    if part and part.why and part.role != "compute":
        yield Finding(Severity.WARNING, "part unknown", f"no replica is placed by this fabric: {part.why}")


def _about_age(scan: "StoredScan", oldest: datetime | None) -> "Iterator[Finding]":
    from llmgw.fabric import Finding, Severity

    at = datetime.fromisoformat(scan.at)
    if oldest and at < oldest:
        age = duration((datetime.now(UTC) - at) / timedelta(seconds=1))
        yield Finding(Severity.ERROR, "map old", f"no scan has confirmed the map for {age}")


def figures(workspace: Workspace, *, failed: Collection[str] = (), run_at: datetime | None = None) -> str:
    """Every fabric's figures for Prometheus. `failed` are those of which the round that just ended got no map."""
    from llmgw.cli.maps import ground
    from llmgw.fabric import prometheus
    from llmgw.store.maps import fabrics

    under = ground(workspace)
    samples = [
        _sample(workspace, under, one, failed=failed) for one in fabrics(workspace.store) if one.best is not None
    ]
    return prometheus(samples, run_at=run_at)


def _sample(workspace: Workspace, under: "Ground", fabric: "StoredFabric", *, failed: Collection[str]) -> "Sample":
    from llmgw.fabric import Sample

    shape, found, scan = _looked_at(workspace, under, fabric, None)
    role = under.stored_parts(workspace.store)[fabric.name].role
    succeeded = fabric.name not in failed and fabric.last in (fabric.map, fabric.partial)
    return Sample(fabric.name, role, shape, found, datetime.fromisoformat(scan.at), succeeded=succeeded)


FORMATS = ("slurm-conf", "slurm-yaml", "topology", "prometheus")


@click.command()
@click.argument("name", metavar="[FABRIC]", required=False)
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="slurm-conf",
    show_default=True,
    help="Slurm's topology.conf or topology.yaml, the topology document, or figures of all fabrics for Prometheus.",
)
@click.option("-O", "--out", type=click.Path(path_type=Path, dir_okay=False), help="The file; else stdout.")
@click.option("--scan", "number", type=int, help="An earlier scan, by its number.")
@pass_workspace
def export(workspace: Workspace, name: str | None, kind: str, out: Path | None, number: int | None) -> None:
    """Write a map for another program: Slurm's tree, the topology document, figures for Prometheus.

    Slurm gets the inventory's GPU nodes where a site is named, else every host that the map names: a switch for each
    group of nodes that meet under the same leaves, one for each pod, and the root.
    """
    text = figures(workspace) if kind == "prometheus" else _exported(workspace, name, kind, number)
    if out is None:
        click.echo(text, nl=False)
        return
    from llmgw.store.files import write_whole

    write_whole(out, text.encode(), mode=0o644)
    say(f"wrote {out}")


def _exported(workspace: Workspace, name: str | None, kind: str, number: int | None) -> str:
    from llmgw.cli.maps import ground, load, pick, stored
    from llmgw.fabric import slurm_conf, slurm_yaml
    from llmgw.store.maps import topology_text

    fabric, under = stored(workspace.store, name), ground(workspace)
    scan = pick(workspace.store, fabric, number)
    if scan.verdict == "rejected":
        raise LlmgwError(f"scan {scan.number} was rejected; there is no map of it")
    if kind == "topology":
        return (topology_text(workspace.store, scan.number) or "").rstrip("\n") + "\n"
    written = slurm_conf if kind == "slurm-conf" else slurm_yaml
    return written(load(workspace.store, scan, under), name=fabric.name, hosts=under.hosts)
