"""What each fabric is for, where the settings do not say it of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from llmgw.fabric.paths import NodePath, Paths
from llmgw.fabric.rates import gbps

Role = Literal["compute", "storage"]


@dataclass(frozen=True, slots=True)
class Part:
    """A fabric's part. Replicas are placed by compute fabrics alone. `why` is empty where nobody had to choose."""

    role: Role
    why: str = ""


def parts(maps: Mapping[str, Paths | None], named: Mapping[str, Role]) -> dict[str, Part]:
    """The part of each fabric: what the settings say; else compute, if no other could be meant.

    Maps are looked into only where two fabrics or more are not named; None stands for one that was not read.

    Beside a compute fabric that the settings name, another is for something else. Of several that nobody named, and
    that have nodes in common, the one is for compute that has most of their bandwidth; where two have equally much,
    neither is, since a replica that meets over a storage fabric harms everybody.
    """
    free = {name: _bandwidths(one) if one else {} for name, one in maps.items() if name not in named}
    compute = [name for name, role in named.items() if role == "compute"]
    return {
        name: Part(named[name]) if name in named else _beside_named(compute) or _among(name, free) for name in maps
    }


def _beside_named(compute: list[str]) -> Part | None:
    if not compute:
        return None
    return Part("storage", f"the settings name {' and '.join(compute)} for compute, and not this one")


def _bandwidths(way: Paths) -> dict[str, float]:
    return {name: _bandwidth(node) for name, node in way.nodes.items()}


def _bandwidth(node: NodePath) -> float:
    """What a node's cables should run at, Gb/s."""
    return sum(gbps(rail.expected) or 0.0 for rail in node.rails)


def _among(name: str, free: Mapping[str, Mapping[str, float]]) -> Part:
    """A fabric's part among those that nobody named."""
    own = free[name]
    for other, theirs in free.items():
        both = own.keys() & theirs.keys() if other != name else ()
        more = sum(own[node] > theirs[node] for node in both)
        less = sum(own[node] < theirs[node] for node in both)
        if less > more:
            return Part("storage", f"its nodes have more bandwidth in {other}, and the settings name neither")
        if both and less == more:
            return Part("storage", f"its nodes have as much bandwidth in {other}: which one is for replicas?")
    ruled = any(own.keys() & theirs.keys() for other, theirs in free.items() if other != name)
    return Part("compute", "its nodes have most of their bandwidth here" if ruled else "")
