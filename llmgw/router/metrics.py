"""Prometheus text from a snapshot. Labels are names from the published files, never what a client sent."""

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from llmgw.router.snapshot import Snapshot
from llmgw.router.tallies import BETWEEN_TOKENS, FIRST_TOKEN, WHOLE
from llmgw.serving.endpoints import NodesFile

_LABELS = ("endpoint", "model", "operation")


class _Once(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def exposition(shot: Snapshot, nodes: NodesFile | None, now: float) -> bytes:
    """All metrics in the text format 0.0.4. `now`: seconds since 1970."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _Once([*_state(shot, now), *_endpoints(shot), *_requests(shot), *_accounts(shot), *_fleet(nodes)])
    )
    return generate_latest(registry)


def _state(shot: Snapshot, now: float) -> Iterator[Metric]:
    yield _gauge("llmgw_router_generation", "Generation of the loaded endpoints.json", shot["generation"])
    yield _gauge(
        "llmgw_router_stale", "1 while a newer endpoints.json is being kept out", int(bool(shot["problem"]))
    )
    yield _gauge("llmgw_router_loaded_age_seconds", "Seconds since endpoints were loaded", now - shot["loaded_at"])
    yield _gauge("llmgw_router_connections", "Client connections", shot["connections"])
    yield _gauge("llmgw_router_stopping", "1 while the router drains", int(shot["stopping"]))
    for name, label, text in (
        ("refused", "code", "Requests that the router answered itself"),
        ("retries", "reason", "Attempts that failed before the client had a byte"),
        ("reloads", "result", "Times that a published file was replaced"),
    ):
        family = CounterMetricFamily(f"llmgw_router_{name}", text, labels=[label])
        for value, number in shot[name].items():
            family.add_metric([value], number)
        yield family
    queued = GaugeMetricFamily("llmgw_router_queued", "Requests waiting for an endpoint", labels=["model"])
    for model, number in shot["queued"].items():
        queued.add_metric([model], number)
    yield queued


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _endpoints(shot: Snapshot) -> Iterator[Metric]:
    for name, text, value in (
        ("in_flight", "Requests under way", lambda one: one["in_flight"]),
        ("ejected", "1 while the endpoint gets no new requests", lambda one: int(one["ejected"])),
        ("draining", "1 while the endpoint finishes what it has", lambda one: int(one["state"] != "ready")),
        ("kept_connections", "Idle connections kept", lambda one: one["kept"]),
    ):
        family = GaugeMetricFamily(f"llmgw_endpoint_{name}", text, labels=["endpoint"])
        for _, one in sorted(_by_id(shot).items()):
            family.add_metric([one["id"]], value(one))
        yield family
    ejections = CounterMetricFamily(
        "llmgw_endpoint_ejections", "Times that an endpoint was ejected", labels=["endpoint"]
    )
    for url, number in shot["ejections"].items():
        ejections.add_metric([_name(shot, url)], number)
    yield ejections


def _by_id(shot: Snapshot) -> dict[str, dict[str, Any]]:
    """Endpoints by id; one that has left and one that has taken its id count together."""
    found: dict[str, dict[str, Any]] = {}
    for one in shot["endpoints"].values():
        seen = found.get(one["id"])
        if seen is not None:
            one = {**one, **{name: seen[name] + one[name] for name in ("in_flight", "kept")}}
        found[one["id"]] = one
    return found


def _name(shot: Snapshot, url: str) -> str:
    endpoint = shot["endpoints"].get(url)
    return endpoint["id"] if endpoint else url


def _requests(shot: Snapshot) -> Iterator[Metric]:
    requests = CounterMetricFamily("llmgw_requests", "Requests sent to endpoints", labels=[*_LABELS, "outcome"])
    families = {
        "first": (
            FIRST_TOKEN,
            "llmgw_time_to_first_token_seconds",
            "From the request to the first token of a stream",
        ),
        "between": (BETWEEN_TOKENS, "llmgw_inter_token_seconds", "Mean time between two tokens of a stream"),
        "whole": (WHOLE, "llmgw_request_seconds", "From the request to the end of the answer"),
    }
    made = {key: HistogramMetricFamily(name, text, labels=_LABELS) for key, (_, name, text) in families.items()}
    for (model, operation, endpoint), tally in _by_labels(shot).items():
        labels = [endpoint, model, operation]
        for outcome, number in tally["outcomes"].items():
            requests.add_metric([*labels, outcome], number)
        for key, family in made.items():
            total, *counts = tally[key]
            family.add_metric(labels, buckets=_cumulative(families[key][0], counts), sum_value=total)
    yield requests
    yield from made.values()


def _by_labels(shot: Snapshot) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Tallies by the labels that they get.

    Of two URLs with one id the later one's, so that no series stands twice.
    """
    return {(model, operation, _name(shot, url)): tally for url, model, operation, tally in shot["tallies"]}


def _cumulative(bounds: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    buckets, seen = [], 0
    for bound, number in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        seen += number
        buckets.append((bound, float(seen)))
    return buckets


def _accounts(shot: Snapshot) -> Iterator[Metric]:
    tokens: dict[tuple[str, str, str], int] = {}
    asked: dict[tuple[str, str], int] = {}
    for tenant, _, model, _, _, (requests, _, prompt, completion, cached, _) in shot["accounts"]:
        asked[tenant, model] = asked.get((tenant, model), 0) + requests
        for kind, number in (("prompt", prompt), ("completion", completion), ("cached", cached)):
            tokens[tenant, model, kind] = tokens.get((tenant, model, kind), 0) + number
    family = CounterMetricFamily("llmgw_tokens", "Tokens", labels=["tenant", "model", "kind"])
    for labels, number in tokens.items():
        family.add_metric(list(labels), number)
    yield family
    family = CounterMetricFamily("llmgw_tenant_requests", "Requests", labels=["tenant", "model"])
    for names, number in asked.items():
        family.add_metric(list(names), number)
    yield family


def _fleet(nodes: NodesFile | None) -> Iterator[Metric]:
    if nodes is None:
        return
    for name, text, value in (
        ("gpus", "GPUs of the node", lambda node: node.gpus),
        ("gpus_used", "GPUs that replicas hold", lambda node: node.gpus_used),
        ("replicas", "Replicas on the node", lambda node: len(node.replicas)),
    ):
        family = GaugeMetricFamily(f"llmgw_node_{name}", text, labels=["node"])
        for node in nodes.nodes:
            family.add_metric([node.name], value(node))
        yield family
    states = GaugeMetricFamily("llmgw_node_state", "1 for the state that the node is in", labels=["node", "state"])
    for node in nodes.nodes:
        states.add_metric([node.name, node.state], 1)
    yield states
