"""A fabric as llmgw understands it: switches with their tier, adapters with their node and rail, cables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from llmgw.fabric.judge import Verdict


class Tier(StrEnum):
    """A switch's distance from the nearest adapter: 1, 2, and 3 or more."""

    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"


class Switch(Struct, frozen=True, gc=False):
    """One switch chip.

    `label` is what an operator calls it, unique in the fabric. `distance` is 1 at a leaf; 0 where no adapter can
    be reached. `rail` is None where no one rail has the most of its adapters. `chassis` is the system of which it
    is one chip of several. `hostless`: nothing shows that it is no leaf that has lost its hosts.
    """

    guid: str
    name: str
    label: str
    lid: int
    ports: int
    model: int
    distance: int
    rail: int | None
    chassis: str | None
    hostless: bool

    @property
    def tier(self) -> Tier:
        """Leaf, spine or core."""
        return Tier.LEAF if self.distance == 1 else Tier.SPINE if self.distance == 2 else Tier.CORE


class Standing(StrEnum):
    """How well an adapter's node is known."""

    FACTS = "known by its GUID"
    NAMED = "named by its description"
    UNNAMED = "description names nobody"
    AMBIGUOUS = "several devices claim this name"
    IMPOSTOR = "claims a host whose adapters are others"


class Adapter(Struct, frozen=True, gc=False):
    """One port of an adapter with a cable. Its key is GUID and port (and the fabric).

    `node` is None where nobody can say whose it is; `claims` is the host that the description names even so.
    `leaf` is the GUID of what it is cabled to, `leaf_port` the port there. `rail` counts from 1: for an adapter
    that is off its rail, the rail that it belongs on. `pci` is known from facts only.
    """

    guid: str
    port: int
    port_guid: str
    device: str
    node: str | None
    claims: str | None
    standing: Standing
    description: str
    model: int
    leaf: str
    leaf_port: int
    rail: int | None
    off_rail: bool
    rate: str
    expected: str
    pci: str

    @property
    def label(self) -> str:
        """`gpu01 mlx5_0/1`, or the description or GUID of one that is nobody's."""
        who = f"{self.node} {self.device}".strip() if self.node else self.description.strip() or self.guid
        return f"{who}/{self.port}"


class Cable(Struct, frozen=True, gc=False):
    """One cable, seen once: end a has the lower GUID, or the lower port of one device cabled to itself.

    `rate` is the slower of what its ends say; `expected` is what its kind runs at.
    """

    a: str
    a_port: int
    b: str
    b_port: int
    rate: str
    expected: str
    degraded: bool


@dataclass(frozen=True, slots=True)
class Domain:
    """A leaf domain: `nodes` that meet under the same `leaves`, most of their rails over.

    `id` is what plans and people call it; `pod` is the id of its pod.
    """

    id: str
    name: str
    pod: str
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]


class Severity(StrEnum):
    """How bad a finding is. Errors and warnings make `llmgw fabric verify` fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, or that a person should know, in the fabric as it is now.

    `guid` and `port` say where, empty and 0 where it is no one place; `node` whose it is, empty for nobody's.
    """

    severity: Severity
    kind: str
    text: str
    guid: str = ""
    port: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Everything that is known of one fabric. Switches and adapters by GUID (and port), all in natural order.

    `rails` is the number of rails of the main class of hosts, 0 where the layout has none. `aggregation` are
    adapters inside switches (SHARP), `routers` are devices; neither counts as adapter. `missing` has the devices
    that a node lacks of those that its class has, each with its rail.
    """

    verdict: Verdict
    generated: str
    scanned_from: str
    switches: Mapping[str, Switch]
    adapters: Mapping[tuple[str, int], Adapter]
    cables: tuple[Cable, ...]
    domains: Mapping[str, Domain]
    rails: int
    nodes: Mapping[str, tuple[Adapter, ...]]
    aggregation: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()
    missing: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
