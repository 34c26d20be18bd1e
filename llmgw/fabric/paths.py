"""What placement needs of a map: each node's leaf domain, rails and short cables (llmgw-paths/1)."""

from typing import Literal

from pydantic import Field

from llmgw.base import Document, Guid, HostName, Value


class Rail(Value):
    """One adapter port of a node on this fabric."""

    device: str
    port: int
    guid: Guid
    leaf: Guid
    rail: int | None = Field(None, description="from 1; None where the fabric has no rails")
    off_rail: bool = False
    rate: str
    expected: str
    pci: str = ""


class ShortCable(Value):
    """A cable that trained short, in the words of a warning: both ends by name and port, both rates."""

    node_end: str = Field(description='"gpu07 mlx5_2/1"')
    switch_end: str = Field(description='"leaf-c port 11"')
    rate: str
    expected: str


class NodePath(Value):
    """Where a node stands in the fabric."""

    domain: str = Field(description="its leaf domain: nodes of equal domain meet under the same leaves")
    pod: str = Field(description="domains of equal pod meet at the spines")
    rails: tuple[Rail, ...] = Field(description="in rail order")
    short: tuple[ShortCable, ...] = ()
    off_rail: bool = Field(default=False, description="some adapter is not on the leaf of its rail")


class Domain(Value):
    """A leaf domain: the leaves over it, and the name that a person would call it by."""

    name: str
    pod: str
    leaves: tuple[Guid, ...]


class Paths(Document):
    """Everything that a plan may depend on in one fabric's map."""

    format: Literal["llmgw-paths/1"] = "llmgw-paths/1"
    fabric: str
    role: Literal["compute", "storage"] = "compute"
    complete: bool
    rail_aligned: bool
    scan: int = Field(0, description="the stored scan's number")
    domains: dict[str, Domain]
    nodes: dict[HostName, NodePath]
