"""What nodes report: GPUs, adapters, what runs, what is installed."""

from llmgw.observed.facts import (
    Adapter,
    Disk,
    Facts,
    Gpu,
    GpuProcess,
    InstalledEngine,
    NodeFacts,
    Orphan,
    Rights,
    Run,
    Weights,
)
from llmgw.observed.lean import lean_facts
from llmgw.observed.parse import parse_facts
from llmgw.observed.replicas import Incarnation, incarnations

__all__ = [
    "Adapter",
    "Disk",
    "Facts",
    "Gpu",
    "GpuProcess",
    "Incarnation",
    "InstalledEngine",
    "NodeFacts",
    "Orphan",
    "Rights",
    "Run",
    "Weights",
    "incarnations",
    "lean_facts",
    "parse_facts",
]
