"""How far an apply has come: the state of each action, and the changes that the journal has yet to be told.

What is asked next is advance.py's to say, what an answer changes settle.py's; none of them does anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from llmgw.plan.document import Action
from llmgw.plan.phases import Phase, Ticket

Status = Literal["waiting", "running", "done", "left", "failed", "unreachable", "skipped"]
"""`left`: started, and not waited for (Rules.patient)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator and the site allow. Times are seconds. Not `patient`: an engine that is not ready at the first
    look is left to become so."""

    parallel: int = 10
    stop_on_error: bool = False
    router_s: int = 15
    silence_s: int = 90
    patient: bool = True


@dataclass(frozen=True, slots=True)
class ActionState:
    """One action under way or over. `since` is when its phase began; `settled` are the nodes done with in it; `peak`
    is the most requests that were seen under way while it drained."""

    status: Status = "waiting"
    phase: Phase | None = None
    began: float = 0.0
    since: float = 0.0
    ended: float = 0.0
    settled: frozenset[str] = frozenset()
    asked: frozenset[Ticket] = frozenset()
    silent: Mapping[str, float] = field(default_factory=dict)
    in_flight: Mapping[str, int | None] = field(default_factory=dict)
    peak: int = 0
    behind: tuple[str, ...] = ()
    why: str = ""
    log: tuple[str, ...] = ()
    blamed: Status = "failed"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A change of phase for the journal: `outcome` is empty where the phase begins."""

    action: str
    phase: Phase
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """All actions of a plan, by id, in the plan's order. `steps` are the changes since the last look."""

    actions: Mapping[str, Action]
    states: Mapping[str, ActionState]
    rules: Rules
    stopping: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def over(self) -> bool:
        """Nothing is under way and nothing more will begin."""
        return all(state.status not in ("waiting", "running") for state in self.states.values())


def begin(
    actions: Sequence[Action], rules: Rules, *, phases: Mapping[str, Phase | None] | None = None
) -> Progress:
    """Progress before the first ask. `phases` gives, for a resumed plan, the phase at which an action goes on,
    and None for one that is done."""
    known = phases or {}
    states = {
        action.id: ActionState(status="done")
        if action.id in known and known[action.id] is None
        else ActionState(phase=known.get(action.id))
        for action in actions
    }
    return Progress({action.id: action for action in actions}, states, rules)


def stop_starting(progress: Progress) -> Progress:
    """Begin nothing more; what is under way goes on to its end."""
    return replace(progress, stopping=True)


def take_steps(progress: Progress) -> tuple[Progress, tuple[Step, ...]]:
    """The changes of phase since this was last called: to be journalled before what advance asked is done."""
    return replace(progress, steps=()), progress.steps


def with_state(progress: Progress, action: str, state: ActionState) -> Progress:
    """The progress with another state of one action."""
    return replace(progress, states={**progress.states, action: state})


def with_step(progress: Progress, step: Step) -> Progress:
    """The progress with one more change for the journal."""
    return replace(progress, steps=(*progress.steps, step))
