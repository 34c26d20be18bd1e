"""Kinds of nodes, and which kinds a profile can run on. Nodes of one kind are alike in all that a profile asks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from llmgw.base import natural_key
from llmgw.engines import complaints
from llmgw.engines.fit import fit
from llmgw.plan.nodes import Ground, SiteNode
from llmgw.site import Engine, GpuNeeds, Model, Profile, Site


class Reason(StrEnum):
    """Why a node cannot take a replica, in the words of an explanation."""

    CORDONED = "cordoned"
    DRAINING = "drained"
    SILENT = "not answering"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    UNKNOWN = "never answered"
    SLURM = "in Slurm's hands"
    GPU_MODEL = "with other GPUs"
    GPU_MEMORY = "with too little GPU memory"
    GPU_COUNT = "with too few GPUs"
    LABELS = "without the labels"
    ENGINE = "without the engine"
    WEIGHTS = "without the weights"
    MEMORY_FIT = "whose GPUs cannot hold it"
    ARGUMENTS = "because its arguments cannot be given"
    BUSY = "without enough free GPUs"
    PORTS = "without free ports"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """`engines` and `weights` are those of the site's that the nodes have."""

    memory_mib: int
    gpu_models: tuple[str, ...]
    gpus: int
    labels: tuple[str, ...]
    engines: tuple[tuple[Engine, str], ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kind cannot run a profile. `detail` says it with names and figures."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Kinds:
    """All kinds, those of less memory first; each node's kind by its number (-1: nothing is known of it)."""

    kinds: tuple[NodeKind, ...]
    of: tuple[int, ...]


def kinds_of(site: Site, ground: Ground) -> Kinds:
    """The kinds of the site's nodes."""
    sources = frozenset(model.source.path for model in site.catalogue.models.values())
    paths = {
        (engine, version): installed.path
        for engine, versions in site.settings.engines.items()
        for version, installed in versions.items()
    }
    seen: dict[NodeKind, int] = {}
    weights: dict[int, tuple[str, ...]] = {}  # by the identity of what facts share: most nodes have the same ones
    of = []
    for node in ground.nodes:
        if node.facts and id(node.facts.weights) not in weights:
            found = (one.path for one in node.facts.weights if one.complete and one.path in sources)
            weights[id(node.facts.weights)] = tuple(sorted(found))
        kind = _kind(node, weights, paths)
        of.append(seen.setdefault(kind, len(seen)) if kind else -1)
    order = sorted(seen, key=_kind_key)
    number = {seen[kind]: place for place, kind in enumerate(order)}
    return Kinds(tuple(order), tuple(number.get(kind, -1) for kind in of))


def _kind_key(kind: NodeKind) -> tuple[object, ...]:
    return (
        kind.memory_mib, kind.gpus, tuple(map(natural_key, kind.gpu_models)), kind.labels, kind.engines, kind.weights,
    )  # fmt: skip


def _kind(
    node: SiteNode, weights: Mapping[int, tuple[str, ...]], paths: Mapping[tuple[Engine, str], str]
) -> NodeKind | None:
    facts = node.facts
    if facts is None:
        return None
    runnable = {(one.engine, one.version, one.path) for one in facts.engines if one.runnable}
    return NodeKind(
        memory_mib=min((gpu.memory_mib for gpu in facts.gpus), default=0),
        gpu_models=tuple(sorted({gpu.model for gpu in facts.gpus})),
        gpus=len(facts.gpus),
        labels=tuple(sorted(set(node.host.variables.labels))),
        engines=tuple(key for key, path in sorted(paths.items()) if (key[0].value, key[1], path) in runnable),
        weights=weights[id(facts.weights)],
    )


class Eligibility:
    """Which kinds each profile can run on. Answers are remembered: there are few kinds and few profiles."""

    def __init__(self, site: Site, ground: Ground) -> None:
        self.catalogue = site.catalogue
        self._site = site
        self._ground = ground
        self._known: dict[tuple[str, str], dict[int, Refusal]] = {}

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of the site's nodes; nobody asks where all that is wanted runs."""
        return kinds_of(self._site, self._ground)

    def refusals(self, model: str, profile: str) -> dict[int, Refusal]:
        """Why each kind that cannot run the profile cannot."""
        key = model, profile
        if key not in self._known:
            self._known[key] = {
                number: refusal
                for number, kind in enumerate(self.kinds.kinds)
                if (refusal := refuse(self.catalogue.models[model], profile, kind))
            }
        return self._known[key]

    def eligible(self, model: str, profile: str) -> frozenset[int]:
        """The kinds that can run the profile; none where nothing could start it anywhere."""
        if complaints(self.catalogue.models[model].profiles[profile]):
            return frozenset()
        refused = self.refusals(model, profile)
        return frozenset(number for number in range(len(self.kinds.kinds)) if number not in refused)


def refuse(model: Model, profile_name: str, kind: NodeKind) -> Refusal | None:
    """The first reason for which nodes of a kind cannot run the profile; None where they can."""
    profile = model.profiles[profile_name]
    wrong = _gpus(profile.gpu, kind)
    if wrong:
        return wrong
    least = min(shape.gpus for shape in profile.shapes)
    if kind.gpus < least:
        return Refusal(Reason.GPU_COUNT, f"{kind.gpus} of {least}")
    if (profile.engine, profile.version) not in kind.engines:
        return Refusal(Reason.ENGINE, f"{profile.engine} {profile.version}")
    if model.source.path not in kind.weights:
        return Refusal(Reason.WEIGHTS, model.source.path)
    return _fit(model, profile, kind)


def _gpus(needs: GpuNeeds, kind: NodeKind) -> Refusal | None:
    if needs.models and not all(any(matches(one, name) for one in needs.models) for name in kind.gpu_models):
        return Refusal(Reason.GPU_MODEL, ", ".join(kind.gpu_models))
    if kind.memory_mib << 20 < needs.memory_gib * 10**9:
        return Refusal(Reason.GPU_MEMORY, f"{kind.memory_mib / 1024:.0f} GiB of {needs.memory_gib}")
    missing = sorted(set(needs.labels) - set(kind.labels))
    return Refusal(Reason.LABELS, ", ".join(missing)) if missing else None


def matches(pattern: str, name: str) -> bool:
    """Whether a GPU's name matches a pattern with * and ?, whatever the case."""
    words = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(words, name, re.IGNORECASE | re.DOTALL) is not None


def _fit(model: Model, profile: Profile, kind: NodeKind) -> Refusal | None:
    found = fit(model.source, profile, memory_mib=kind.memory_mib)
    return Refusal(Reason.MEMORY_FIT, found.text) if found and found.verdict == "no" else None
