"""A site whose nodes outlive the process that applies to them, and that process killed at a moment of choice."""

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from llmgw.cli.planning import standing
from llmgw.cli.wiring import StoreJournal, StoreRegistry
from llmgw.observed import incarnations
from llmgw.plan import Action, Body, Op, Options, Phase, Plan, Progress, Rules, make_plan
from llmgw.plan.progress import Step
from llmgw.plan.resume import resumed_phases
from llmgw.remote.apply import Journal, apply
from llmgw.serving.publishing import url_of, url_of_incumbent
from llmgw.store import State, open_state
from llmgw.store.journal import consume, finish, finished_actions, resumable
from llmgw.store.published import endpoints
from tests.fakes.durable_nodes import DurableNodes, Point, as_world, nothing, ran, read
from tests.fakes.nodes import Clock
from tests.fakes.worlds import NOW, World


@dataclass
class Moments:
    """Counts the moments at which an apply could be killed; at the `last` of them it kills this process."""

    last: int = -1
    seen: list[str] = field(default_factory=list)

    def __call__(self, moment: str) -> None:
        if len(self.seen) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(moment)


@dataclass
class WatchedJournal:
    """A journal with a moment before and after each write."""

    journal: Journal
    point: Point

    def write(self, steps: Sequence[Step]) -> None:
        if steps:
            self.point(f"before writing {_words(steps)}")
        self.journal.write(steps)
        if steps:
            self.point(f"after writing {_words(steps)}")


def _words(steps: Sequence[Step]) -> str:
    return ", ".join(f"{step.action} {step.phase} {step.outcome or 'begins'}" for step in steps)


@dataclass
class DurableSite:
    """The folder has the store and the nodes' file; the world says what is wanted."""

    folder: Path
    world: World

    def copied(self, folder: Path) -> "DurableSite":
        """The same site once more, with a store and nodes of its own."""
        shutil.copytree(self.folder, folder)
        return DurableSite(folder, self.world)

    @property
    def runs(self) -> Path:
        return self.folder / "runs.json"

    def state(self) -> State:
        return open_state(self.folder / "state.db")

    def plan(self, state: State) -> Plan:
        """The plan of what runs now and what the store remembers."""
        seen = as_world(self.world, self.runs)
        facts = seen.facts()
        made = make_plan(seen.site(), seen.paths(), facts, standing(state, facts), options=Options(), now=NOW)
        return Plan.of(made, created=NOW, by="test")

    def next_plan(self) -> Body:
        """What a plan would do now."""
        state = self.state()
        body = self.plan(state).body
        state.close()
        return body

    def is_intact(self) -> bool:
        """Whether SQLite finds its file whole."""
        state = self.state()
        verdict = state.one("PRAGMA integrity_check")
        state.close()
        return verdict == ("ok",)

    def apply(self, point: Point = nothing) -> Progress:
        """Plan, and carry it out."""
        state = self.state()
        plan = self.plan(state)
        if plan.body.actions:
            consume(state, plan, by="test")
        point("the plan is consumed")
        return self._carry_out(state, plan, {}, point)

    def resume(self) -> Progress:
        """Go on with the unfinished plan where the nodes show that it stands."""
        state = self.state()
        found = resumable(state)
        seen = incarnations(as_world(self.world, self.runs).facts())
        phases = resumed_phases(found.plan, finished_actions(state, found.plan), seen)
        return self._carry_out(state, found.plan, phases, nothing)

    def _carry_out(self, state: State, plan: Plan, phases: Mapping[str, Phase | None], point: Point) -> Progress:
        actions = {action.id: action for action in plan.body.actions}
        site = self.world.site()
        registry = StoreRegistry(state, site)
        nodes = DurableNodes(self.runs, site, plan.id, actions, registry, point)
        journal = WatchedJournal(StoreJournal(state, plan.id, Event()), point)
        clock = Clock()
        *_, last = apply(plan.body.actions, nodes, journal, Rules(), phases=phases, clock=clock)
        if actions:
            finish(state, plan.id, "done")
        state.close()
        return last

    def killed_at(self, number: int) -> bool:
        """Apply in a process of its own that gets SIGKILL at that moment; False where it ended before."""
        child = os.fork()
        if not child:
            try:
                self.apply(Moments(number))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)

    # What is so, by the nodes and by what was published

    def undone(self, body: Body) -> set[str]:
        """The replicas of the plan's actions of which something is left to do."""
        return {action.replica for action in body.actions if not self._done(action)}

    def _done(self, action: Action) -> bool:
        site = self.world.site()
        state = self.state()
        file = endpoints(state)
        state.close()
        published = {one.url: one for one in (file.endpoints if file else ())}
        here = ran(self.runs)
        if action.ends:
            gone = (action.ends.plan, action.ends.action)
            still = [run for run in here.values() if (run["plan"], run["action"]) == gone]
            url = url_of_incumbent(site, action.ends)
            own = action.starts and url == url_of(site, action.starts.nodes[0].n, action.starts.port)
            if still or (url in published and not own):
                return False
        if action.starts and action.op is not Op.FORGET:
            runs = [here.get(f"{action.replica} {seat.n}") for seat in action.starts.nodes]
            if not all(run and run["spec"] == action.starts.spec for run in runs):
                return False
            found = published.get(url_of(site, action.starts.nodes[0].n, action.starts.port))
            return found is not None and (found.state, found.spec) == ("ready", action.starts.spec)
        return True

    def starts(self) -> list[str]:
        """The replica of every start that a node has made, in order."""
        return [line.split()[0] for line in read(self.runs)["starts"]]

    def doubled(self) -> list[str]:
        """What was started while another copy of the same ran."""
        return list(read(self.runs)["doubled"])
