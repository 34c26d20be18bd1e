"""The topology document (llmgw-topology/1): what `llmgw fabric show -o json` prints, and what is stored."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from pydantic import Field

from llmgw.base import Document, Guid, Value
from llmgw.fabric.fabric import Fabric, Tier


class SwitchItem(Value):
    """One switch chip. `name` is its NodeDescription as it stands."""

    guid: Guid
    name: str
    lid: int
    ports: int
    tier: Literal["leaf", "spine", "core"]
    rail: int | None = Field(None, description="the rail of most of its adapters")
    chassis: str | None = Field(None, description="the system of which it is one chip of several")


class AdapterItem(Value):
    """One port of an adapter that has a cable."""

    guid: Guid
    port: int
    device: str
    node: str | None = Field(None, description="None where nobody can say whose it is")
    description: str
    leaf: Guid | None = Field(None, description="None for an adapter that is cabled to no switch")
    rail: int | None = Field(None, description="from 1; for one that is off its rail, the rail it belongs on")
    off_rail: bool = False
    rate: str


class LinkEnd(Value):
    """One end of a cable."""

    guid: Guid
    port: int


class LinkItem(Value):
    """One cable, listed once: `a` has the lower GUID, or the lower port of one device."""

    a: LinkEnd
    b: LinkEnd
    rate: str
    expected: str
    degraded: bool = False


class Summary(Value):
    """The figures of a map."""

    switches: int
    leaves: int
    spines: int
    cores: int
    adapters: int
    nodes: int
    links: int
    degraded: int
    off_rail: int
    unnamed_adapters: int


class Topology(Document):
    """One map of one fabric."""

    format: Literal["llmgw-topology/1"] = "llmgw-topology/1"
    fabric: str
    scanned_at: datetime
    scanned_from: str
    complete: bool
    problems: tuple[str, ...] = ()
    rail_aligned: bool
    switches: tuple[SwitchItem, ...]
    adapters: tuple[AdapterItem, ...]
    links: tuple[LinkItem, ...]
    summary: Summary


def topology(fabric: Fabric, *, name: str, scanned_at: datetime, scanned_from: str = "") -> Topology:
    """The document of a fabric. Switches from leaf to core by name, adapters by node, links by GUID and port.

    `scanned_from` is the scanning node's device GUID where the caller knows nothing better.
    """
    return Topology.model_validate(
        {
            "fabric": name,
            "scanned_at": scanned_at,
            "scanned_from": scanned_from or fabric.scanned_from,
            "complete": fabric.verdict.state == "complete",
            "problems": tuple(problem_lines(fabric)),
            "rail_aligned": fabric.rails > 0,
            "switches": _switches(fabric),
            "adapters": _adapters(fabric),
            "links": _links(fabric),
            "summary": summary(fabric),
        }
    )


def problem_lines(fabric: Fabric) -> Iterable[str]:
    """What the scan met, by line, then the switches whose tier nothing proves."""
    yield from map(str, fabric.verdict.problems)
    yield from (one.text for one in fabric.findings if one.kind == "no live adapter below")


def summary(fabric: Fabric) -> Summary:
    """The figures of a fabric."""
    tiers = [switch.tier for switch in fabric.switches.values()]
    adapters = fabric.adapters.values()
    return Summary(
        switches=len(tiers),
        leaves=tiers.count(Tier.LEAF),
        spines=tiers.count(Tier.SPINE),
        cores=tiers.count(Tier.CORE),
        adapters=len(adapters),
        nodes=len(fabric.nodes),
        links=len(fabric.cables),
        degraded=sum(cable.degraded for cable in fabric.cables),
        off_rail=sum(adapter.off_rail for adapter in adapters),
        unnamed_adapters=sum(adapter.node is None for adapter in adapters),
    )


def _switches(fabric: Fabric) -> list[dict[str, object]]:
    return [
        {
            "guid": one.guid,
            "name": one.name,
            "lid": one.lid,
            "ports": one.ports,
            "tier": str(one.tier),
            "rail": one.rail,
            "chassis": one.chassis,
        }
        for one in fabric.switches.values()
    ]


def _adapters(fabric: Fabric) -> list[dict[str, object]]:
    return [
        {
            "guid": one.guid,
            "port": one.port,
            "device": one.device,
            "node": one.node,
            "description": one.description,
            "leaf": one.leaf or None,
            "rail": one.rail,
            "off_rail": one.off_rail,
            "rate": one.rate,
        }
        for one in fabric.adapters.values()
    ]


def _links(fabric: Fabric) -> list[dict[str, object]]:
    return [
        {
            "a": {"guid": one.a, "port": one.a_port},
            "b": {"guid": one.b, "port": one.b_port},
            "rate": one.rate,
            "expected": one.expected,
            "degraded": one.degraded,
        }
        for one in fabric.cables
    ]
