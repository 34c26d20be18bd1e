"""Asks made into steps for the playbooks, and the modules' results made into answers. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llmgw.base import replica_parts, unit_name, visible
from llmgw.engines import ENGINE_KEY
from llmgw.plan import Action, Answer, Ask, Kind, Phase, Seat
from llmgw.remote.playbook import HostAnswer
from llmgw.remote.steps import ProbeRank, StartRank, StopRank, account, run_dir
from llmgw.site import InventoryHost, Site, address


class Secrets(Protocol):
    """Where secrets come from, at the moment when they are needed."""

    def engine_key(self, replica: str) -> str:
        """The replica's own key."""
        ...

    def secret(self, name: str) -> str:
        """A secret that llmgw.yml names."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What asks are made into steps with: the site, the plan's id and actions, and the secrets."""

    site: Site
    plan: str
    actions: Mapping[str, Action]
    secrets: Secrets

    def node(self, ask: Ask) -> InventoryHost:
        return self.site.node(ask.node)


def start_rank(desk: Desk, ask: Ask) -> StartRank:
    """The start of the ask's rank, secrets resolved."""
    action, node = desk.actions[ask.action], desk.node(ask)
    assert action.starts is not None
    seat = _seat(action.starts.nodes, ask.node)
    launch = action.launches[seat.rank]
    resolve = _resolver(desk.secrets, action.replica)
    return StartRank(
        unit=unit_name(action.replica),
        replica=action.replica,
        rank=seat.rank,
        plan=desk.plan,
        action=action.id,
        spec=action.starts.spec,
        nodes=tuple(other.n for other in action.starts.nodes),
        gpus=seat.gpus,
        port=seat.port,
        ports=seat.ports,
        argv=launch.argv,
        env=launch.env,
        secret_env={key: resolve(name) for key, name in launch.secret_env.items()},
        secret_files={
            file: text.replace("{secret}", resolve(name)) for file, (text, name) in launch.secret_files.items()
        },
        stop_s=action.stop_s,
        run_dir=run_dir(desk.site, node),
        account=account(desk.site, node),
        supervisor=node.variables.supervisor,
        nvidia_smi=node.variables.nvidia_smi,
    )


def _resolver(secrets: Secrets, replica: str) -> Callable[[str], str]:
    return lambda name: secrets.engine_key(replica) if name == ENGINE_KEY else secrets.secret(name)


def _seat(seats: tuple[Seat, ...], node: str) -> Seat:
    return next(seat for seat in seats if seat.n == node)


def stop_rank(desk: Desk, ask: Ask) -> StopRank:
    """The end of the ask's rank: of what the action itself started when it is undone, else of the old copy."""
    action, node = desk.actions[ask.action], desk.node(ask)
    own = ask.phase is Phase.UNDO or action.ends is None
    return StopRank(
        unit=unit_name(action.replica),
        replica=action.replica,
        plan=desk.plan if own or action.ends is None else action.ends.plan,
        action=action.id if own or action.ends is None else action.ends.action,
        force=ask.kind is Kind.KILL,
        wait_s=ask.wait_s,
        run_dir=run_dir(desk.site, node),
        supervisor=node.variables.supervisor,
        nvidia_smi=node.variables.nvidia_smi,
    )


def probe_rank(desk: Desk, ask: Ask) -> ProbeRank:
    """How the ask's rank is: whether the new copy's is ready, or for LOAD how busy the old copy's head is."""
    action, node = desk.actions[ask.action], desk.node(ask)
    launch = None
    if ask.kind is Kind.PROBE and action.starts is not None:
        launch = action.launches[_seat(action.starts.nodes, ask.node).rank]
    load = launch.load if launch else action.ends.load if action.ends else None
    seats = action.ends.nodes if action.ends else ()
    return ProbeRank(
        unit=unit_name(action.replica),
        ready=launch.ready if launch else "none",
        address=address(node),
        port=launch.port if launch else _seat(seats, ask.node).port,
        model=replica_parts(action.replica)[0],
        load=load.model_dump() if load else {},
        wait_s=ask.wait_s,
        run_dir=run_dir(desk.site, node),
        supervisor=node.variables.supervisor,
        key=desk.secrets.engine_key(action.replica),
    )


def answers_of(asks: Mapping[str, list[tuple[Ask, str]]], answer: HostAnswer) -> list[Answer]:
    """The answers to what was asked of a host: `asks` has, for each host, the asks and their units."""
    return [_answer(ask, unit, answer) for ask, unit in asks.get(answer.host, ())]


def _answer(ask: Ask, unit: str, answer: HostAnswer) -> Answer:
    if answer.outcome in ("unreachable", "unanswered"):
        return Answer(ask, "unreachable", text=visible(answer.why.splitlines()[0] if answer.why else "no answer"))
    found = answer.result.get("ranks", {}).get(unit)
    if found is None:
        return Answer(ask, "failed", text=visible(answer.why) or "its module said nothing of this rank")
    if ask.kind in (Kind.PROBE, Kind.LOAD):
        return _probed(ask, found)
    if not found["ok"]:
        first, *rest = str(found["why"]).splitlines() or [""]
        return Answer(ask, "failed", text=visible(first), log=tuple(map(visible, rest)))
    if ask.kind is Kind.START:
        return Answer(ask, "ok", done=True, text="was running" if found["did"] == "running" else "")
    return Answer(ask, "ok", done=bool(found["gone"]), text=visible(str(found.get("left", ""))))


def _probed(ask: Ask, found: Mapping[str, Any]) -> Answer:
    load = found.get("load") or {}
    ended = found["state"] == "exited"
    return Answer(
        ask,
        "ok",
        done=bool(found["ready"]),
        ended=ended,
        in_flight=load["running"] + load["waiting"] if load else None,
        text=visible(str(found.get("why", ""))),
        log=tuple(visible(str(line)) for line in found.get("log", ())),
    )
