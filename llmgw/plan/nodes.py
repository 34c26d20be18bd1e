"""The nodes as a plan sees them: their state and why, their GPUs and who holds which, where they are in a fabric."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from llmgw.base import count, duration, natural_key
from llmgw.fabric import NodePath, Paths
from llmgw.observed import Facts, NodeFacts
from llmgw.plan.standing import Standing
from llmgw.site import InventoryHost, Site


class NodeState(StrEnum):
    """What a node may be used for. Only an `ok` one takes new replicas; only a `draining` one has to give them up.

    silent: it did not answer this time. unreachable: for longer than unreachable_after. lost: for longer than
    lost_after, so that its replicas may run elsewhere. unknown: it never answered. slurm: Slurm has it.
    """

    OK = "ok"
    CORDONED = "cordoned"
    DRAINING = "draining"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    UNKNOWN = "never answered"
    SLURM = "in Slurm's hands"


QUIET = frozenset({NodeState.SILENT, NodeState.UNREACHABLE, NodeState.LOST, NodeState.UNKNOWN})
"""The states of nodes that do not answer."""

_SLURM_BUSY = (
    "ALLOC", "MIX", "COMP", "DRAIN", "DRNG", "DOWN", "ERROR", "FAIL", "MAINT", "POWER", "REBOOT", "UNKNOWN",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SiteNode:
    """One node of the inventory.

    `note` says why its state is what it is. `gpus` are the indices of its GPUs, none where nothing is known of it;
    `taken` names what else than runs of llmgw holds a GPU, by the GPU's index. `fabric` and `path` are of its compute
    fabric, None where no map has it. `leaf` and `pod` are numbers, in natural order of the leaf domains' names.
    """

    name: str
    host: InventoryHost
    facts: NodeFacts | None
    state: NodeState
    note: str
    gpus: frozenset[int]
    taken: Mapping[int, str]
    fabric: str | None
    path: NodePath | None
    leaf: int
    pod: int


@dataclass(frozen=True, slots=True)
class Ground:
    """All nodes, in natural order of their names, and the leaf domains' names by number."""

    nodes: tuple[SiteNode, ...]
    leaves: tuple[str, ...]
    number: Mapping[str, int]

    def __getitem__(self, name: str) -> SiteNode:
        return self.nodes[self.number[name]]

    def get(self, name: str) -> SiteNode | None:
        """The node of that name; None where the inventory has none."""
        at = self.number.get(name)
        return None if at is None else self.nodes[at]


def survey(site: Site, fabrics: Mapping[str, Paths], facts: Facts, standing: Standing, *, now: datetime) -> Ground:
    """The nodes of the site, each with its state at `now`."""
    hosts = sorted(site.nodes, key=lambda host: (natural_key(host.name), host.name))
    homes = {host.name: home_of(host.name, fabrics) for host in hosts}
    leaf_numbers, pod_numbers, leaves = _numbers(homes, fabrics)
    nodes = tuple(
        _node(site, host, facts, standing, homes[host.name], (leaf_numbers, pod_numbers), now) for host in hosts
    )
    return Ground(nodes, leaves, {node.name: number for number, node in enumerate(nodes)})


def home_of(node: str, fabrics: Mapping[str, Paths]) -> tuple[str, NodePath] | None:
    """The compute fabric by which a node is placed: the one on which it has most adapters, of equals the larger,
    then the first by name. Fabrics are never spanned, so a node has one home."""
    best: tuple[tuple[int, int], str, NodePath] | None = None
    for name in sorted(fabrics):
        paths = fabrics[name]
        path = paths.nodes.get(node)
        if path and paths.role == "compute":
            rank = (len(path.rails), len(paths.nodes))
            if best is None or rank > best[0]:
                best = rank, name, path
    return (best[1], best[2]) if best else None


_Homes = Mapping[str, tuple[str, NodePath] | None]
_LeafKey = tuple[str, str]  # fabric (empty: none), domain (the node's own name where there is none)


