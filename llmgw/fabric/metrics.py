"""Fabrics for Prometheus, by node_exporter's textfile collector."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from llmgw.fabric.fabric import Fabric, Severity
from llmgw.fabric.findings import two_ends
from llmgw.fabric.topology import summary
from llmgw.fabric.verify import Findings

_LIMIT_SERIES = 500
_LIMIT_LABEL = 128


@dataclass(frozen=True, slots=True)
class Sample:
    """One fabric to be measured: its map, what is wrong with it, and how the last scan ended.

    `scanned_at` is when the map was last seen as it is; `succeeded` whether the last scan gave a map, whole or in part.
    """

    name: str
    role: str
    fabric: Fabric
    findings: Findings
    scanned_at: datetime
    succeeded: bool = True


_Gauge = tuple[str, str, list[tuple[Mapping[str, str], float]]]
"""A gauge's name without `llmgw_fabric_`, its meaning, and each series' labels and value."""


def prometheus(samples: Sequence[Sample], *, run_at: datetime | None = None) -> str:
    """The gauges of all fabrics in one text, each family once, as the collector wants it.

    Short cables one by one, at most 500 of each fabric; labels cut at 128 characters. `run_at`: when cron's scan ran.
    """
    from prometheus_client import CollectorRegistry, generate_latest  # as slow to import as all of this package
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Gauges(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for gauge, meaning, series in _families(samples, run_at):
                family = GaugeMetricFamily(f"llmgw_fabric_{gauge}", meaning, labels=list(series[0][0]))
                for labels, value in series:
                    family.add_metric([_plain(text) for text in labels.values()], value)
                yield family

    registry = CollectorRegistry()
    registry.register(Gauges())
    return generate_latest(registry).decode()


def _families(samples: Sequence[Sample], run_at: datetime | None) -> Iterator[_Gauge]:
    """The gauges of all samples, those of one name together; none without a series."""
    if run_at is not None:
        yield "run_timestamp_seconds", "When llmgw fabric scan last ran to its end.", [({}, run_at.timestamp())]
    for same in zip(*(list(_gauges(sample)) for sample in samples), strict=True):
        series = [one for _, _, own in same for one in own]
        if series:
            yield same[0][0], same[0][1], series


def _gauges(sample: Sample) -> Iterator[_Gauge]:
    fabric, figures = sample.fabric, summary(sample.fabric)
    own = {"fabric": sample.name}
    kinds = [one.kind for one in sample.findings.findings if one.severity is not Severity.NOTE]
    tiers = (("leaf", figures.leaves), ("spine", figures.spines), ("core", figures.cores))

    def one(name: str, meaning: str, value: float) -> _Gauge:
        return name, meaning, [(own, value)]

    yield "info", "The fabric's part.", [(own | {"role": sample.role}, 1)]
    yield one("scan_success", "Whether the last scan gave a map, whole or in part.", sample.succeeded)
    yield one("scan_complete", "Whether the map is of a scan that saw everything.", sample.findings.complete)
    yield one("scan_timestamp_seconds", "When the map was last seen as it is.", int(sample.scanned_at.timestamp()))
    yield one("healthy", "Whether nothing worse than a note was found.", sample.findings.healthy)
    yield "switches", "Switch chips by tier.", [(own | {"tier": tier}, number) for tier, number in tiers]
    yield one("adapters", "Adapter ports with a cable.", figures.adapters)
    yield one("adapters_unnamed", "Adapters that are nobody's.", figures.unnamed_adapters)
    yield one("adapters_off_rail", "Adapters that are cabled off their rail.", figures.off_rail)
    yield one("nodes", "Nodes with an adapter here.", figures.nodes)
    yield one("nodes_gone", "Nodes of which an earlier map had adapters.", kinds.count("node gone"))
    yield one("cables", "Cables.", figures.links)
    yield one("cables_short", "Cables that trained short of their kind.", figures.degraded)
    yield one("cables_gone", "Cables that an earlier map had, by themselves.", kinds.count("cable gone"))
    yield one("ports_down", "Ports that are down and had a cable.", kinds.count("port down"))
    yield one("findings", "Findings that are worse than a note.", len(kinds))
    yield "cable_short", "One for each short cable.", [(own | labels, 1) for labels in _short(fabric)]


def _short(fabric: Fabric) -> Iterator[dict[str, str]]:
    for cable in [cable for cable in fabric.cables if cable.degraded][:_LIMIT_SERIES]:
        a, b = two_ends(fabric, cable)
        where = {"guid": cable.a, "port": str(cable.a_port), "a": a, "b": b}
        yield where | {"rate": cable.rate, "expected": cable.expected}


def _plain(text: str) -> str:
    """A label's value without what cannot be printed; quotation marks and backslashes are the library's to escape."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_LIMIT_LABEL])
