"""What one round trip to a node brings back, and the document that holds it for a site (llmgw-facts/1)."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from llmgw.base import Document, Guid, HostName, Value


class GpuProcess(Value):
    """A process that holds memory of a GPU."""

    pid: int
    name: str = ""
    memory_mib: int = 0


class Gpu(Value):
    """One GPU as nvidia-smi counts them, from 0."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    pci: str = ""
    numa: int | None = None
    nvlink: tuple[int, ...] = Field((), description="indices of the GPUs that it has NVLink to")
    processes: tuple[GpuProcess, ...] = ()


class Adapter(Value):
    """One port of an InfiniBand adapter, from /sys/class/infiniband."""

    device: str
    port: int
    node_guid: Guid
    port_guid: Guid
    link_layer: str = "InfiniBand"
    state: str = Field("", description="ACTIVE, INIT, DOWN…")
    rate: str = Field("", description='as the kernel writes it: "400 Gb/sec (4X NDR)"')
    lid: int = 0
    pci: str = ""
    numa: int | None = None


class Run(Value):
    """One rank of a replica that llmgw started: its marks, and what became of it."""

    replica: str
    rank: int
    plan: str
    action: str
    spec: str
    state: Literal["running", "stopping", "exited"]
    supervisor: Literal["systemd", "systemd-user", "process"]
    unit: str = Field(description="systemd unit, or the name of the run's folder")
    pid: int | None = None
    gpus: tuple[int, ...] = ()
    port: int | None = Field(None, description="where rank 0 answers; a worker's own port otherwise")
    ports: int = 1
    nodes: tuple[str, ...] = Field((), description="the replica's nodes in rank order")
    started_at: datetime | None = None
    exit_status: str = ""


class Orphan(Value):
    """What is left of a run that should be gone, or a unit of ours that does not say whose it is."""

    unit: str
    replica: str = ""
    pids: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


class InstalledEngine(Value):
    """One version of an engine in its folder."""

    engine: str
    version: str
    path: str
    runnable: bool
    says: str = Field("", description="the first line of its --version")


class Weights(Value):
    """A model's weights on the node."""

    path: str
    bytes: int
    complete: bool = True


class Disk(Value):
    """A file system that llmgw uses, by the folder that it was asked for."""

    path: str
    free_bytes: int
    total_bytes: int


class Rights(Value):
    """What the account that llmgw logs in with may do on a node. `privileged` answers FactsQuery.privileged."""

    root: bool = False
    user: str = ""
    account_known: bool = True
    run_dir_writable: bool = True
    privileged: tuple[bool, ...] = ()


class NodeFacts(Value):
    """What a node said of itself at `seen_at`."""

    seen_at: datetime
    hostname: str = ""
    boot_id: str = ""
    python: str = ""
    clock_skew_s: int = Field(0, description="the node's clock less the control host's, whole seconds")
    supervisor: Literal["systemd", "systemd-user", "process"]
    cpus: int = 0
    memory_mib: int = 0
    gpus: tuple[Gpu, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    listen_ports: tuple[int, ...] = ()
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    runs: tuple[Run, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    engines: tuple[InstalledEngine, ...] = ()
    weights: tuple[Weights, ...] = ()
    disks: tuple[Disk, ...] = ()
    slurm: str = Field("", description="the node's state in Slurm, empty where there is no Slurm")
    rights: Rights = Rights()
    problems: tuple[str, ...] = Field((), description="what could not be found out, in words")


class Facts(Document):
    """The last facts of every node that ever answered, and who did not answer the last time."""

    format: Literal["llmgw-facts/1"] = "llmgw-facts/1"
    asked_at: datetime
    nodes: dict[HostName, NodeFacts] = {}
    silent: dict[HostName, datetime | None] = Field(
        {}, description="nodes that did not answer when last asked, and since when they have not (None: never did)"
    )
