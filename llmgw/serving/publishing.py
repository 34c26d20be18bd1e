"""What is published after each phase of an apply, and what routers' statuses say of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from llmgw.plan import Action, Incumbent, Op, Phase, Placement
from llmgw.serving.endpoints import Endpoint, EndpointsStatus, ServedModel
from llmgw.site import Catalogue, Site, address

STALE_S = 30
"""A status older than this is of a router that no longer runs: routers write theirs every few seconds."""


def endpoint_of(site: Site, placement: Placement) -> Endpoint:
    """The endpoint of a placed replica, ready."""
    head = placement.nodes[0]
    profile = site.catalogue.models[placement.model].profiles[placement.profile]
    return Endpoint(
        id=placement.replica,
        model=placement.model,
        profile=placement.profile,
        url=url_of(site, head.n, placement.port),
        state="ready",
        node=head.n,
        spec=placement.spec,
        max_in_flight=profile.max_in_flight or site.settings.router.max_in_flight,
        engine=profile.engine.value,
    )


def url_of(site: Site, node: str, port: int) -> str:
    """Where what listens on a node's port is reached from."""
    where = address(site.node(node))
    return f"http://[{where}]:{port}" if ":" in where else f"http://{where}:{port}"


def url_of_incumbent(site: Site, old: Incumbent) -> str:
    """Where the copy that an action ends is reached."""
    head = min(old.nodes, key=lambda seat: seat.rank)
    return url_of(site, head.n, head.port)


def after_phase(
    site: Site, action: Action, phase: Phase, endpoints: Sequence[Endpoint], *, ending: Collection[str] = ()
) -> list[Endpoint]:
    """The endpoints when a publishing phase of the action has been reached. Old copies are known by their URL.

    `ending`: the URLs of copies that other actions of the plan end. One that is published as the replica itself drains
    from when another copy takes its name.
    """
    old_url = url_of_incumbent(site, action.ends) if action.ends else ""
    if phase is Phase.DRAIN:
        return [_as(endpoint, "draining") if endpoint.url == old_url else endpoint for endpoint in endpoints]
    if phase is Phase.RESTORE:
        return [_as(endpoint, "ready") if endpoint.url == old_url else endpoint for endpoint in endpoints]
    if phase is Phase.WITHDRAW:
        return [endpoint for endpoint in endpoints if not _is_old(endpoint, action, old_url)]
    assert action.starts is not None
    fresh = endpoint_of(site, action.starts)
    rest = [endpoint for endpoint in endpoints if endpoint.url != fresh.url]
    if action.op is Op.MOVE:
        return [*(_retiring(other) if other.url == old_url else other for other in rest), fresh]
    kept = [other for other in rest if other.id != fresh.id and other.url != old_url]
    others = [other for other in rest if other.id == fresh.id and other.url != old_url]
    retired = [_retiring(other) for other in others if other.url in ending]
    return [*kept, *retired, fresh]


def _as(endpoint: Endpoint, state: str) -> Endpoint:
    return endpoint.model_copy(update={"state": state})


def _retiring(endpoint: Endpoint) -> Endpoint:
    """The old copy of a replica that has moved: draining, under an id of its own so that the new copy has its."""
    return endpoint.model_copy(update={"state": "draining", "id": _retiring_id(endpoint.id, endpoint.node)})


def _retiring_id(endpoint_id: str, node: str) -> str:
    return f"{endpoint_id.partition('~')[0]}~{node}"


def leaving_id(site: Site, action: Action, endpoints: Iterable[Endpoint]) -> str:
    """The id under which the copy that an action ends is published, or was, while it drains."""
    if action.ends is None:
        return action.replica
    url = url_of_incumbent(site, action.ends)
    own = next((endpoint.id for endpoint in endpoints if endpoint.url == url), "")
    return own or _retiring_id(action.replica, min(action.ends.nodes, key=lambda seat: seat.rank).n)


def _is_old(endpoint: Endpoint, action: Action, old_url: str) -> bool:
    return endpoint.url == old_url if old_url else endpoint.id == action.replica


def replica_of(endpoint_id: str) -> str:
    """The replica that an endpoint is a copy of."""
    return endpoint_id.partition("~")[0]


def in_order(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Endpoints as they are published: by id."""
    return sorted(endpoints, key=lambda endpoint: endpoint.id)


def served_models(
    catalogue: Catalogue, endpoints: Iterable[Endpoint], *, starting: Collection[str], failed: Collection[str]
) -> list[ServedModel]:
    """Every model of the catalogue with its state. A model that left it but still has an endpoint is listed too."""
    ready = {endpoint.model: endpoint for endpoint in endpoints if endpoint.state == "ready"}
    listed = [
        ServedModel(
            name=name,
            aliases=model.aliases,
            state="ready" if name in ready else "starting" if name in starting else _idle(name, failed),
            default_profile=model.default,
        )
        for name, model in catalogue.models.items()
    ]
    leaving = sorted(set(ready) - set(catalogue.models))
    return listed + [
        ServedModel(name=name, state="ready", default_profile=ready[name].profile) for name in leaving
    ]


def _idle(name: str, failed: Collection[str]) -> Literal["failed", "stopped"]:
    return "failed" if name in failed else "stopped"


@dataclass(frozen=True, slots=True)
class RouterReading:
    """What the routers say of one endpoint: which have not loaded the generation, and requests under way in all."""

    behind: tuple[str, ...]
    in_flight: int | None


def read_routers(
    hosts: Mapping[str, Mapping[str, Mapping[str, object]]], endpoint_id: str, generation: int
) -> RouterReading:
    """Of every router host, its statuses: {file name: {"text", "age_s"}}, as the publish module brings them back.

    A stale status counts as no router: what it had under way ended with it. `in_flight` is None where no router runs.
    """
    behind: list[str] = []
    counts: list[int] = []
    for host in sorted(hosts):
        for name, found in sorted(hosts[host].items()):
            status = _status(found)
            if status is None:
                continue
            if status.generation < generation:
                behind.append(f"router {status.router} on {host} is at generation {status.generation} ({name})")
            counts.append(status.in_flight.get(endpoint_id, 0))
    return RouterReading(tuple(behind), sum(counts) if counts else None)


def _status(found: Mapping[str, object]) -> EndpointsStatus | None:
    age = found.get("age_s")
    if not isinstance(age, int) or age > STALE_S:
        return None
    try:
        return EndpointsStatus.model_validate_json(str(found.get("text")))
    except ValidationError:
        return None
