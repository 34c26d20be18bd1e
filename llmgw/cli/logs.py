"""Following what an engine prints, over SSH to its node, known keys masked."""

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue

import click

from llmgw.base import LlmgwError, visible
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
