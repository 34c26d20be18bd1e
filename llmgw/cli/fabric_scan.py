"""llmgw fabric scan: the round of scans for people, for cron, and from a saved text."""

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode, LlmgwError, LockedError, UsageError, visible
from llmgw.cli.output import Output, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.cli.keeping import Kept
    from llmgw.cli.scanning import Round


@dataclass(frozen=True, slots=True)
class Manner:
    """How a round of scans is to go: for cron, how long, and what is done with what it found."""

    cron: bool
    if_free: bool
    jitter_s: float
    limit_s: float
    textfile: Path | None
    publish: bool
    detailed: bool


@dataclass(slots=True)
class Told:
    """What a round had to say: at once for people; kept for one line at the end for cron."""

    aloud: bool
    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if self.aloud:
            say(line)


@click.command()
@click.argument("names", metavar="[FABRIC]…", nargs=-1)
@click.option("--from", "file", metavar="FILE|-", help="Read ibnetdiscover's text from a file; no node is asked.")
@click.option(
    "--cron", is_flag=True, help="Silent when all is well; else one line on stderr and a code that is not 0."
)
@click.option("--if-free", is_flag=True, help="Exit 0 at once where another scan is under way.")
@click.option(
    "--jitter",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Wait a random time first, at most this long.",
)
@click.option(
    "--timeout", default=600.0, show_default=True, metavar="SECONDS", help="Begin no scan after this time."
)
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every fabric's figures to this file, for node_exporter's textfile collector.",
)
@click.option("--publish/--no-publish", default=True, help="Give the maps to the router hosts, or not.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 where something changed since the last scan.")
@output_options
@pass_workspace
def scan(
    workspace: Workspace,
    names: tuple[str, ...],
    file: str | None,
    cron: bool,
    if_free: bool,
    jitter: float,
    timeout: float,
    textfile: Path | None,
    publish: bool,
    detailed_exitcode: bool,
    output: Output,
) -> int:
    """Map every physical fabric through one node each, and say what changed.

    Which fabrics there are is found out: a scan starts from an active port, everything it sees is one fabric, and ports
    that no scan has seen are scanned from next. Where a port gives no map, the next one is tried. A scan that is not
    whole never replaces a whole map; one that is rejected changes nothing.

    \b
    With a saved text and no site:
      ibnetdiscover | llmgw fabric scan ib0 --from -
    For cron, every five minutes:
      */5 * * * * llmgw --site /etc/llmgw fabric scan --cron --jitter 60
    """
    manner = Manner(cron, if_free, jitter, timeout, textfile, publish, detailed_exitcode)
    if file is None:
        return _alone(workspace, manner, lambda: _round(workspace, names, manner, output))
    if len(names) != 1:
        raise UsageError("--from wants exactly one FABRIC: the name to remember it by")
    _check_name(names[0])
    return _alone(workspace, manner, lambda: _from_text(workspace, names[0], file, manner, output))


def _check_name(name: str) -> None:
    """UsageError for what cannot be a fabric's name in llmgw.yml either; it becomes a file's name on router hosts."""
    from pydantic import TypeAdapter, ValidationError

    from llmgw.base import ModelName

    try:
        TypeAdapter(ModelName).validate_python(name)
    except ValidationError as error:
        what = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"{name!r} is no name for a fabric: {what}") from None


def _alone(workspace: Workspace, manner: Manner, work: Callable[[], int]) -> int:
    """Work with the lock of scans; nothing where another has it and that is no matter. A person waits for a minute."""
    from llmgw.store.scan_lock import scanning

    if manner.jitter_s > 0:
        time.sleep(random.uniform(0, manner.jitter_s))  # noqa: S311 -- so that not all sites ask at once
    try:
        with scanning(workspace.store_path, wait_s=0.0 if manner.cron or manner.if_free else 60.0):
            return work()
    except LockedError:
        if manner.if_free:
            return ExitCode.DONE
        raise


def _from_text(workspace: Workspace, name: str, file: str, manner: Manner, output: Output) -> int:
    from llmgw.cli.scanning import scan_text

    kept = scan_text(workspace, name, read_file(file), source=file if file != "-" else "standard input")
    if manner.textfile:
        _write_figures(workspace, manner.textfile)
    if not manner.cron:
        _answer(workspace, [kept], output)
    return _code([kept], manner)


