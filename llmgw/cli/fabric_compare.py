"""llmgw fabric diff, history and forget: what changed between scans, and what is remembered."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmgw.base import ExitCode, LlmgwError, UsageError, count, visible
from llmgw.cli.output import Column, Output, newest_option, output_options
from llmgw.cli.workspace import Workspace, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.fabric import Topology
    from llmgw.store import State
    from llmgw.store.maps import StoredFabric, StoredScan

COLUMNS = (
    Column("SCAN", "name"),
    Column("SINCE", "first_at"),
    Column("UNTIL", "at"),
    Column("SEEN", "times"),
    Column("STATE", "state"),
    Column("CHANGES", "count"),
    Column("WHAT", "what"),
    Column("FROM", "source", wide=True),
    Column("PROBLEMS", "problems", wide=True),
)


@click.command()
@click.argument("words", metavar="[FABRIC] [OLD [NEW]]", nargs=-1)
@click.option("--since", metavar="TIME", help="Compare with what was known then: 30m, 2h, 7d, or a time.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 10 where something changed.")
@output_options
@pass_workspace
def diff(
    workspace: Workspace, words: tuple[str, ...], since: str | None, detailed_exitcode: bool, output: Output
) -> int:
    """Show what changed between two scans of a fabric, a line each: cables, switches, adapters, rates, rails.

    OLD and NEW are numbers of scans (llmgw fabric history); NEW is the last scan where it is left out, OLD the one
    before it that said something else. Both may be files instead, with ibnetdiscover's text or a topology document:
    then nothing is remembered and no site is needed. What a scan that is not whole did not see is not called gone.

    \b
      llmgw fabric diff                      what the last scan changed
      llmgw fabric diff compute --since 24h
      llmgw fabric diff before.txt after.txt
    """
    from llmgw.fabric import change_lines
    from llmgw.fabric.diff import diff as compared

    old, new = _two(workspace, words, since)
    found = compared(old, new)
    if output.for_people:
        for line in change_lines(found.changes):
            click.echo(line)
        if not found.changes:
            say(
                f"Nothing changed between {old.scanned_at:%Y-%m-%d %H:%M:%SZ} and {new.scanned_at:%Y-%m-%d %H:%M:%SZ}."
            )
    else:
        output.document(found.model_dump(mode="json"))
    return ExitCode.CHANGES if detailed_exitcode and found.changes else ExitCode.DONE


def _two(workspace: Workspace, words: Sequence[str], since: str | None) -> "tuple[Topology, Topology]":
    """The two maps that are meant."""
    files = [word for word in words if not word.isdecimal() and ("/" in word or Path(word).is_file())]
    if len(files) == len(words) == 2 and not since:
        return _read_map(files[0]), _read_map(files[1])
    if any("/" in word for word in words):
        raise UsageError("of files there must be two: OLD and NEW")
    name = words[0] if words and not words[0].isdecimal() else None
    numbers = words[1:] if name else words
    if len(numbers) > 2 or not all(word.isdecimal() for word in numbers) or (since and len(numbers) > 1):
        raise UsageError("OLD and NEW are numbers of scans", hint="llmgw fabric history lists them")
    return _remembered(workspace.store, name, [int(number) for number in numbers], since)


def _remembered(
    state: "State", name: str | None, numbers: Sequence[int], since: str | None
) -> "tuple[Topology, Topology]":
    from llmgw.cli.keeping import known_map, read_topology
    from llmgw.cli.maps import stored

    fabric = stored(state, name)
    given = list(numbers)
    newest = given.pop() if len(given) == 2 or (since and given) else fabric.newest
    new = _scan_of(state, fabric, newest)
    old = _scan_of(state, fabric, given[0]).number if given else _before(state, fabric, new, since)
    before = known_map(state, fabric.name, until=old)
    assert before is not None
    return before, read_topology(state, new.number)


def _scan_of(state: "State", fabric: "StoredFabric", number: int | None) -> "StoredScan":
    """A scan that gave a map."""
    from llmgw.cli.maps import pick

    found = pick(state, fabric, number)
    if found.verdict == "rejected":
        raise LlmgwError(f"scan {found.number} was rejected; there is no map of it")
    return found


def _before(state: "State", fabric: "StoredFabric", new: "StoredScan", since: str | None) -> int:
    """The scan to compare with: the last one that was there at that time, or the one before `new`."""
    from llmgw.cli.times import ago
    from llmgw.store.maps import scans

    older = [one for one in scans(state, fabric.name) if one.number < new.number and one.verdict != "rejected"]
    if since:
        at = ago(since, now=datetime.now(UTC))
        if datetime.fromisoformat(new.first_at) <= at:
            return new.number
        older = [one for one in older if datetime.fromisoformat(one.first_at) <= at] or older[-1:]
    if not older:
        raise LlmgwError(
            f"{fabric.name} has said the same since its first scan, {new.first_at}",
            hint="there is nothing to compare",
        )
    return older[0].number


def _read_map(file: str) -> "Topology":
    """A map from a file, whatever the kind."""
    from llmgw.cli.fabric_scan import read_file
    from llmgw.fabric import Topology, read
    from llmgw.fabric.analyse import analyse
    from llmgw.fabric.topology import topology

    text = read_file(file)
    if text.lstrip().startswith("{"):
        return Topology.read(text, file)
    fabric = analyse(read(text))
    if fabric.verdict.state == "rejected":
        where = f"{file}:{fabric.verdict.line}" if fabric.verdict.line else file
        raise LlmgwError(f"{where}: rejected: {fabric.verdict.reason}")
    written = datetime.fromtimestamp(int(Path(file).stat().st_mtime), UTC)
    return topology(fabric, name=Path(file).name, scanned_at=written)


@click.command()
@click.argument("name", metavar="[FABRIC]", required=False)
@click.option("--scan", "number", type=int, help="One scan with all that it changed and all its problems.")
@newest_option(30)
@output_options
@pass_workspace
def history(workspace: Workspace, name: str | None, number: int | None, limit: int, output: Output) -> None:
    """Show a fabric's scans, the newest first, and what each changed.

    A scan that said what the one before said is no line of its own: that line was seen once more. How many are kept,
    and for how long, is scan: keep and keep_days in llmgw.yml; the map and the last two always are.
    """
    from llmgw.cli.maps import pick, stored
    from llmgw.store.maps import scans

    fabric = stored(workspace.store, name)
    if number is not None:
        _one(pick(workspace.store, fabric, number), output)
        return
    rows = [_line(one) for one in scans(workspace.store, fabric.name, limit=limit)]
    output.rows("scans", rows, COLUMNS, empty=f"{fabric.name} was never scanned.")


def _line(scan: "StoredScan") -> dict[str, Any]:
    lines = _change_lines(scan)
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    problems = scan.problems.splitlines()
    what = lines[0] + more if lines else problems[0] if problems and scan.verdict != "complete" else ""
    return {
        "name": str(scan.number),
        "first_at": scan.first_at,
        "at": scan.at,
        "times": scan.times,
        "state": scan.verdict,
        "count": len(lines),
        "what": what,
        "source": scan.source,
        "problems": problems,
        "changes": scan.changes,
        "summary": scan.summary,
    }


def _change_lines(scan: "StoredScan") -> list[str]:
    return [visible(f"{one['kind']}: {one['text']}") for one in scan.changes]


def _one(scan: "StoredScan", output: Output) -> None:
    if not output.for_people:
        output.document({"schema": 1, "scan": _line(scan)})
        return
    seen = count(scan.times, "time")
    click.echo(
        f"{scan.fabric}: scan {scan.number}, {scan.verdict}, seen {seen} from {scan.first_at} to {scan.at}, "
        f"last from {visible(scan.source)}"
    )
    for line in _change_lines(scan):
        click.echo(f"  {line}")
    for problem in scan.problems.splitlines():
        click.echo(f"  problem: {visible(problem)}")


@click.command()
@click.argument("name", metavar="FABRIC")
@click.option("--missed", is_flag=True, help="Only the cables that are missed: they were taken away on purpose.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_workspace
def forget(workspace: Workspace, name: str, missed: bool, yes: bool) -> None:
    """Forget a fabric that is no more, with all its scans; or, with --missed, what was taken away on purpose.

    A fabric that is still there is found again by the next scan, under the same name if llmgw.yml names it.
    """
    from llmgw.cli.confirm import confirm
    from llmgw.cli.keeping import missed_in
    from llmgw.cli.maps import stored
    from llmgw.store.known import forget_missed
    from llmgw.store.maps import forget_fabric

    fabric = stored(workspace.store, name)
    if missed:
        cables = missed_in(workspace.store, fabric.name)
        forget_missed(workspace.store, fabric.name)
        say(f"{fabric.name}: {count(len(cables), 'cable')} no longer missed")
        return
    confirm(f"Forget {fabric.name} and all its scans?", yes=yes)
    forget_fabric(workspace.store, fabric.name)
    say(f"{fabric.name} is forgotten")
