"""What the store remembers that a plan depends on: its identity, cordons, replicas that must not be touched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class Cordon:
    """A node that takes nothing new; with kind "drain" what runs there is to go as well."""

    node: str
    kind: Literal["cordon", "drain"]
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """The store's lineage (from its creation) and serial (its count of changes), and what admins asked of nodes.

    `orphans` are GPUs, by node, of runs that could not be proved gone: nothing is placed on them.
    """

    lineage: str
    serial: int
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    orphans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
