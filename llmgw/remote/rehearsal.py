"""Asking nodes, in Ansible's check mode, whether the steps of a plan could be taken. Changes nothing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llmgw.plan import Action, Answer, Ask, Kind, Op, Phase
from llmgw.remote.asking import Desk, answers_of, start_rank, stop_rank
from llmgw.remote.playbook import Play, Session, run_play
from llmgw.remote.publish import deliver
from llmgw.remote.steps import plain

_STOPS = frozenset({Op.STOP, Op.REPLACE, Op.MOVE})
_STARTS = frozenset({Op.START, Op.MOVE})


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a node said of one step. `outcome`: ok | failed | unreachable; `why` for the last two."""

    action: str
    kind: Literal["start", "stop"]
    node: str
    outcome: str
    why: str = ""


def steps_of(actions: Sequence[Action]) -> list[Ask]:
    """The steps that can be asked about now: every stop, and the starts that wait for no other action.

    A replacement's start is not: its own old copy still has the GPUs and the port.
    """
    asks: list[Ask] = []
    for action in actions:
        if action.op in _STOPS and action.ends:
            asks += [Ask(Kind.STOP, action.id, Phase.STOP, seat.n) for seat in action.ends.nodes]
        if action.op in _STARTS and action.starts and not action.after:
            asks += [Ask(Kind.START, action.id, Phase.START, seat.n) for seat in action.starts.nodes]
    return asks


def rehearse(session: Session, desk: Desk, actions: Sequence[Action]) -> Iterator[Rehearsed]:
    """What each node says of each step, as the answers come."""
    asks = steps_of(actions)
    for kind, playbook, variable in (
        (Kind.STOP, "engine_stop", "stops_by_host"),
        (Kind.START, "engine_start", "starts_by_host"),
    ):
        yield from _play(session, desk, [ask for ask in asks if ask.kind is kind], playbook, variable)


def _play(session: Session, desk: Desk, asks: Sequence[Ask], playbook: str, variable: str) -> Iterator[Rehearsed]:
    by_host: dict[str, list[tuple[Ask, str]]] = defaultdict(list)
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for ask in asks:
        step = start_rank(desk, ask) if ask.kind is Kind.START else stop_rank(desk, ask)
        by_host[ask.node].append((ask, step.unit))
        steps[ask.node].append(plain(step))
    if not asks:
        return
    play = Play(playbook, variable, steps, deadline_s=desk.site.settings.timeouts.step_s, check=True)
    for answer in run_play(session, play):
        yield from map(_rehearsed, answers_of(by_host, answer))


def _rehearsed(answer: Answer) -> Rehearsed:
    ask = answer.ask
    kind: Literal["start", "stop"] = "start" if ask.kind is Kind.START else "stop"
    return Rehearsed(ask.action, kind, ask.node, answer.outcome, answer.text if answer.outcome != "ok" else "")


def silent_routers(session: Session, desk: Desk) -> dict[str, str]:
    """The router hosts that do not answer, and why: no drain would ever be over."""
    return dict(deliver(session, desk.site, []).failed)