def read_file(file: str) -> str:
    from llmgw.fabric import LIMIT_BYTES

    try:
        if file == "-":
            raw = sys.stdin.buffer.read(LIMIT_BYTES + 1)
        else:
            with Path(file).open("rb") as text:
                raw = text.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise LlmgwError(f"{file}: {error.strerror}") from None
    return raw.decode("utf-8", "surrogateescape")


def _round(workspace: Workspace, names: Sequence[str], manner: Manner, output: Output) -> int:
    from llmgw.cli.scanning import scan_all

    told = Told(aloud=not manner.cron)
    done = scan_all(workspace, names, limit_s=manner.limit_s, tell=told)
    for line in _parts(workspace, done):
        told(line)
    if manner.textfile:
        _write_figures(workspace, manner.textfile, failed=done.unseen)
    undelivered = _undelivered(workspace) if manner.publish and done.kept else []
    if not manner.cron:
        _answer(workspace, done.kept, output)
    wrong = [*_wrong(done, told), *undelivered]
    if len(wrong) > len(undelivered):
        raise LlmgwError("; ".join(wrong)) if manner.cron else LlmgwError(wrong[0], hint="\n".join(wrong[1:]))
    if undelivered:
        say("; ".join(undelivered))
        return ExitCode.UNREACHABLE
    return _code(done.kept, manner)


def _wrong(done: "Round", told: Told) -> list[str]:
    """What is no scan as it should be: fabrics that gave no map, and maps that newly are not whole."""
    failures = "; ".join(done.failures[:3])
    wrong = [f"no map of {', '.join(done.unseen)} came about" + (f": {failures}" if failures else "")] * bool(
        done.unseen
    )
    if not done.kept and not done.unseen:
        wrong.append(f"no map came about: {failures}" if failures else "no node has an active InfiniBand port")
    if not told.aloud:
        wrong += [
            f"{one.name}: {one.fabric.verdict.state}: {visible(one.fabric.verdict.reason)}"
            for one in done.kept
            if one.is_news and one.fabric.verdict.state != "complete"
        ]
    return wrong


def _parts(workspace: Workspace, done: "Round") -> list[str]:
    """A line for each fabric of which nobody said what it is for, where that was not plain."""
    from llmgw.cli.maps import Ground

    found = Ground(settings=workspace.settings).stored_parts(workspace.store)
    return [
        f"{name}: {one.why}; " + ("replicas are" if one.role == "compute" else "no replica is") + " placed by it. "
        "Say what it is for under fabrics: in llmgw.yml"
        for name, one in found.items()
        if one.why and name in done.names
    ]


def _undelivered(workspace: Workspace) -> list[str]:
    """Give the maps to the router hosts; a line for each that did not take them."""
    from llmgw.cli.publishing import fleet
    from llmgw.remote.publish import deliver

    if not workspace.site.routers:
        return []
    with workspace.session() as session:
        failed = deliver(session, workspace.site, fleet(workspace)).failed
    last = {host: visible(why.splitlines()[-1]) if why else "no answer" for host, why in sorted(failed.items())}
    return [f"router host {host} did not take the maps: {why}" for host, why in last.items()]


def _write_figures(workspace: Workspace, file: Path, *, failed: Sequence[str] = ()) -> None:
    from llmgw.cli.fabric_health import figures
    from llmgw.store.files import write_whole

    text = figures(workspace, failed=failed, run_at=datetime.now(UTC))
    write_whole(file, text.encode(), mode=0o644)


def _answer(workspace: Workspace, kept: "Sequence[Kept]", output: Output) -> None:
    from llmgw.cli.fabric import row
    from llmgw.cli.scanning import spoken

    if output.for_people:
        for one in kept:
            for line in spoken(one):
                click.echo(line)
        return
    if output.format == "name":
        click.echo("\n".join(one.name for one in kept))
        return
    rows = [
        row(workspace, one.name) | {"changes": [change.model_dump(mode="json") for change in one.changes]}
        for one in kept
    ]
    output.document({"schema": 1, "fabrics": rows})


def _code(kept: "Sequence[Kept]", manner: Manner) -> int:
    return ExitCode.CHANGES if manner.detailed and any(one.changes for one in kept) else ExitCode.DONE
