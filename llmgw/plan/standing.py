"""What the store remembers that a plan depends on: its identity, cordons, what is published, old specs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from llmgw.plan.spec import Spec


@dataclass(frozen=True, slots=True)
class Cordon:
    """A node that takes nothing new; with kind "drain" what runs there is to go as well."""

    node: str
    kind: Literal["cordon", "drain"]
    reason: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Published:
    """One endpoint of the last generation, under its id: a replica, or `replica~node` for a copy that leaves."""

    url: str
    state: Literal["ready", "draining"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The store's lineage (from its creation) and serial (its count of changes), and what admins asked of nodes.

    `orphans` are GPUs, by node, of runs that could not be proved gone: nothing is placed on them. `published`
    is what routers were last told, by endpoint id. `specs` are the contents of specs of applied plans, by their
    digest, so that a change can be told field by field.
    """

    lineage: str
    serial: int
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    orphans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    published: Mapping[str, Published] = field(default_factory=dict)
    specs: Mapping[str, Spec] = field(default_factory=dict)