def _numbers(
    homes: _Homes, fabrics: Mapping[str, Paths]
) -> tuple[dict[_LeafKey, int], dict[_LeafKey, int], tuple[str, ...]]:
    keys: dict[_LeafKey, tuple[str, _LeafKey]] = {}
    for node, home in homes.items():
        if home is None:
            keys["", node] = "", ("", node)
        else:
            fabric, path = home
            domain = fabrics[fabric].domains.get(path.domain)
            name = domain.name if domain else path.domain
            keys[fabric, path.domain] = name, (fabric, path.pod)
    order = sorted(keys, key=lambda key: (not key[0], natural_key(keys[key][0]), key[0], natural_key(key[1])))
    pods = sorted({pod for _, pod in keys.values()}, key=lambda pod: (not pod[0], pod[0], natural_key(pod[1])))
    return (
        {key: number for number, key in enumerate(order)},
        {pod: number for number, pod in enumerate(pods)},
        tuple(keys[key][0] for key in order),
    )


def _node(
    site: Site,
    host: InventoryHost,
    facts: Facts,
    standing: Standing,
    home: tuple[str, NodePath] | None,
    numbers: tuple[dict[_LeafKey, int], dict[_LeafKey, int]],
    now: datetime,
) -> SiteNode:
    name = host.name
    own = facts.nodes.get(name)
    state, note = _state(site, name, facts, standing, now)
    fabric, path = home or (None, None)
    leaf_key = (fabric, path.domain) if fabric and path else ("", name)
    pod_key = (fabric, path.pod) if fabric and path else ("", name)
    return SiteNode(
        name=name,
        host=host,
        facts=own,
        state=state,
        note=note,
        gpus=_indices(tuple(gpu.index for gpu in own.gpus) if own else ()),
        taken=_taken(own, standing.orphans.get(name, ())) if own else {},
        fabric=fabric,
        path=path,
        leaf=numbers[0][leaf_key],
        pod=numbers[1][pod_key],
    )


@lru_cache(maxsize=256)  # thousands of nodes have the same few sets
def _indices(gpus: tuple[int, ...]) -> frozenset[int]:
    return frozenset(gpus)


def _state(site: Site, name: str, facts: Facts, standing: Standing, now: datetime) -> tuple[NodeState, str]:
    if name in facts.silent or name not in facts.nodes:
        return _quiet(site, facts.silent.get(name), now)
    cordon = standing.cordons.get(name)
    if cordon:
        state = NodeState.DRAINING if cordon.kind == "drain" else NodeState.CORDONED
        return state, ", ".join(filter(None, (cordon.by, f'"{cordon.reason}"' if cordon.reason else "")))
    slurm = facts.nodes[name].slurm
    if any(word.startswith(_SLURM_BUSY) for word in slurm.upper().replace("-", "+").split("+")):
        return NodeState.SLURM, slurm
    return NodeState.OK, ""


def _quiet(site: Site, since: datetime | None, now: datetime) -> tuple[NodeState, str]:
    if since is None:
        return NodeState.UNKNOWN, ""
    silence = (now - since).total_seconds()
    state = NodeState.SILENT
    if silence >= site.settings.lost_after_s:
        state = NodeState.LOST
    elif silence >= site.settings.unreachable_after_s:
        state = NodeState.UNREACHABLE
    return state, f"for {duration(max(0, silence))}"


def _taken(facts: NodeFacts, orphans: tuple[int, ...]) -> dict[int, str]:
    """GPUs that something else than a run of llmgw holds, and what that is."""
    ours = {gpu for run in facts.runs if run.state != "exited" for gpu in run.gpus}
    taken = {
        gpu.index: _named([(process.pid, process.name) for process in gpu.processes])
        for gpu in facts.gpus
        if gpu.processes and gpu.index not in ours
    }
    for orphan in facts.orphans:
        for index in orphan.gpus:
            taken[index] = f"what is left of {orphan.replica or orphan.unit}"
    for index in orphans:
        taken.setdefault(index, "a run that could not be proved gone")
    return dict(sorted(taken.items()))


def _named(processes: list[tuple[int, str]]) -> str:
    pid, name = min(processes)
    more = len(processes) - 1
    return f"pid {pid}" + (f" ({name})" if name else "") + (f" and {count(more, 'other')}" if more else "")
