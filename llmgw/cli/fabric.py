"""llmgw fabric: the maps of the InfiniBand fabrics."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from llmgw.base import LlmgwError, UsageError, duration
from llmgw.cli.fabric_compare import diff, forget, history
from llmgw.cli.fabric_health import export, verify
from llmgw.cli.fabric_scan import scan
from llmgw.cli.fabric_schedule import schedule
from llmgw.cli.output import Column, Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say

COLUMNS = (
    Column("FABRIC", "name"),
    Column("ROLE", "role"),
    Column("SCANNED", "scanned"),
    Column("STATE", "state"),
    Column("SWITCHES", "switches"),
    Column("LEAVES", "leaves"),
    Column("NODES", "nodes"),
    Column("ADAPTERS", "adapters"),
    Column("CABLES", "links"),
    Column("SHORT", "degraded"),
    Column("OFF RAIL", "off_rail"),
    Column("FROM", "source", wide=True),
    Column("SCAN", "scan", wide=True),
)


@click.group()
def fabric() -> None:
    """Scan, show, draw and compare the InfiniBand fabrics.

    A fabric is everything that one scan sees. FABRIC can be left out where there is only one.
    """


for command in (scan, diff, history, forget, verify, export, schedule):
    fabric.add_command(command)


@fabric.command(name="list")
@output_options
@pass_workspace
def list_(workspace: Workspace, output: Output) -> None:
    """List the fabrics with the figures of their maps."""
    from llmgw.store.maps import fabrics

    rows = [row(workspace, one.name) for one in fabrics(workspace.store)]
    output.rows("fabrics", rows, COLUMNS, empty="No fabric was ever scanned. Next: llmgw fabric scan")


def row(workspace: Workspace, name: str) -> dict[str, Any]:
    """A fabric with the figures of its map, as the list shows it."""
    from llmgw.cli.maps import Ground, pick, stored

    found = stored(workspace.store, name)
    settings = workspace.settings if workspace.folder else None
    part = Ground(settings=settings).stored_parts(workspace.store).get(name)
    line: dict[str, Any] = {"name": name, "role": part.role if part else None, "scan": found.best}
    if found.best is None:
        return {**line, "state": "never scanned whole"}
    scan = pick(workspace.store, found, None)
    age = duration((datetime.now(UTC) - datetime.fromisoformat(scan.at)).total_seconds())
    state = scan.verdict if found.partial is None or found.map is None else f"{scan.verdict}, a partial scan since"
    if found.last not in (found.map, found.partial):
        state += ", the last scan was rejected"
    return {**line, "scanned": f"{age} ago", "at": scan.at, "state": state, "source": scan.source, **scan.summary}


@fabric.command()
@click.argument("name", metavar="[FABRIC]", required=False)
@click.option("--of", "part", metavar="NODE|SWITCH", help="Where each cable of this node or switch goes.")
@click.option("--scan", "number", type=int, help="An earlier scan, by its number.")
@output_options
@pass_workspace
def show(workspace: Workspace, name: str | None, part: str | None, number: int | None, output: Output) -> None:
    """Show a map: switches by tier, rails, groups of leaves with their nodes, and what is wrong.

    -o json is the topology document, -o wide names all nodes.
    """
    from llmgw.cli.maps import ground, load, pick, stored
    from llmgw.fabric import Topology
    from llmgw.store.maps import topology_text

    found = stored(workspace.store, name)
    scan = pick(workspace.store, found, number)
    text = topology_text(workspace.store, scan.number)
    if text is None:
        raise LlmgwError(f"scan {scan.number} was rejected; there is no map of it")
    if part is None and not output.for_people:
        output.document(Topology.read(text, f"scan {scan.number}").model_dump(mode="json"))
        return
    from llmgw.cli.fabric_text import CABLES, cable_rows, map_lines

    shape = load(workspace.store, scan, ground(workspace))
    if part is not None:
        output.rows("cables", cable_rows(shape, part), CABLES, empty=f"{part} has no cable.")
        return
    for line in map_lines(shape, scan, names=10_000 if output.format == "wide" else 100):
        click.echo(line)


@fabric.command()
@click.argument("name", metavar="[FABRIC]", required=False)
@click.option(
    "-O", "--out", type=click.Path(path_type=Path), help="The file; its ending says svg, png, pdf or dot."
)
@click.option(
    "-o",
    "--format",
    "kind",
    type=click.Choice(["svg", "png", "pdf", "dot"]),
    help="The format, where the file's ending does not say it.",
)
@click.option("--full", is_flag=True, help="Every cable; else the pattern and what breaks it.")
@click.option("--limit", metavar="pod=|leaf=|node=", help="Only this part.")
@click.option(
    "--color",
    "colour",
    type=click.Choice(["rail", "rate", "state"]),
    default="rail",
    show_default=True,
    help="What colours say.",
)
@click.option("--diff", "old", type=int, metavar="SCAN", help="Mark what changed since that scan.")
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path), help="Mark where this plan puts its replicas."
)
@click.option("--scan", "number", type=int, help="An earlier scan, by its number.")
@pass_workspace
def draw(
    workspace: Workspace,
    name: str | None,
    out: Path | None,
    kind: str | None,
    full: bool,
    limit: str | None,
    colour: str,
    old: int | None,
    plan_file: Path | None,
    number: int | None,
) -> None:
    """Draw a map with Graphviz: leaves under spines under cores, and what is wrong.

    Without --out the picture goes to stdout.
    """
    from llmgw.cli.fabric_drawing import Wish, drawn
    from llmgw.cli.maps import pick, stored

    found = stored(workspace.store, name)
    scan = pick(workspace.store, found, number)
    form = kind or (out.suffix.lstrip(".") if out else "svg")
    if form not in ("svg", "png", "pdf", "dot"):
        raise UsageError(f"{form!r} is no picture format", hint="svg, png, pdf or dot")
    wish = Wish(form, colour, full=full, limit=limit, old=old, plan_file=plan_file)
    picture = drawn(workspace, found, scan, wish)
    if out is None:
        sys.stdout.buffer.write(picture)
        return
    from llmgw.store.files import write_whole

    write_whole(out, picture, mode=0o644)
    say(f"wrote {out}")
