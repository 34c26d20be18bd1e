"""Asking every running replica's head for one token, all at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llmgw.base import replica_parts, unit_name, visible
from llmgw.engines import ENGINES
from llmgw.observed import Incarnation
from llmgw.plan.judge import Reading
from llmgw.plan.repair import CopyKey
from llmgw.remote.playbook import Play, Session, run_play
from llmgw.remote.steps import ProbeRank, plain, run_dir
from llmgw.site import InventoryHost, Site, address

CANARY_S = 20


def key_of(copy: Incarnation) -> CopyKey:
    """What tells the copy from others."""
    return copy.replica, copy.plan, copy.action


def probe_of(site: Site, copy: Incarnation, node: InventoryHost, *, key: str) -> ProbeRank:
    """The question for a copy's head: one token, and how busy it is where its engine says that."""
    model, profile_name, _ = replica_parts(copy.replica)
    known = site.catalogue.models.get(model)
    profile = known.profiles.get(profile_name or known.default) if known else None
    load = ENGINES[profile.engine].LOAD if profile else None
    return ProbeRank(
        unit=unit_name(copy.replica),
        ready="openai",
        address=address(node),
        port=copy.port or 0,
        model=model,
        load=load.model_dump() if load else {},
        wait_s=0,
        run_dir=run_dir(site, node),
        supervisor=node.variables.supervisor,
        key=key,
    )


def take_readings(
    session: Session, site: Site, copies: Iterable[Incarnation], *, engine_key: Callable[[str], str]
) -> dict[CopyKey, Reading]:
    """What each copy's head said. Copies whose head is silent or has ended are left out."""
    asked: dict[str, list[dict[str, Any]]] = {}
    units: dict[tuple[str, str], CopyKey] = {}
    for copy in copies:
        head = copy.ranks.get(0)
        if head is None or head[0] in copy.silent or head[1].state != "running" or copy.port is None:
            continue
        node = site.node(head[0])
        asked.setdefault(node.name, []).append(plain(probe_of(site, copy, node, key=engine_key(copy.replica))))
        units[node.name, head[1].unit] = key_of(copy)
    if not asked:
        return {}
    play = Play("engine_probe", "probes_by_host", asked, deadline_s=site.settings.timeouts.step_s + CANARY_S)
    found: dict[CopyKey, Reading] = {}
    for answer in run_play(session, play):
        for unit, one in answer.result.get("ranks", {}).items():
            if (answer.host, unit) in units:
                found[units[answer.host, unit]] = _reading(one)
    return found


def _reading(one: Mapping[str, Any]) -> Reading:
    load = one.get("load") or {}
    return Reading(
        ready=bool(one["ready"]),
        why=visible(str(one.get("why", "")))[:300],
        in_flight=load["running"] + load["waiting"] if load else None,
        tokens=load.get("tokens"),
    )
