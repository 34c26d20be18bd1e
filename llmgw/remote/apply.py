"""Carrying a plan out: the loop between what is decided (plan.advance, plan.settle) and who does it (Nodes)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from llmgw.plan import Action, Answer, Ask, Phase, Progress, Rules, begin, stop_starting, take_steps
from llmgw.plan.advance import advance
from llmgw.plan.progress import Step
from llmgw.plan.settle import settle

LOOK_S = 1.0


class Nodes(Protocol):
    """Who does what is asked. The real one is PlaybookNodes."""

    def ask(self, asks: Sequence[Ask]) -> None:
        """Begin to do it all; returns at once."""
        ...

    def answers(self, wait_s: float) -> list[Answer]:
        """What has come back; waits for the first, but no longer than that."""
        ...


class Journal(Protocol):
    """Where each change of phase is written down before what follows from it is done."""

    def write(self, steps: Sequence[Step]) -> None:
        """Returns when it is on the disk; raises where it cannot be."""
        ...


def apply(
    actions: Sequence[Action],
    nodes: Nodes,
    journal: Journal,
    rules: Rules,
    *,
    phases: Mapping[str, Phase | None] | None = None,
    clock: Callable[[], float],
    interrupted: Callable[[], int] = lambda: 0,
) -> Iterator[Progress]:
    """The progress after every change, until nothing is left to do.

    `interrupted` counts requests to end: from the first on nothing new is begun, at the second what is under way is
    left as it is, its rows in the journal without an outcome. `phases` is that of plan.begin, for a resumed plan.
    """
    progress = begin(actions, rules, phases=phases)
    while True:
        if interrupted() > 1:
            return
        if interrupted():
            progress = stop_starting(progress)
        progress, asks = advance(progress, clock())
        progress, steps = take_steps(progress)
        journal.write(steps)
        nodes.ask(asks)
        yield progress
        if progress.over:
            return
        for answer in nodes.answers(LOOK_S):
            progress = settle(progress, answer, clock())
