"""A fabric for Prometheus, by node_exporter's textfile collector."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from llmgw.fabric.fabric import Fabric, Severity
from llmgw.fabric.findings import two_ends
from llmgw.fabric.topology import summary

_LIMIT_SERIES = 500
_LIMIT_LABEL = 128

_Gauge = tuple[str, str, list[tuple[Mapping[str, str], float]]]
"""A gauge's name without `llmgw_fabric_`, its meaning, and each series' further labels and value."""


def prometheus(fabric: Fabric, *, name: str, scanned_at: datetime, down: int = 0) -> str:
    """The fabric's gauges. Short cables one by one, at most 500 of them, labels cut at 128 characters."""
    from prometheus_client import CollectorRegistry, generate_latest  # as slow to import as all of this package
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Gauges(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for gauge, meaning, series in _gauges(fabric, scanned_at, down):
                labels = ["fabric", *(series[0][0] if series else ())]
                family = GaugeMetricFamily(f"llmgw_fabric_{gauge}", meaning, labels=labels)
                for further, value in series:
                    family.add_metric([_plain(text) for text in (name, *further.values())], value)
                yield family

    registry = CollectorRegistry()
    registry.register(Gauges())
    return generate_latest(registry).decode()


def _gauges(fabric: Fabric, scanned_at: datetime, down: int) -> Iterator[_Gauge]:
    figures = summary(fabric)
    worse = sum(one.severity is not Severity.NOTE for one in fabric.findings)
    tiers = (("leaf", figures.leaves), ("spine", figures.spines), ("core", figures.cores))
    yield "scan_complete", "Whether the last scan saw everything.", [({}, fabric.verdict.state == "complete")]
    yield "scan_timestamp_seconds", "When the map was scanned.", [({}, int(scanned_at.timestamp()))]
    yield "switches", "Switch chips by tier.", [({"tier": tier}, number) for tier, number in tiers]
    yield "adapters", "Adapter ports with a cable.", [({}, figures.adapters)]
    yield "adapters_unnamed", "Adapters that are nobody's.", [({}, figures.unnamed_adapters)]
    yield "adapters_off_rail", "Adapters that are cabled off their rail.", [({}, figures.off_rail)]
    yield "nodes", "Nodes with an adapter here.", [({}, figures.nodes)]
    yield "cables", "Cables.", [({}, figures.links)]
    yield "cables_short", "Cables that trained short of their kind.", [({}, figures.degraded)]
    yield "ports_down", "Ports that are down and had a cable.", [({}, down)]
    yield "findings", "Findings that are worse than a note.", [({}, worse)]
    yield "cable_short", "One for each short cable.", [(labels, 1) for labels in _short(fabric)]


def _short(fabric: Fabric) -> Iterator[Mapping[str, str]]:
    for cable in [cable for cable in fabric.cables if cable.degraded][:_LIMIT_SERIES]:
        a, b = two_ends(fabric, cable)
        where = {"guid": cable.a, "port": str(cable.a_port), "a": a, "b": b}
        yield where | {"rate": cable.rate, "expected": cable.expected}


def _plain(text: str) -> str:
    """A label's value without what cannot be printed; quotation marks and backslashes are the library's to escape."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_LIMIT_LABEL])
