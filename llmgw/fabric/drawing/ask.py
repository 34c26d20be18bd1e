"""What a drawing is asked to show."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llmgw.base import UsageError, near
from llmgw.fabric.drawing.marks import Marks
from llmgw.fabric.fabric import Fabric

Colouring = Literal["rail", "rate", "state", "plan"]


@dataclass(frozen=True, slots=True)
class Ask:
    """The part of a fabric to draw, and how.

    `switches` and `nodes` are those to draw, None for all; adapters of other nodes on a drawn leaf are faint.
    `every_cable` draws all pairs of switches instead of a ribbon and what breaks its pattern.
    """

    title: str
    marks: Marks
    colouring: Colouring = "rail"
    every_cable: bool = False
    switches: frozenset[str] | None = None
    nodes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A limited part of a fabric: its switches, and the nodes that it is about (None: all on them)."""

    switches: frozenset[str]
    nodes: frozenset[str] | None

    def has(self, fabric: Fabric, guid: str, port: int) -> bool:
        """Whether a place of the fabric is in the part: a switch, or an adapter on one, of a node that it is about."""
        adapter = fabric.adapters.get((guid, port))
        if adapter is None:
            return guid in self.switches
        return adapter.leaf in self.switches and (self.nodes is None or adapter.node in self.nodes)


def limited(fabric: Fabric, limit: str) -> Part:
    """The part that `pod=7`, `leaf=LG01-01` or `node=gpu07` names; UsageError for one that does not exist.

    A pod is named with or without its `pod-`, a leaf by label or GUID.
    """
    word, equals, name = limit.partition("=")
    if word == "pod" and equals:
        return Part(_pod(fabric, name), None)
    if word == "leaf" and equals:
        leaf = _leaf(fabric, name)
        return Part(frozenset({leaf, *_above(fabric, {leaf})}), None)
    if word == "node" and equals:
        if name not in fabric.nodes:
            raise UsageError(f"no node {name} in this fabric{_like(name, fabric.nodes)}")
        leaves = {adapter.leaf for adapter in fabric.nodes[name] if adapter.leaf}
        return Part(frozenset(leaves | _above(fabric, leaves)), frozenset({name}))
    raise UsageError(f"{limit!r} is no limit", hint="write pod=7, leaf=LG01-01 or node=gpu07")


def _pod(fabric: Fabric, name: str) -> frozenset[str]:
    known = {domain.pod for domain in fabric.domains.values()}
    pod = name if name in known else f"pod-{name}"
    if pod not in known:
        raise UsageError(f"no pod {name} in this fabric{_like(pod, known)}")
    leaves = {leaf for domain in fabric.domains.values() if domain.pod == pod for leaf in domain.leaves}
    return frozenset(leaves | _above(fabric, leaves))


def _leaf(fabric: Fabric, name: str) -> str:
    labels = {switch.label: guid for guid, switch in fabric.switches.items()}
    guid = labels.get(name, name.lower().removeprefix("0x").rjust(16, "0"))
    if guid not in fabric.switches:
        raise UsageError(f"no switch {name} in this fabric{_like(name, labels)}")
    return guid


def _above(fabric: Fabric, leaves: Iterable[str]) -> set[str]:
    """The spines that the leaves are cabled to."""
    own = set(leaves)
    ends = {
        cable.b if cable.a in own else cable.a for cable in fabric.cables if (cable.a in own) != (cable.b in own)
    }
    return {guid for guid in ends if guid in fabric.switches and fabric.switches[guid].distance == 2}


def _like(name: str, known: Iterable[str]) -> str:
    close = near(name, list(known))
    return f"; did you mean {close[0]}?" if close else ""
