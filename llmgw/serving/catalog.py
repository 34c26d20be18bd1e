"""Names: what a request may call a model by, and which endpoints that means."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from llmgw.base import UsageError
from llmgw.serving.endpoints import Endpoint, EndpointsFile, ServedModel


@dataclass(frozen=True, slots=True)
class Service:
    """One endpoint as the router uses it. It is known by its URL; the id is what it is called for now."""

    id: str
    url: str
    models: tuple[str, ...]
    profile: str
    draining: bool = False
    weight: int = 1
    max_in_flight: int | None = None
    engine: str = ""
    node: str = ""
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What one name means.

    The name that the engines know, and the endpoints that take new requests, file order.
    """

    model: str
    profile: str
    state: str
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """One generation: every endpoint by URL, every usable name, and the models as they are listed."""

    generation: int
    services: Mapping[str, Service]
    targets: Mapping[str, Target]
    models: tuple[ServedModel, ...]


EMPTY = Catalog(-1, {}, {}, ())


def service_of(endpoint: Endpoint) -> Service:
    return Service(
        id=endpoint.id,
        url=endpoint.url,
        models=(endpoint.model,),
        profile=endpoint.profile,
        draining=endpoint.state == "draining",
        weight=endpoint.weight,
        max_in_flight=endpoint.max_in_flight,
        engine=endpoint.engine,
        node=endpoint.node,
        spec=endpoint.spec,
    )


def catalog_of(file: EndpointsFile, static: Iterable[Service] = ()) -> Catalog:
    """The names and endpoints of the published file, and of those given on the command line beside it.

    A model's name and its aliases mean the endpoints of its default profile; `model:profile` means those of that
    profile. Of two services with one URL the published one counts.
    """
    services = {service.url: service for service in static}
    services.update({endpoint.url: service_of(endpoint) for endpoint in file.endpoints})
    models = (*file.models, *_unlisted(file.models, services.values()))
    by_model: dict[str, list[Service]] = {}
    for service in services.values():
        for name in service.models:
            by_model.setdefault(name, []).append(service)
    targets: dict[str, Target] = {}
    for model in models:
        targets.update(_targets(model, by_model.get(model.name, [])))
    return Catalog(file.generation, services, targets, models)


def _unlisted(models: Iterable[ServedModel], services: Iterable[Service]) -> list[ServedModel]:
    """Models that an endpoint serves and no list has: the first endpoint's profile is their default."""
    known = {model.name for model in models}
    found: dict[str, ServedModel] = {}
    for service in services:
        for name in service.models:
            if name not in known and name not in found:
                found[name] = ServedModel(name=name, state="ready", default_profile=service.profile)
    return list(found.values())


def _targets(model: ServedModel, here: list[Service]) -> dict[str, Target]:
    """Every name that means this model's endpoints, `here`, or some of them."""
    profiles = {model.default_profile: (), **{service.profile: () for service in here}}
    by_profile = {
        profile: Target(
            model.name, profile, model.state,
            tuple(s.url for s in here if s.profile == profile and not s.draining),
        )
        for profile in profiles
    }  # fmt: skip
    found = {f"{model.name}:{profile}": target for profile, target in by_profile.items()}
    for name in (model.name, *model.aliases):
        found[name] = by_profile[model.default_profile]
    return found


def model_listing(catalog: Catalog, allowed: Iterable[str] | None) -> list[dict[str, object]]:
    """What GET /v1/models gives, aliases as models of their own, stopped ones with their state.

    `allowed`: the names that the caller's key may use; None: all.
    """
    may = None if allowed is None else set(allowed)
    listed: list[dict[str, object]] = []
    for model in catalog.models:
        if may is not None and not may.intersection((model.name, *model.aliases)):
            continue
        ready = len(catalog.targets[model.name].urls)
        for name in (model.name, *model.aliases):
            entry: dict[str, object] = {"id": name, "object": "model", "created": 0, "owned_by": "llmgw"}
            listed.append({**entry, "root": model.name, "state": model.state, "ready_replicas": ready})
    return listed


def _is_base(url: str) -> bool:
    """Whether an endpoint can be at that URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def static_service(text: str) -> Service:
    """An endpoint written `id=URL=model[,model]`; UsageError where it is not."""
    name, _, rest = text.partition("=")
    url, _, models = rest.rpartition("=")
    names = tuple(word for word in models.split(",") if word)
    if not (name and names and _is_base(url)):
        raise UsageError(
            f"{text!r} is no endpoint", hint="write id=URL=model[,model], like gpu1=http://10.0.0.5:8000=qwen"
        )
    return Service(id=name, url=url.rstrip("/"), models=names, profile="default")
