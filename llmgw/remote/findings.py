"""What is wrong with a node, or soon will be, and the next command for each. Pure: facts in, findings out."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from llmgw.base import count, size
from llmgw.observed import NodeFacts
from llmgw.remote.playbook import PLAYBOOKS
from llmgw.remote.steps import account, run_dir
from llmgw.site import InventoryHost, Site

SKEW_S = 5
FREE_BYTES = 10 << 30
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one host, in words, and what to do about it. An error keeps engines from running there."""

    host: str
    severity: Severity
    what: str
    next: str = ""


def node_findings(
    site: Site, node: InventoryHost, facts: NodeFacts, *, privileged: Sequence[Sequence[str]]
) -> list[Finding]:
    """All that is to be said of a node that answered. `privileged`: the commands that it was asked about."""
    found = [
        *_rights(site, node, facts, privileged),
        *_engines(site, facts),
        *_machine(site, node, facts),
        *(("warning", problem, "") for problem in facts.problems),
    ]
    return [Finding(node.name, severity, what, next_) for severity, what, next_ in found]


_Said = Iterator[tuple[Severity, str, str]]


def _rights(site: Site, node: InventoryHost, facts: NodeFacts, privileged: Sequence[Sequence[str]]) -> _Said:
    rights = facts.rights
    prepare = (
        f"llmgw check --sudoers {rights.user or 'USER'} -o json > prepare.json; ansible-playbook -i hosts.yml "
        f"{PLAYBOOKS}/node_prepare.yml -l {node.name} -e @prepare.json"
    )
    if facts.supervisor == "systemd" and not rights.account_known:
        yield "error", f"there is no account {account(site, node)}", prepare
    if not (rights.root or rights.run_dir_writable):
        yield "error", f"{run_dir(site, node)} is not there or not {rights.user}'s to write", prepare
    if facts.supervisor == "systemd" and not rights.root:
        denied = [argv for argv, allowed in zip(privileged, rights.privileged, strict=False) if not allowed]
        if denied:
            example = shlex.join(denied[0])
            yield (
                "error",
                f"{rights.user} may not run {count(len(denied), 'command')} through sudo -n: {example[:80]}…",
                f"llmgw check --sudoers {rights.user}  prints the lines for /etc/sudoers.d",
            )


def _engines(site: Site, facts: NodeFacts) -> _Said:
    wanted = {
        (profile.engine.value, profile.version)
        for model in site.catalogue.models.values()
        for profile in model.profiles.values()
    }
    installed = {(engine.engine, engine.version): engine for engine in facts.engines}
    for engine, version in sorted(wanted):
        found = installed.get((engine, version))
        if found is None:
            yield (
                "warning",
                f"{engine} {version} is not installed",
                "docs/engines.md says what its folder must hold",
            )
        elif not found.runnable:
            yield "error", f"{engine} {version}: {found.path} is there, but its program is not executable", ""
    present = {weights.path: weights for weights in facts.weights}
    for name, model in site.catalogue.models.items():
        weights = present.get(model.source.path)
        if weights is None:
            yield "warning", f"the weights of {name} are not there: {model.source.path}", ""
        elif not weights.complete:
            yield "error", f"the weights of {name} are not complete: {model.source.path}", ""


def _machine(site: Site, node: InventoryHost, facts: NodeFacts) -> _Said:
    if not facts.gpus:
        yield "error", f"no GPU: {node.variables.nvidia_smi} shows none", ""
    if abs(facts.clock_skew_s) > SKEW_S:
        yield "warning", f"its clock is {facts.clock_skew_s:+d} s off", "chronyc tracking, on the node"
    ports, low, high = site.ports(node), *facts.ephemeral_ports
    if ports.first <= high and low <= ports.last:
        yield (
            "warning",
            f"ports {ports} overlap the kernel's own, {low}-{high}: a client's socket can take an engine's port",
            "move ports in llmgw.yml, or net.ipv4.ip_local_port_range",
        )
    for disk in facts.disks:
        if disk.free_bytes < FREE_BYTES and disk.free_bytes < disk.total_bytes // 20:
            yield "warning", f"{disk.path} has {size(disk.free_bytes)} of {size(disk.total_bytes)} left", ""
    infiniband = [adapter for adapter in facts.adapters if adapter.link_layer == "InfiniBand"]
    for adapter in infiniband:
        if adapter.state != "ACTIVE":
            yield "warning", f"{adapter.device} port {adapter.port} is {adapter.state or 'in no known state'}", ""
    if facts.slurm and "RESERVED" not in facts.slurm:
        yield (
            "warning",
            f"Slurm has it as {facts.slurm}, and may start jobs there",
            f"scontrol create reservation Nodes={node.name} Users=root Flags=MAINT StartTime=now Duration=infinite",
        )


def unreachable_finding(host: str, why: str, *, enrol: str = "") -> Finding:
    """A host that did not answer, and what to try, by what ssh said. `enrol`: the command that gets its host key."""
    lower = why.lower()
    if is_about_host_key(why):
        changed = "it changed: find out why. Then  ssh-keygen -R …  and  " if "has changed" in lower else ""
        keyscan = enrol or f"ssh-keyscan -H {host} >> ~/.ssh/known_hosts"
        next_ = f"{changed}{keyscan}  after comparing the key with the node's own"
    elif "permission denied" in lower:
        next_ = f"ssh -v {host}  shows which keys are offered"
    elif "interpreter" in lower or "python" in lower:
        next_ = "install Python 3.8 or later, or name it in ansible_python_interpreter"
    else:
        next_ = f"ssh {host} true"
    return Finding(host, "error", why.splitlines()[-1][:300] if why else "did not answer", next_)


def is_about_host_key(why: str) -> bool:
    """Whether ssh refused a host because of its key: unknown, or not the known one."""
    return "host key" in why.lower() or "host identification" in why.lower()
