"""The catalogue: which models are served, in how many replicas, and the ways to run each (models.yml)."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from llmgw.base import Document, ModelName, Value, replica_name


class Engine(StrEnum):
    """The engines that llmgw can start; one module of llmgw.engines each."""

    LLAMA_CPP = "llama.cpp"
    SGLANG = "sglang"
    VLLM = "vllm"


class Topology(StrEnum):
    """Whether a replica of several nodes must stay under one leaf, or only should."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class Spread(StrEnum):
    """What the replicas of one model should not share."""

    LEAF = "leaf"
    NODE = "node"
    NONE = "none"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """A replica's nodes, and the GPUs that it takes on each of them. Written `2x8`."""

    nodes: int
    gpus: int

    def __str__(self) -> str:
        return f"{self.nodes}x{self.gpus}"

    @property
    def total(self) -> int:
        return self.nodes * self.gpus


def _shape(written: object) -> Shape:
    if isinstance(written, Shape):
        return written
    match = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,2})", written) if isinstance(written, str) else None
    if not match:
        raise ValueError('should be NODESxGPUS, like "2x8"')
    return Shape(int(match[1]), int(match[2]))


WrittenShape = Annotated[Shape, PlainValidator(_shape), PlainSerializer(str)]


class GpuNeeds(Value):
    """Which GPUs a profile can run on. Everything left out does not matter."""

    memory_gib: int = Field(0, ge=0, description="memory of each GPU, GiB, at least")
    models: tuple[str, ...] = Field(
        (), description="GPU names with * and ?, as nvidia-smi gives them; one must match"
    )
    labels: tuple[str, ...] = Field((), description="labels (llmgw_labels) that a node must have, all of them")


class SecretReference(Value):
    """A value that is written nowhere in the site: the name of one under `secrets` in llmgw.yml."""

    secret: str


class Profile(Value):
    """One way to run a model."""

    engine: Engine
    version: str = Field(description="a version named under engines in llmgw.yml")
    tensor_parallel: int = Field(1, ge=1, le=1024, description="GPUs that share every layer")
    pipeline_parallel: int = Field(1, ge=1, le=1024, description="stages that the layers are cut into")
    shapes: tuple[WrittenShape, ...] = Field(min_length=1, description="NODESxGPUS, the first that fits is taken")
    gpu: GpuNeeds = GpuNeeds()
    topology: Topology = Topology.PREFERRED
    spread: Spread = Spread.LEAF
    args: tuple[str, ...] = Field((), description="arguments for the engine, passed on one by one, no shell")
    env: dict[str, str | SecretReference] = Field({}, description="environment of the engine")
    start_s: int | None = Field(None, ge=1, description="longest time to become ready, seconds")
    drain_s: int | None = Field(None, ge=0, description="longest time to finish requests before a stop, seconds")
    max_in_flight: int | None = Field(None, ge=1, description="requests that one replica may have at a time")

    @model_validator(mode="after")
    def _shapes_hold_the_world(self) -> Self:
        world = self.tensor_parallel * self.pipeline_parallel
        for shape in self.shapes:
            if shape.total != world:
                raise ValueError(
                    f"shape {shape} has {shape.total} GPUs, but tensor_parallel x pipeline_parallel is {world}"
                )
        return self


class WeightsSource(Value):
    """Where a model's weights lie, the same path on every node."""

    path: str = Field(
        pattern=r"^/[^\x00-\x1f]*$", description="a folder (safetensors) or a GGUF file (first shard)"
    )
    bytes: int | None = Field(None, ge=1, description="size of the weights, where it is known")
    config: dict[str, int] | None = Field(
        None, description="layers, hidden, kv_heads, head_dim, vocabulary…: for the check that a profile fits"
    )


class Model(Value):
    """A model and the replicas wanted of it."""

    source: WeightsSource
    aliases: tuple[ModelName, ...] = ()
    replicas: int | dict[str, int] = Field(
        1, description="how many of the default profile, or how many by profile name"
    )
    min_ready: int | None = Field(None, ge=0, description="never fewer ready than this during a change")
    priority: int = Field(50, ge=0, le=100, description="placed before models of a lower number")
    default_profile: str | None = Field(None, description="needed where there are several profiles")
    profiles: dict[ModelName, Profile] = Field(min_length=1)

    @model_validator(mode="after")
    def _profiles_exist(self) -> Self:
        if self.default_profile is None and len(self.profiles) > 1:
            raise ValueError(f"has {len(self.profiles)} profiles and no default_profile")
        counts = self.replicas if isinstance(self.replicas, dict) else {}
        for name in (*counts, *filter(None, [self.default_profile])):
            if name not in self.profiles:
                raise ValueError(f"there is no profile {name!r}; there are {', '.join(self.profiles)}")
        if any(n < 0 or n > 9999 for n in counts.values()) or (
            isinstance(self.replicas, int) and not 0 <= self.replicas <= 9999
        ):
            raise ValueError("replicas should be 0 to 9999")
        return self

    @property
    def default(self) -> str:
        """The name of the profile that a request gets when it names none."""
        return self.default_profile or next(iter(self.profiles))

    def counts(self) -> dict[str, int]:
        """Wanted replicas by profile name, the default profile first."""
        if isinstance(self.replicas, int):
            return {self.default: self.replicas}
        return {name: self.replicas[name] for name in sorted(self.replicas, key=lambda name: name != self.default)}


class Catalogue(Document):
    """models.yml."""

    format: Literal["llmgw-models/1"] = "llmgw-models/1"
    models: dict[ModelName, Model] = {}

    @model_validator(mode="after")
    def _names_are_one_model_each(self) -> Self:
        owner: dict[str, str] = {}
        for name, model in self.models.items():
            for word in (name, *model.aliases):
                if word in owner:
                    raise ValueError(f"{word!r} names both {owner[word]} and {name}")
                owner[word] = name
        return self


@dataclass(frozen=True, slots=True)
class WantedReplica:
    """One replica that the catalogue asks for."""

    name: str
    model: str
    profile: str
    ordinal: int


def wanted_replicas(catalogue: Catalogue) -> list[WantedReplica]:
    """Every replica that the catalogue asks for, in its order: model, default profile first, ordinal from 0."""
    return [
        WantedReplica(
            replica_name(name, None if profile == model.default else profile, ordinal), name, profile, ordinal
        )
        for name, model in catalogue.models.items()
        for profile, number in model.counts().items()
        for ordinal in range(number)
    ]
