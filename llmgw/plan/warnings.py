"""What an operator should know before applying a plan: cables by both ends and rates, exposed models, held nodes."""

from collections.abc import Sequence

from llmgw.base import count, natural_key
from llmgw.engines.fit import fit
from llmgw.plan.copies import CopyState
from llmgw.plan.document import Placement
from llmgw.plan.roster import Fate
from llmgw.plan.text.spans import folded
from llmgw.plan.think import Thought

_MOST = 20


def warnings_of(thought: Thought) -> tuple[str, ...]:
    """The warnings, the gravest kinds first; a kind with very many is cut short."""
    kinds = (
        _incomplete(thought),
        _held(thought),
        _short(thought),
        _exposed(thought),
        _tight(thought),
        _ports(thought),
    )
    return tuple(text for kind in kinds for text in _cut(kind))


def _cut(texts: Sequence[str]) -> Sequence[str]:
    return (
        texts if len(texts) <= _MOST else [*texts[: _MOST - 1], f"and {len(texts) - _MOST + 1} more of this kind"]
    )


def _incomplete(thought: Thought) -> list[str]:
    return [
        f"the map of the fabric {name} is incomplete: what it does not show was not counted on"
        for name, paths in sorted(thought.asked.fabrics.items())
        if paths.role == "compute" and not paths.complete
    ]


def _held(thought: Thought) -> list[str]:
    """Replicas that stay although something about them should change, and copies that cannot be reached."""
    found = [
        f"{member.name} is held: {member.why}"
        for member in thought.roster.members
        if member.fate is Fate.HOLD and member.copy and member.copy.state is CopyState.UNKNOWN
    ]
    return found + [
        f"{ending.copy.name} on {', '.join(ending.copy.nodes)} cannot be stopped, its nodes do not answer: {ending.why}"
        for ending in thought.roster.stale
    ]


def _short(thought: Thought) -> list[str]:
    """Cables that trained short under replicas of several nodes that this plan starts."""
    found = []
    for name in sorted(thought.spots, key=natural_key):
        placement = thought.placements[name]
        if len(placement.nodes) < 2:
            continue
        for seat in placement.nodes:
            node = thought.ground.get(seat.n)
            found += [
                f"{name} uses {seat.n} with a short cable: {cable.node_end} - {cable.switch_end} trained "
                f"{cable.rate} of {cable.expected}"
                for cable in (node.path.short if node and node.path else ())
            ]
    return found


def _exposed(thought: Thought) -> list[str]:
    """Models all replicas of which one leaf (node) takes down."""
    by_model: dict[str, list[Placement]] = {}
    for placement in thought.placements.values():
        by_model.setdefault(placement.model, []).append(placement)
    changed = {thought.placements[name].model for name in thought.spots}
    found = []
    for model in sorted(changed, key=natural_key):
        placements = by_model[model]
        spread = _spread(thought, placements)
        if len(placements) < 2 or spread == "none":
            continue
        areas = [_area(thought, placement, spread) for placement in placements]
        shared = frozenset.intersection(*areas)
        if shared:
            kind = "node" if spread == "node" else "leaf"
            found.append(f"all {len(placements)} replicas of {model} depend on the {kind} {min(shared)}")
    return found


def _spread(thought: Thought, placements: Sequence[Placement]) -> str:
    catalogue = thought.asked.site.catalogue
    words = {catalogue.models[one.model].profiles[one.profile].spread.value for one in placements}
    return next((word for word in ("leaf", "node") if word in words), "none")


def _area(thought: Thought, placement: Placement, spread: str) -> frozenset[str]:
    if spread == "node":
        return frozenset(seat.n for seat in placement.nodes)
    nodes = [node for seat in placement.nodes if (node := thought.ground.get(seat.n))]
    return frozenset(thought.ground.leaves[node.leaf] for node in nodes)


def _tight(thought: Thought) -> list[str]:
    """Profiles whose memory fits only by the lower estimate, where this plan starts them."""
    tight: dict[str, str] = {}
    for name in thought.spots:
        placement = thought.placements[name]
        if placement.model in tight:
            continue
        model = thought.asked.site.catalogue.models[placement.model]
        facts = thought.ground[placement.nodes[0].n].facts
        memory = min((gpu.memory_mib for gpu in facts.gpus), default=0) if facts else 0
        found = fit(model.source, model.profiles[placement.profile], memory_mib=memory)
        if found and found.verdict == "tight":
            tight[placement.model] = f"{placement.model} may not fit its GPUs' memory: {found.text}"
    return [tight[model] for model in sorted(tight, key=natural_key)]


def _ports(thought: Thought) -> list[str]:
    """Nodes whose engine ports the kernel may give to others."""
    site = thought.asked.site
    started = {seat.n for name in thought.spots for seat in thought.placements[name].nodes}
    clash: dict[tuple[str, str], list[str]] = {}
    for name in sorted(started, key=natural_key):
        node = thought.ground[name]
        if node.facts:
            ports, (first, last) = site.ports(node.host), node.facts.ephemeral_ports
            if ports.first <= last and first <= ports.last:
                clash.setdefault((str(ports), f"{first}-{last}"), []).append(name)
    return [
        f"the engine ports {ports} of {count(len(names), 'node')} ({folded(names)}) are among those that the kernel "
        f"gives out ({ephemeral}): keep them out of net.ipv4.ip_local_port_range"
        for (ports, ephemeral), names in clash.items()
    ]
