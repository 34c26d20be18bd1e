"""Publishing: the next generation to every router host, and what their routers say of it."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmgw.plan import Action, Answer, Ask, Kind
from llmgw.remote.playbook import HostAnswer, Play, Session, run_play
from llmgw.remote.steps import PublishDocuments, PublishedText, plain
from llmgw.serving import Endpoint, EndpointsFile, EngineKeys
from llmgw.serving.publishing import after_phase, in_order, leaving_id, read_routers, replica_of, url_of_incumbent
from llmgw.site import InventoryHost, Site

Change = Callable[[Sequence[Endpoint]], Iterable[Endpoint]]


class Registry(Protocol):
    """Where the generation is counted: remembered before anybody is given it."""

    def publish(self, change: Change) -> EndpointsFile:
        """The endpoint file after the change, one generation higher."""
        ...

    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints of the last generation."""
        ...

    def engine_keys(self, replicas: Collection[str]) -> EngineKeys:
        """The engine keys of these replicas."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of documents on each router host, and what its routers last said."""

    statuses: Mapping[str, Mapping[str, Any]]
    failed: Mapping[str, str]


def folder_of(site: Site, router: InventoryHost) -> str:
    """A router host's published folder."""
    return router.variables.published or site.settings.router.published


def deliver(session: Session, site: Site, texts: Sequence[PublishedText]) -> Delivery:
    """Put the documents on every router host; none to read the statuses only."""
    files = tuple(text.model_dump() for text in texts)
    documents = {router.name: plain(PublishDocuments(folder_of(site, router), files)) for router in site.routers}
    found = Delivery({}, {})
    if not documents:
        return found
    play = Play("publish", "documents_by_host", documents, deadline_s=site.settings.timeouts.step_s)
    for answer in run_play(session, play):
        _keep(found, answer)
    return found


def _keep(found: Delivery, answer: HostAnswer) -> None:
    if answer.outcome == "ok":
        found.statuses[answer.host] = answer.result.get("status", {})  # type: ignore[index]
    else:
        found.failed[answer.host] = answer.why  # type: ignore[index]


def endpoint_texts(file: EndpointsFile, keys: EngineKeys) -> list[PublishedText]:
    """The two documents of a generation: the keys first, so that no router finds an endpoint without its key."""
    return [
        PublishedText(name="engine-keys.json", text=keys.text(), mode="0600"),
        PublishedText(name="endpoints.json", text=file.text()),
    ]


def engine_keys_of(registry: Registry, file: EndpointsFile) -> EngineKeys:
    """The engine keys by endpoint id."""
    known = registry.engine_keys({replica_of(endpoint.id) for endpoint in file.endpoints}).keys
    return EngineKeys(
        keys={
            endpoint.id: known[replica_of(endpoint.id)]
            for endpoint in file.endpoints
            if replica_of(endpoint.id) in known
        }
    )


@dataclass(slots=True)
class Publisher:
    """Answers PUBLISH and ROUTERS asks: one generation for all that come together."""

    session: Session
    site: Site
    actions: Mapping[str, Action]
    registry: Registry
    _generation: dict[str, int] = field(default_factory=dict)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asks: Sequence[Ask]) -> Iterable[Answer]:
        with self._one:
            changes = [ask for ask in asks if ask.kind is Kind.PUBLISH]
            texts: list[PublishedText] = []
            if changes:
                file = self.registry.publish(lambda endpoints: self._changed(changes, endpoints))
                texts = endpoint_texts(file, engine_keys_of(self.registry, file))
                self._generation.update((ask.action, file.generation) for ask in changes)
            delivery = deliver(self.session, self.site, texts)
        return [
            self._published(ask, delivery) if ask.kind is Kind.PUBLISH else self._read(ask, delivery)
            for ask in asks
        ]

    def _changed(self, asks: Sequence[Ask], endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        now = list(endpoints)
        ending = {url_of_incumbent(self.site, action.ends) for action in self.actions.values() if action.ends}
        for ask in asks:
            now = after_phase(self.site, self.actions[ask.action], ask.phase, now, ending=ending)
        return in_order(now)

    def _published(self, ask: Ask, delivery: Delivery) -> Answer:
        """What is published is so by the store's word; a host that did not take it gets it with the next."""
        text = "; ".join(f"router host {host} did not take it: {why}" for host, why in delivery.failed.items())
        return Answer(ask, "ok", done=True, text=text)

    def _read(self, ask: Ask, delivery: Delivery) -> Answer:
        if delivery.failed:
            host, why = next(iter(sorted(delivery.failed.items())))
            return Answer(ask, "unreachable", text=f"router host {host}: {why}")
        action = self.actions[ask.action]
        leaving = leaving_id(self.site, action, self.registry.endpoints())
        reading = read_routers(delivery.statuses, leaving, self._generation.get(ask.action, 0))
        return Answer(ask, "ok", in_flight=reading.in_flight, behind=reading.behind)
