"""Nodes that keep the Protocol of llmgw.remote.apply.Nodes, with a clock of their own and faults on request."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmgw.plan import Action, Answer, Ask, Kind, Phase
from llmgw.plan.progress import Step


@dataclass
class Clock:
    """Seconds that pass only when somebody waits."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeNodes:
    """Runs what it is asked to run, in memory.

    `refusing` nodes fail a start; `silent` ones do not answer; `slow` give the seconds from a start to readiness;
    `stuck` ranks never end; `busy` are the requests under way at the routers; `behind` routers never load a
    generation. `dying` ranks end a moment after their start.
    """

    actions: dict[str, Action]
    clock: Clock
    refusing: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    dying: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    slow: dict[str, float] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    behind: tuple[str, ...] = ()
    started_at: dict[tuple[str, str], float] = field(default_factory=dict)
    taken: list[Ask] = field(default_factory=list)
    _waiting: deque[Ask] = field(default_factory=deque)

    @classmethod
    def of(cls, actions: Sequence[Action], clock: Clock, **faults: object) -> "FakeNodes":
        return cls({action.id: action for action in actions}, clock, **faults)  # type: ignore[arg-type]

    def ask(self, asks: Sequence[Ask]) -> None:
        self.taken.extend(asks)
        self._waiting.extend(asks)

    def answers(self, wait_s: float) -> list[Answer]:
        if not self._waiting:
            self.clock.now += wait_s
            return []
        ask = self._waiting.popleft()
        self.clock.now += 0.1
        return [self._answer(ask)]

    def starts(self) -> Counter[tuple[str, str]]:
        """How often each rank was really started, by replica and node."""
        return Counter(self.started)

    started: list[tuple[str, str]] = field(default_factory=list)

    def _answer(self, ask: Ask) -> Answer:
        if ask.node in self.silent:
            self.clock.now += 10
            return Answer(ask, "unreachable", text="timed out")
        return getattr(self, f"_{ask.kind.value}")(ask)

    def _start(self, ask: Ask) -> Answer:
        key = (self.actions[ask.action].replica, ask.node)
        if ask.node in self.refusing:
            return Answer(ask, "failed", text="GPU 0 is held by pid 7 (python)")
        if key not in self.started_at:
            self.started.append(key)
            self.started_at[key] = self.clock.now
        return Answer(ask, "ok", done=True)

    def _probe(self, ask: Ask) -> Answer:
        began = self.started_at.get((self.actions[ask.action].replica, ask.node))
        if ask.node in self.dying or began is None:
            return Answer(ask, "ok", ended=True, text="has ended", log=("CUDA out of memory",))
        if self.clock.now - began >= self.slow.get(ask.node, 0):
            return Answer(ask, "ok", done=True)
        self.clock.now += ask.wait_s
        return Answer(ask, "ok", text="does not list models yet")

    def _stop(self, ask: Ask) -> Answer:
        if ask.node in self.stuck:
            self.clock.now += ask.wait_s
            return Answer(ask, "ok", text="GPU 0 is held by pid 9 (orphan)")
        self.started_at.pop((self.actions[ask.action].replica, ask.node), None)
        return Answer(ask, "ok", done=True)

    _kill = _stop

    def _load(self, ask: Ask) -> Answer:
        return Answer(ask, "ok", in_flight=0)

    def _routers(self, ask: Ask) -> Answer:
        replica = self.actions[ask.action].replica
        left = self.busy.get(replica, 0)
        self.busy[replica] = max(0, left - 1)
        return Answer(ask, "ok", in_flight=left, behind=self.behind)

    def _publish(self, ask: Ask) -> Answer:
        return Answer(ask, "ok", done=True)


@dataclass
class FakeJournal:
    """Steps in memory; `broken_after` of them the disk is full."""

    broken_after: int = 10_000
    steps: list[Step] = field(default_factory=list)

    def write(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if len(self.steps) >= self.broken_after:
                raise OSError(28, "No space left on device")
            self.steps.append(step)

    def phases(self, action: str) -> list[Phase]:
        """The phases that an action entered, in order."""
        return [step.phase for step in self.steps if step.action == action and not step.outcome]


KINDS_THAT_CHANGE = frozenset({Kind.START, Kind.STOP, Kind.KILL})
