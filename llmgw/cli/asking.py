"""Asking nodes from the command line: which ones, with progress on stderr, and what they said kept in the store."""

import fnmatch
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from llmgw.base import UsageError, duration, hosts_of, near, visible
from llmgw.cli.workspace import Workspace, say
from llmgw.site import InventoryHost

if TYPE_CHECKING:
    from llmgw.remote.observe import Observation
    from llmgw.remote.playbook import HostAnswer

SHOW_AFTER_S = 2.0


def chosen(nodes: Sequence[InventoryHost], pattern: str | None) -> list[InventoryHost]:
    """The nodes of a pattern, in inventory order: names, hostlists (gpu[01-16]), globs; with commas; None: all.

    UsageError, with near names, for a word that is no node, and for a pattern without a word.
    """
    if pattern is None:
        return list(nodes)
    names = [node.name for node in nodes]
    picked: set[str] = set()
    for word in hosts_of(pattern):
        found = fnmatch.filter(names, word) if any(char in word for char in "*?") else [word] * (word in names)
        if not found:
            close = near(word, names)
            raise UsageError(
                f"there is no node {word}", hint=f"did you mean {' or '.join(close)}?" if close else ""
            )
        picked.update(found)
    if not picked:
        raise UsageError(f"{pattern!r} names no node", hint="'*' is every node")
    return [node for node in nodes if node.name in picked]


def chosen_one(nodes: Sequence[InventoryHost], pattern: str) -> InventoryHost:
    """The one node of a pattern; UsageError where it is none or several."""
    picked = chosen(nodes, pattern)
    if len(picked) > 1:
        raise UsageError(f"{pattern} is {len(picked)} nodes", hint="name one")
    return picked[0]


@dataclass
class Count:
    """How many of the nodes have answered: a bar on a terminal, a line for each that did not elsewhere."""

    total: int
    what: str
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    shown: bool = False
    tell: Callable[[str], None] = say

    def answer(self, answer: "HostAnswer") -> None:
        self.done += 1
        if answer.outcome != "ok":
            self._line(
                f"{answer.host}: {answer.outcome}: {visible(answer.why.splitlines()[-1] if answer.why else '')}"
            )
        if self.tell is say and sys.stderr.isatty() and time.monotonic() - self.began > SHOW_AFTER_S:
            self.shown = True
            click.echo(f"\r{self.what} {self.done} of {self.total} ", err=True, nl=False)

    def _line(self, text: str) -> None:
        if self.shown:
            click.echo("\r" + " " * 60 + "\r", err=True, nl=False)
        self.tell(text[:300])

    def end(self) -> None:
        if self.shown:
            click.echo("\r" + " " * 60 + "\r", err=True, nl=False)


def ask_nodes(
    workspace: Workspace,
    nodes: Iterable[InventoryHost],
    *,
    privileged: tuple[tuple[str, ...], ...] = (),
    tell: Callable[[str], None] = say,
) -> "Observation":
    """Ask the nodes for their facts and remember them; the nodes that do not answer are remembered as silent."""
    from llmgw.remote.observe import observe
    from llmgw.store.nodes import save_facts

    asked = list(nodes)
    counter = Count(len(asked), "nodes answered:", tell=tell)
    with workspace.session() as session:
        seen = observe(session, workspace.site, asked, privileged=privileged, tell=counter.answer)
    counter.end()
    for node in asked:
        if command := enrolling(node, seen.unreachable.get(node.name, "")):
            say(f"    next, for {node.name}: {command}")
    save_facts(workspace.store, seen.answered, (*seen.unreachable, *seen.failed), now=datetime.now(UTC))
    spent = duration(time.monotonic() - counter.began)
    tell(f"{len(seen.answered)} of {len(asked)} nodes answered ({spent})")
    return seen


def enrolling(node: InventoryHost, why: str) -> str:
    """The command that fetches a node's host key, where `why` it did not answer is that the key is not known."""
    from llmgw.remote.findings import is_about_host_key
    from llmgw.remote.ssh import enrol_command, route_of

    return enrol_command(route_of(node)) if is_about_host_key(why) else ""
