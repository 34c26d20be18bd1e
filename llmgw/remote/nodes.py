"""The real Nodes: what is asked becomes playbooks, several at a time, and their events become answers."""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmgw.base import LlmgwError
from llmgw.plan import Answer, Ask, Kind
from llmgw.remote.asking import Desk, answers_of, probe_rank, start_rank, stop_rank
from llmgw.remote.playbook import Play, Session, run_play
from llmgw.remote.publish import Publisher
from llmgw.remote.steps import ProbeRank, StartRank, StopRank, plain

PLAYS_AT_ONCE = 4
GATHER_S = 0.15
_Maker = Callable[[Desk, Ask], StartRank | StopRank | ProbeRank]
_PLAYBOOK: dict[Kind, tuple[str, str, _Maker]] = {
    Kind.START: ("engine_start", "starts_by_host", start_rank),
    Kind.STOP: ("engine_stop", "stops_by_host", stop_rank),
    Kind.KILL: ("engine_stop", "stops_by_host", stop_rank),
    Kind.PROBE: ("engine_probe", "probes_by_host", probe_rank),
    Kind.LOAD: ("engine_probe", "probes_by_host", probe_rank),
}


@dataclass(slots=True)
class PlaybookNodes:
    """Nodes of a site, by Ansible. Asks that come together and go to one playbook are one run of it."""

    session: Session
    desk: Desk
    publisher: Publisher
    stopped: Callable[[], bool] = lambda: False
    _workers: list[threading.Thread] = field(default_factory=list)
    _answers: "queue.SimpleQueue[Answer | BaseException]" = field(default_factory=queue.SimpleQueue)
    _places: dict[str, threading.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: threading.Semaphore(PLAYS_AT_ONCE))
    )

    def ask(self, asks: Sequence[Ask]) -> None:
        by_playbook: dict[str, list[Ask]] = defaultdict(list)
        for ask in asks:
            by_playbook["" if ask.kind in (Kind.PUBLISH, Kind.ROUTERS) else _PLAYBOOK[ask.kind][0]].append(ask)
        for playbook, together in by_playbook.items():
            work = self._play if playbook else self._publish
            worker = threading.Thread(target=self._guarded, args=(work, together), daemon=True)
            self._workers = [one for one in self._workers if one.is_alive()] + [worker]
            worker.start()

    def answers(self, wait_s: float) -> list[Answer]:
        found: list[Answer] = []
        deadline = time.monotonic() + wait_s
        while True:
            left = GATHER_S if found else max(0.0, deadline - time.monotonic())
            try:
                answer = self._answers.get(timeout=left)
            except queue.Empty:
                return found
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)

    def leave(self) -> None:
        """Wait until no playbook of ours runs any more. Where `stopped` says so they have been asked to end."""
        for worker in self._workers:
            worker.join()

    def _guarded(self, work: Callable[[list[Ask]], None], asks: list[Ask]) -> None:
        """Bring an error of a worker to the loop; one that an operator can mend fails what was asked."""
        try:
            work(asks)
        except LlmgwError as error:
            for ask in asks:
                self._answers.put(Answer(ask, "failed", text=error.message))
        except BaseException as error:
            self._answers.put(error)

    def _play(self, asks: list[Ask]) -> None:
        playbook, variable, _ = _PLAYBOOK[asks[0].kind]
        by_host: dict[str, list[tuple[Ask, str]]] = defaultdict(list)
        steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for ask in asks:
            step = _PLAYBOOK[ask.kind][2](self.desk, ask)
            by_host[ask.node].append((ask, step.unit))
            steps[ask.node].append(plain(step))
        deadline_s = self.desk.site.settings.timeouts.step_s + max(ask.wait_s for ask in asks)
        with self._places[playbook]:
            play = Play(playbook, variable, steps, deadline_s=deadline_s)
            for answer in run_play(self.session, play, stopped=self.stopped):
                for one in answers_of(by_host, answer):
                    self._answers.put(one)

    def _publish(self, asks: list[Ask]) -> None:
        for answer in self.publisher.answer(asks):
            self._answers.put(answer)
