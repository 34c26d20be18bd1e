"""Following what an engine prints, over SSH to its node, known keys masked."""

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue

import click

from llmgw.base import LlmgwError, visible
from llmgw.cli.history import ago
from llmgw.cli.workspace import Workspace
from llmgw.observed import Run
from llmgw.remote.steps import run_dir
from llmgw.site import InventoryHost, Site

MASK = "********"


@dataclass(frozen=True, slots=True)
class Source:
    """One rank's log: where it is read, and the command that prints it there."""

    node: InventoryHost
    run: Run
    command: str


def log_command(
    site: Site, node: InventoryHost, run: Run, *, lines: int, since: datetime | None, follow: bool
) -> str:
    """The command that prints a rank's last lines on its node: the journal's, or the run's log file's."""
    if run.supervisor == "process":
        folder = f"{run_dir(site, node)}/{run.unit}"
        return shlex.join(["tail", f"--lines={lines}", *(["--follow=name"] * follow), f"{folder}/log"])
    started = int(run.started_at.timestamp()) if run.started_at else 0
    begin = max(started, int(since.timestamp())) if since else started
    argv = ["journalctl", *(["--user"] * (run.supervisor == "systemd-user"))]
    argv += [f"--identifier={run.unit}", f"--since=@{begin}", f"--lines={lines}", "--output=short-iso"]
    argv += ["--no-pager", "--quiet", *(["--follow"] * follow)]
    plain = shlex.join(["/usr/bin/journalctl", *argv[1:]])
    return (
        plain
        if run.supervisor == "systemd-user"
        else f'if [ "$(id -u)" = 0 ]; then {plain}; else sudo -n {plain}; fi'
    )


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


@dataclass(frozen=True, slots=True)
class Reading:
    """What of logs is to be shown: so many last lines, newer than, matching, going on."""

    count: int
    since: str | None
    grep: str | None
    follow: bool


def show_logs(workspace: Workspace, ranks: Iterable[tuple[str, Run]], wish: Reading) -> None:
    """Show the logs of these ranks (node and run), from their nodes; each line with its node where several."""
    from llmgw.remote.ssh import connected, lines, route_of
    from llmgw.store.published import all_engine_keys

    pattern = _pattern(wish.grep)
    begin = ago(wish.since, now=datetime.now(UTC)) if wish.since else None
    site = workspace.site
    sources = []
    for host, run in ranks:
        node = site.node(host)
        command = log_command(site, node, run, lines=wish.count, since=begin, follow=wish.follow)
        sources.append(Source(node, run, command))
    mask = masker(all_engine_keys(workspace.store))
    connect_s = site.settings.timeouts.connect_s

    def read(source: Source) -> Iterator[str]:
        with connected(route_of(source.node), timeout_s=connect_s) as client:
            yield from lines(client, source.command, timeout_s=None if wish.follow else 60)

    def show_line(source: Source, line: str) -> None:
        if pattern is None or pattern.search(line):
            head = f"{source.node.name} {source.run.unit}: " if len(sources) > 1 else ""
            click.echo(head + mask(line))

    follow(sources, read, show=show_line)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise LlmgwError(f"--grep {text!r} is no regular expression: {error}") from None
