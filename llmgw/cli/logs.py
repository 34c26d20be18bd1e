"""Following what an engine prints, over SSH to its node, known keys masked."""

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

from llmgw.base import LlmgwError, UsageError, unit_name, visible
from llmgw.cli.times import ago
from llmgw.cli.workspace import Workspace
from llmgw.observed import Facts, Run
from llmgw.remote.steps import run_dir
from llmgw.site import InventoryHost, Site

if TYPE_CHECKING:
    from llmgw.store.starts import PastStart

MASK = "********"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a rank's log: of which unit, under which supervisor, from when until when (None: open).

    `past`: of a start that is over, whose log a process supervisor has put aside.
    """

    node: str
    unit: str
    supervisor: str
    begin: datetime | None = None
    end: datetime | None = None
    past: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What of logs is to be shown: so many last lines, newer than, matching, going on, of the start before."""

    count: int
    since: str | None = None
    grep: str | None = None
    follow: bool = False
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One rank's log: where it is read, and the command that prints it there."""

    node: InventoryHost
    unit: str
    command: str


def of_run(node: str, run: Run) -> Stretch:
    """What a run has printed since it was started."""
    return Stretch(node, run.unit, run.supervisor, begin=run.started_at)


def before(one: Stretch) -> Stretch:
    """What the unit printed before that start."""
    return replace(one, begin=None, end=one.begin, past=True)


def of_past(found: "PastStart", facts: Facts) -> list[Stretch]:
    """The stretches, by rank, of a start that a plan has made; of nodes that were ever seen."""
    return [
        Stretch(
            node,
            unit_name(found.replica),
            facts.nodes[node].supervisor,
            begin=found.begun_at,
            end=found.ended_at,
            past=True,
        )
        for node in found.nodes
        if node in facts.nodes
    ]


def log_command(site: Site, node: InventoryHost, one: Stretch, *, lines: int, follow: bool) -> str:
    """The command that prints the last lines of a stretch on its node: the journal's, or the log file's."""
    if one.supervisor == "process":
        folder = f"{run_dir(site, node)}/{one.unit}"
        file = f"{folder}.log" if one.past else f"{folder}/log"
        return shlex.join(["tail", f"--lines={lines}", *(["--follow=name"] * follow), file])
    begin = int(one.begin.timestamp()) if one.begin else 0
    argv = ["/usr/bin/journalctl", *(["--user"] * (one.supervisor == "systemd-user"))]
    argv += [f"--identifier={one.unit}", f"--since=@{begin}"]
    argv += [f"--until=@{int(one.end.timestamp())}"] if one.end else []
    argv += [f"--lines={lines}", "--output=short-iso", "--no-pager", "--quiet", *(["--follow"] * follow)]
    plain = shlex.join(argv)
    if one.supervisor == "systemd-user":
        return plain
    return f'if [ "$(id -u)" = 0 ]; then {plain}; else sudo -n {plain}; fi'


def masker(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that hides every one of the secrets in a line, and what could steer a terminal."""
    words = sorted({word for word in secrets if len(word) >= 8}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, words))) if words else None
    return lambda line: visible(pattern.sub(MASK, line) if pattern else line)


def follow(
    sources: Iterable[Source], read: Callable[[Source], Iterator[str]], *, show: Callable[[Source, str], None]
) -> None:
    """Show the lines of all sources as they come, until every one of them has ended."""
    came: SimpleQueue[tuple[Source, str | LlmgwError | None]] = SimpleQueue()

    def work(source: Source) -> None:
        try:
            for line in read(source):
                came.put((source, line))
            came.put((source, None))
        except LlmgwError as error:
            came.put((source, error))

    threads = [threading.Thread(target=work, args=(source,), daemon=True) for source in sources]
    for thread in threads:
        thread.start()
    left = len(threads)
    while left:
        source, line = came.get()
        if isinstance(line, str):
            show(source, line)
            continue
        left -= 1
        if line is not None:
            click.echo(f"llmgw: {source.node.name}: {visible(line.message)}", err=True)


def show_logs(workspace: Workspace, stretches: Sequence[Stretch], wish: Reading) -> None:
    """Show these stretches from their nodes; each line with its node where there are several.

    UsageError for a wish that cannot be met: following what is over.
    """
    from llmgw.remote.ssh import connected, lines, route_of
    from llmgw.store.published import all_engine_keys

    pattern = _pattern(wish.grep)
    site = workspace.site
    parts = [_asked_for(one, wish) for one in stretches]
    if wish.follow and any(one.past for one in parts):
        raise UsageError("nothing more is printed by a start that is over", hint="leave out --follow")
    sources = [
        Source(node, one.unit, log_command(site, node, one, lines=wish.count, follow=wish.follow))
        for one in parts
        for node in (site.node(one.node),)
    ]
    mask = masker(all_engine_keys(workspace.store))
    connect_s = site.settings.timeouts.connect_s

    def read(source: Source) -> Iterator[str]:
        with connected(route_of(source.node), timeout_s=connect_s) as client:
            yield from lines(client, source.command, timeout_s=None if wish.follow else 60)

    def show_line(source: Source, line: str) -> None:
        if pattern is None or pattern.search(line):
            head = f"{source.node.name} {source.unit}: " if len(sources) > 1 else ""
            click.echo(head + mask(line))

    follow(sources, read, show=show_line)


def _asked_for(one: Stretch, wish: Reading) -> Stretch:
    if wish.previous and not one.past:
        one = before(one)
    if wish.since:
        since = ago(wish.since, now=datetime.now(UTC))
        one = replace(one, begin=max(since, one.begin) if one.begin else since)
    return one


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise LlmgwError(f"--grep {text!r} is no regular expression: {error}") from None
