"""What the playbooks are given: one type for each role, whose fields are exactly those of its argument_specs."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from llmgw.base import Value
from llmgw.site import Engine, InventoryHost, Site

PROGRAMS: dict[Engine, str] = {
    Engine.LLAMA_CPP: "bin/llama-server",
    Engine.SGLANG: "bin/python",
    Engine.VLLM: "bin/vllm",
}
"""What must be executable in an engine's folder."""


@dataclass(frozen=True, slots=True)
class FactsQuery:
    """Role facts: what a node is asked."""

    run_dir: str
    supervisor: str
    sysfs_infiniband: str
    nvidia_smi: str
    engines: tuple[dict[str, str], ...]
    weights: tuple[str, ...]
    disks: tuple[str, ...]
    account: str
    privileged: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class StartRank:
    """Role engine_start: one rank to start. The secret fields hold the secrets themselves."""

    unit: str
    replica: str
    rank: int
    plan: str
    action: str
    spec: str
    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    port: int
    ports: int
    argv: tuple[str, ...]
    env: dict[str, str]
    stop_s: int
    run_dir: str
    account: str
    supervisor: str
    nvidia_smi: str
    secret_env: dict[str, str] = field(default_factory=dict, repr=False)
    secret_files: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class StopRank:
    """Role engine_stop: one rank to stop; `plan` and `action` empty for whatever run there is of the replica."""

    unit: str
    replica: str
    plan: str
    action: str
    force: bool
    wait_s: int
    run_dir: str
    supervisor: str
    nvidia_smi: str


@dataclass(frozen=True, slots=True)
class ProbeRank:
    """Role engine_probe: one rank to ask."""

    unit: str
    ready: Literal["openai", "listening", "running", "none"]
    address: str
    port: int
    model: str
    load: dict[str, str]
    wait_s: int
    run_dir: str
    supervisor: str
    key: str = field(default="", repr=False)


class PublishedText(Value):
    """One document to publish."""

    name: str
    text: str
    mode: str = "0644"


@dataclass(frozen=True, slots=True)
class PublishDocuments:
    """Role publish: the documents of one router host; none to read its router's status only."""

    folder: str
    files: tuple[dict[str, str], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FabricScanPort:
    """Role fabric_scan: the port to scan from."""

    device: str
    port: int
    ibnetdiscover: str
    iblinkinfo: str
    options: tuple[str, ...]
    sudo: bool
    timeout_s: int


Step = FactsQuery | StartRank | StopRank | ProbeRank | PublishDocuments | FabricScanPort


def plain(step: Step) -> dict[str, Any]:
    """The step as the role gets it."""
    return asdict(step)


def run_dir(site: Site, node: InventoryHost) -> str:
    """The folder of the node's runs."""
    return node.variables.run_dir or site.settings.run_dir


def account(site: Site, node: InventoryHost) -> str:
    """The account that engines run as on the node."""
    return node.variables.account or site.settings.account


def facts_query(site: Site, node: InventoryHost, *, privileged: tuple[tuple[str, ...], ...] = ()) -> FactsQuery:
    """What to ask a node: the site's engines, the catalogue's weights, the folders that fill up.

    `privileged` are commands of which it is asked whether they may be run as root.
    """
    engines = tuple(
        {"engine": engine.value, "version": version, "path": installed.path, "program": PROGRAMS[engine]}
        for engine, versions in site.settings.engines.items()
        for version, installed in versions.items()
    )
    return FactsQuery(
        run_dir=run_dir(site, node),
        supervisor=node.variables.supervisor,
        sysfs_infiniband=node.variables.sysfs_infiniband,
        nvidia_smi=node.variables.nvidia_smi,
        engines=engines,
        weights=tuple(sorted({model.source.path for model in site.catalogue.models.values()})),
        disks=(run_dir(site, node), *site.settings.weights_dirs),
        account=account(site, node),
        privileged=privileged,
    )


def scan_port(site: Site, node: InventoryHost, device: str, port: int) -> FabricScanPort:
    """A scan from one port of a node, with the programs that its inventory names."""
    scan = site.settings.scan
    return FabricScanPort(
        device=device,
        port=port,
        ibnetdiscover=node.variables.ibnetdiscover,
        iblinkinfo=node.variables.iblinkinfo,
        options=scan.options,
        sudo=scan.sudo,
        timeout_s=scan.timeout_s,
    )
