"""What is said while a plan is carried out: a table for an operator, a line a change for cron."""

import sys
import time
from dataclasses import dataclass, field
from typing import Protocol

import click

from llmgw.base import duration, visible
from llmgw.cli.colour import show, width
from llmgw.cli.workspace import say
from llmgw.plan import Action, Progress
from llmgw.plan.progress import ActionState
from llmgw.plan.text import Columns, Serving, did, ending_lines, outcome_lines, under_way

STILL_S = 30.0


class Voice(Protocol):
    """Who hears what becomes of the actions."""

    def begin(self, progress: Progress) -> None:
        """All actions, before the first is asked for."""
        ...

    def ended(self, action: Action, state: ActionState) -> None:
        """One action is over, or is left as it is."""
        ...

    def waiting(self, progress: Progress) -> None:
        """Called each second while something is under way."""
        ...

    def end(self, progress: Progress, serving: "dict[str, Serving]", serial: int) -> None:
        """Nothing more is done."""
        ...


def tell(voice: Voice, progress: Progress, said: set[str]) -> None:
    """Tell the voice of every action that is over and not in `said`, then of what is under way."""
    for action_id, state in progress.states.items():
        if state.status not in ("waiting", "running") and action_id not in said:
            said.add(action_id)
            voice.ended(progress.actions[action_id], state)
    voice.waiting(progress)


@dataclass(slots=True)
class Table:
    """For an operator: a row on stdout when an action ends. What is under way: on stderr, in place on a terminal,
    elsewhere a line each half minute."""

    columns: Columns = field(default_factory=lambda: Columns.of([], width()))
    heard: float = field(default_factory=time.monotonic)
    live: bool = False

    def begin(self, progress: Progress) -> None:
        self.columns = Columns.of(list(progress.actions.values()), width())

    def ended(self, action: Action, state: ActionState) -> None:
        self._clear()
        show(outcome_lines(action, state, self.columns))
        self.heard = time.monotonic()

    def waiting(self, progress: Progress) -> None:
        text = under_way(progress, time.monotonic())
        if not text:
            return
        if sys.stderr.isatty():
            self._clear()
            self.live = True
            click.echo(click.style(text[: width() - 1], dim=True), err=True, nl=False)
        elif time.monotonic() - self.heard > STILL_S:
            self.heard = time.monotonic()
            say(f"still: {text}")

    def end(self, progress: Progress, serving: dict[str, Serving], serial: int) -> None:
        self._clear()
        for action_id, state in progress.states.items():
            if state.status == "running":
                show(outcome_lines(progress.actions[action_id], state, self.columns))
        show(ending_lines(progress, serving, serial=serial))

    def _clear(self) -> None:
        if self.live:
            click.echo("\r" + " " * width() + "\r", err=True, nl=False)
            self.live = False


@dataclass(slots=True)
class Lines:
    """For cron: one line on stdout for each replica that was changed or could not be, and nothing else."""

    def begin(self, progress: Progress) -> None:
        """Nothing is said before something has changed."""

    def ended(self, action: Action, state: ActionState) -> None:
        if state.status != "skipped":
            click.echo(f"{action.replica}: {visible(short(action, state))}")

    def waiting(self, progress: Progress) -> None:
        """Whoever reads a mail does not want to hear this."""

    def end(self, progress: Progress, serving: dict[str, Serving], serial: int) -> None:
        """Each line has said it."""


def short(action: Action, state: ActionState) -> str:
    """What became of an action, in one line."""
    took = duration(state.ended - state.began)
    if state.status == "done":
        return f"{did(action, state)} ({took})"
    if state.status == "left":
        nodes = " ".join(seat.n for seat in action.starts.nodes) if action.starts else ""
        return f"{action.op}: started on {nodes}, not ready yet"
    return f"{action.op} {state.status}: {state.why}" + (f" ({took})" if state.ended else "")
