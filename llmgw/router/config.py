"""What a router is told when it starts."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from llmgw.serving.catalog import Service


class Policy(StrEnum):
    """How an endpoint is chosen."""

    LEAST = "least"
    TWO = "two"
    SESSION = "session"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each phase of a request may take, seconds. There is none on a whole request."""

    connect_s: float = 3.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0
    head_s: float = 10.0
    keep_alive_s: float = 75.0
    stalled_client_s: float = 60.0
    queue_s: float = 30.0
    drain_s: float = 30.0
    dropped_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one client may take of the router. Sizes in bytes.

    A body must come at `body_rate` bytes a second on average once `head_s` is over. `queue` requests may wait
    for a model's endpoints, all keys together.
    """

    head: int = 32 * 1024
    headers: int = 100
    body: int = 32 << 20
    form: int = 128 << 20
    body_rate: int = 4096
    connections_per_address: int = 4096
    pipelined: int = 8
    queue: int = 256
    write_buffer: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """All of it. Addresses are `host:port`, `unix:/path` or `fd:N`."""

    name: str = "router"
    listen: tuple[str, ...] = ("127.0.0.1:8080",)
    admin_listen: str = ""
    metrics_listen: str = ""
    published: Path | None = None
    static: tuple[Service, ...] = ()
    policy: Policy = Policy.LEAST
    deadlines: Deadlines = field(default_factory=Deadlines)
    limits: Limits = field(default_factory=Limits)
    poll_s: float = 1.0
    slow_start_s: float = 30.0
    affinity_bound: float = 1.25
    default_max_in_flight: int | None = None
    check_s: float = 10.0
    load_s: float = 0.0
    usage: Path | None = None
    access_log: str = ""
    valkey: str = ""
    valkey_timeout_s: float = 0.2
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    engine_ca: Path | None = None
    handover: Path | None = None
    reuse_port: bool = False
    workers: int = 1
    admin_token_file: Path | None = None
    trusted_hosts: tuple[str, ...] = ()
