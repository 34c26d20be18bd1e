"""The site's settings (llmgw.yml) and what the inventory says of a host (its llmgw_ variables)."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, model_validator

from llmgw.base import Document, HostName, ModelName, Value
from llmgw.site.catalogue import Engine

Supervisor = Literal["auto", "systemd", "systemd-user", "process"]


@dataclass(frozen=True, slots=True)
class PortRange:
    """TCP ports, both ends included. Written `18000-18099`."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last


def _ports(written: object) -> PortRange:
    if isinstance(written, PortRange):
        return written
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", written) if isinstance(written, str) else None
    if not match or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError("should be FIRST-LAST, two rising ports from 1024 to 65535")
    return PortRange(int(match[1]), int(match[2]))


WrittenPorts = Annotated[PortRange, PlainValidator(_ports), PlainSerializer(str)]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$")]


class Groups(Value):
    """The inventory groups that llmgw reads."""

    gpu_nodes: str = "gpu_nodes"
    routers: str = "routers"


_SCAN_FROM = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[A-Za-z0-9_.-]+(/[1-9][0-9]{0,2})?)?")


def _scan_from(written: str) -> str:
    if not _SCAN_FROM.fullmatch(written):
        raise ValueError("should be NODE or NODE:DEVICE/PORT, like gpu01:mlx5_0/1")
    return written


ScanFrom = Annotated[str, AfterValidator(_scan_from)]


class FabricSettings(Value):
    """One physical fabric: its part, and where a scan of it should start."""

    role: Literal["compute", "storage"] = Field(
        "compute", description="replicas are never placed by storage fabrics"
    )
    scan_from: tuple[ScanFrom, ...] = Field((), description="NODE or NODE:DEVICE/PORT, tried in this order")


class ScanSettings(Value):
    """How the fabrics are scanned, and how much is remembered."""

    options: tuple[str, ...] = Field((), description="more options for ibnetdiscover")
    sudo: bool = Field(default=True, description="run it through sudo -n where the account is not root")
    timeout_s: int = Field(120, ge=1, le=3600)
    keep: int = Field(500, ge=2, description="scans remembered for each fabric; older ones are dropped")
    keep_days: int = Field(90, ge=1, description="scans older than this are dropped, but for the last two")


class EngineVersion(Value):
    """Where one version of an engine is installed, the same folder on every node."""

    path: AbsolutePath


class Timeouts(Value):
    """How long steps may take, seconds. A profile's own start_s and drain_s win."""

    start_s: int = Field(1200, ge=1, description="from the start of an engine to its first token")
    drain_s: int = Field(600, ge=0, description="for running requests to finish before a stop")
    stop_s: int = Field(60, ge=1, description="from SIGTERM to SIGKILL")
    router_s: int = Field(15, ge=1, description="for every router to load what was published")
    connect_s: int = Field(10, ge=1, description="for SSH to answer")
    step_s: int = Field(120, ge=5, description="for one module on one node")


class Backoff(Value):
    """How long reconcile waits before it starts a failed replica again, seconds."""

    base_s: int = Field(10, ge=1)
    max_s: int = Field(900, ge=1)
    reset_s: int = Field(1800, ge=1, description="quiet time after which the wait is base_s again")


class SecretSource(Value):
    """Where the control host reads a secret: a file, a variable of its environment, or one of the inventory."""

    file: str | None = None
    env: str | None = None
    inventory: str | None = Field(None, description="a host variable, for instance one that Ansible vault keeps")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(source is not None for source in (self.file, self.env, self.inventory)) != 1:
            raise ValueError("should have exactly one of file, env and inventory")
        return self


class RouterSettings(Value):
    """What routers are told."""

    published: AbsolutePath = Field("/var/lib/llmgw/published", description="the folder on every router host")
    max_in_flight: int | None = Field(None, ge=1, description="requests that one replica may have at a time")
    keys_required: bool = Field(
        default=True, description="refuse requests without a key, once llmgw keys has made one"
    )


class SiteSettings(Document):
    """llmgw.yml."""

    format: Literal["llmgw-site/1"] = "llmgw-site/1"
    name: ModelName
    groups: Groups = Groups()
    fabrics: dict[ModelName, FabricSettings] = {}
    scan: ScanSettings = ScanSettings()
    engines: dict[Engine, dict[str, EngineVersion]] = {}
    ports: WrittenPorts = Field(PortRange(18000, 18099), description="TCP ports that engines may listen on")
    account: str = Field(
        "llmgw", pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="the account that engines run as"
    )
    run_dir: AbsolutePath = Field(
        "/var/lib/llmgw/runs", description="start scripts, and logs where systemd is not"
    )
    weights_dirs: tuple[AbsolutePath, ...] = Field(("/models",), description="where facts look for weights")
    timeouts: Timeouts = Timeouts()
    backoff: Backoff = Backoff()
    unreachable_after_s: int = Field(90, ge=1, description="silence after which a node's endpoints are withdrawn")
    lost_after_s: int = Field(900, ge=1, description="silence after which its replicas may run elsewhere")
    secrets: dict[ModelName, SecretSource] = {}
    router: RouterSettings = RouterSettings()
    prometheus: str | None = Field(None, pattern=r"^https?://", description="where history is asked for")


class HostVariables(Value):
    """A host's llmgw_ variables, without that prefix."""

    address: str | None = Field(None, description="where its engines listen; else ansible_host, else its name")
    supervisor: Supervisor = "auto"
    labels: tuple[str, ...] = ()
    ports: WrittenPorts | None = None
    socket_interface: str | None = Field(None, description="NCCL's and Gloo's network interface")
    ib_hca: str | None = Field(None, description="NCCL_IB_HCA as it stands, instead of the one from the map")
    env: dict[str, str] = {}
    account: str | None = None
    run_dir: AbsolutePath | None = None
    sysfs_infiniband: AbsolutePath = "/sys/class/infiniband"
    nvidia_smi: str = "nvidia-smi"
    ibnetdiscover: str = "ibnetdiscover"
    iblinkinfo: str = "iblinkinfo"
    published: AbsolutePath | None = Field(None, description="a router host's own published folder")


class InventoryHost(Value):
    """One host of the inventory: its name, its llmgw_ variables, and how Ansible reaches it."""

    name: HostName
    variables: HostVariables
    connection: dict[str, str | int | bool]
