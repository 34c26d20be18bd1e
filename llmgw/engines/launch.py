"""What every engine is asked and what it answers: a shard of a replica in, a Launch out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from llmgw.base import Value
from llmgw.site import Profile, Shape

ENGINE_KEY = "engine-key"
"""The reference, in a launch, to the key that llmgw makes for each replica."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One node of a replica, in rank order: where its rank listens."""

    node: str
    address: str
    port: int

    def authority(self, offset: int = 0) -> str:
        """`address:port` as URLs and rendezvous take it, IPv6 in brackets."""
        where = f"[{self.address}]" if ":" in self.address else self.address
        return f"{where}:{self.port + offset}"


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank of a replica: all that its start depends on.

    `gpus` are the node's GPU indices that it takes. `peers` are all ranks, its own among them. `network` is the
    environment that the fabric map and the inventory give this rank (NCCL, Gloo). `names` are what requests may
    call the model, its own name first. `run_folder` belongs to the engine's account and lives on the node.
    """

    replica: str
    model: str
    profile: Profile
    shape: Shape
    weights: str
    engine_path: str
    rank: int
    peers: tuple[Peer, ...]
    gpus: tuple[int, ...]
    network: Mapping[str, str]
    drain_s: int
    start_s: int
    run_folder: str
    names: tuple[str, ...]

    @property
    def own(self) -> Peer:
        return self.peers[self.rank]

    @property
    def head(self) -> Peer:
        return self.peers[0]


class LoadProbe(Value):
    """Where an engine says how many requests it has: a page of Prometheus metrics and the names that count."""

    path: str = "/metrics"
    running: str
    waiting: str
    tokens: str = Field("", description="the counter of tokens made: it moves while the engine makes progress")


class Launch(Value):
    """How one rank is started: by exec of `argv`, no shell, with `env` and nothing else of ours.

    `secret_env` and `secret_files` hold references to secrets, resolved on the control host just before the start
    and never written down there. A secret file's text has `{secret}` where the secret goes; it is written beside
    the run, mode 0600, under the name that is its key.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    secret_env: dict[str, str] = Field(default_factory=dict)
    secret_files: dict[str, tuple[str, str]] = Field(default_factory=dict)
    port: int
    ready: Literal["openai", "listening", "running"]
    """openai: the model is listed and one token comes back; listening: the port is open; running: the process
    lives (a worker rank that listens nowhere, and is ready when its head answers)."""
    load: LoadProbe | None = None


class EngineModule(Protocol):
    """What each engine's module gives. All of it is pure."""

    LOAD: LoadProbe
    """Where a head of this engine says how busy it is."""

    CHECKS_NAMES: bool
    """Whether it refuses a request whose `model` it was not told at its start."""

    RESERVED: frozenset[str]
    """Arguments that llmgw gives by itself, so that a profile may not."""

    def launch(self, shard: Shard) -> Launch: ...

    def ports_needed(self, rank: int, nodes: int) -> int:
        """TCP ports, one after the other, that this rank of a replica of so many nodes takes; at least 1."""
        ...
