"""Nodes whose runs stand in a file, so that they outlive the process that speaks to them: for tests that kill it."""

import copy
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmgw.plan import Action, Answer, Ask, Kind, Phase
from llmgw.remote.publish import Registry
from llmgw.serving.publishing import after_phase, in_order, url_of_incumbent
from llmgw.site import Site
from tests.fakes.worlds import FakeRun, World

Point = Callable[[str], None]
"""Called at every moment at which the process could be killed, with what has just happened or is about to."""


def nothing(_: str) -> None:
    """A process that nobody kills."""


@dataclass
class DurableNodes:
    """Starts and stops what it is asked to, as the modules on nodes do: by marks, each start once."""

    file: Path
    site: Site
    plan: str
    actions: dict[str, Action]
    registry: Registry
    point: Point = nothing
    _waiting: deque[Answer] = field(default_factory=deque)

    def ask(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            self.point(f"before {ask.kind} {ask.action} {ask.node}")
            self._waiting.append(self._answer(ask))
            self.point(f"after {ask.kind} {ask.action} {ask.node}")

    def answers(self, wait_s: float) -> list[Answer]:  # noqa: ARG002
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def _answer(self, ask: Ask) -> Answer:
        action = self.actions[ask.action]
        if ask.kind is Kind.START:
            return self._start(ask, action)
        if ask.kind in (Kind.STOP, Kind.KILL):
            return self._stop(ask, action)
        if ask.kind is Kind.PROBE:
            here = ran(self.file).get(f"{action.replica} {ask.node}")
            return Answer(ask, "ok", done=bool(here), ended=not here)
        if ask.kind is Kind.PUBLISH:
            ending = {url_of_incumbent(self.site, one.ends) for one in self.actions.values() if one.ends}
            self.registry.publish(
                lambda known: in_order(after_phase(self.site, action, ask.phase, known, ending=ending))
            )
            return Answer(ask, "ok", done=True)
        return Answer(ask, "ok", in_flight=0)

    def _start(self, ask: Ask, action: Action) -> Answer:
        assert action.starts
        seat = next(seat for seat in action.starts.nodes if seat.n == ask.node)
        key, known = f"{action.replica} {ask.node}", read(self.file)
        marks = {"plan": self.plan, "action": action.id, "spec": action.starts.spec}
        if key in known["runs"]:
            same = all(known["runs"][key][name] == value for name, value in marks.items())
            return Answer(ask, "ok", done=True) if same else Answer(ask, "failed", text=f"{key} runs already")
        gpus = {(run["node"], gpu) for run in known["runs"].values() for gpu in run["gpus"]}
        if gpus & {(ask.node, gpu) for gpu in seat.gpus}:
            return Answer(ask, "failed", text="its GPUs are held")
        own = {(self.plan, action.id), (action.ends.plan, action.ends.action) if action.ends else ("", "")}
        known["doubled"] += [
            f"{key} beside {other}"
            for other, run in known["runs"].items()
            if (run["replica"], run["spec"]) == (action.replica, action.starts.spec)
            and (run["plan"], run["action"]) not in own
        ]
        known["runs"][key] = {
            **marks,
            "replica": action.replica,
            "node": ask.node,
            "rank": seat.rank,
            "gpus": seat.gpus,
            "port": (seat.port, seat.ports),
            "nodes": [other.n for other in action.starts.nodes],
        }
        known["starts"].append(f"{key} {action.starts.spec}")
        write(self.file, known)
        return Answer(ask, "ok", done=True)

    def _stop(self, ask: Ask, action: Action) -> Answer:
        own = ask.phase is Phase.UNDO or action.ends is None
        assert action.ends or own
        marks = (self.plan, action.id) if own or not action.ends else (action.ends.plan, action.ends.action)
        key, known = f"{action.replica} {ask.node}", read(self.file)
        found = known["runs"].get(key)
        if found and (found["plan"], found["action"]) != marks:
            return Answer(ask, "failed", text=f"{key} is of another start")
        known["runs"].pop(key, None)
        write(self.file, known)
        return Answer(ask, "ok", done=True)


def read(file: Path) -> dict[str, Any]:
    """What runs, every start that there was, in order, and what was started beside another copy of itself."""
    return json.loads(file.read_text()) if file.exists() else {"runs": {}, "starts": [], "doubled": []}  # type: ignore[no-any-return]


def ran(file: Path) -> dict[str, Any]:
    """What runs, by replica and node."""
    return read(file)["runs"]  # type: ignore[no-any-return]


def write(file: Path, known: dict[str, Any]) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(known))
    beside.rename(file)


def as_world(world: World, file: Path) -> World:
    """The world in which that runs, for its facts."""
    seen = copy.deepcopy(world)
    starts: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in ran(file).values():
        starts.setdefault((run["replica"], run["plan"], run["action"]), []).append(run)
    seen.runs = [_as_run(marks, {run["rank"]: run for run in ranks}) for marks, ranks in starts.items()]
    return seen


def _as_run(marks: tuple[str, str, str], ranks: dict[int, dict[str, Any]]) -> FakeRun:
    """A copy; the ranks that do not run are gone."""
    replica, plan, action = marks
    any_ = next(iter(ranks.values()))
    every = range(len(any_["nodes"]))
    return FakeRun(
        replica,
        any_["nodes"],
        [tuple(ranks[rank]["gpus"]) if rank in ranks else () for rank in every],
        [tuple(ranks[rank]["port"]) if rank in ranks else (0, 0) for rank in every],
        any_["spec"],
        plan,
        action,
        gone=tuple(rank for rank in every if rank not in ranks),
    )
