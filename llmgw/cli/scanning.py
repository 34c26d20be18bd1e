"""The round of scans: every physical fabric of the inventory through one node each, until no port is unseen."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from llmgw.base import LlmgwError, count, visible
from llmgw.cli.asking import ask_nodes
from llmgw.cli.maps import Ground, Kept, earlier_domains, ground, inventory_ports, keep, mapped, switches_by_fabric
from llmgw.cli.workspace import Workspace, say
from llmgw.fabric import (
    Fabric,
    InventoryPort,
    ScanSource,
    candidates,
    identify,
    parse_source,
    read,
    uncovered,
)
from llmgw.remote.playbook import Session
from llmgw.remote.scanning import ScanText, run_scans
from llmgw.store.maps import drop_old_scans, fabrics, scans
from llmgw.store.nodes import load_facts

FAILURES = 8
"""So many ports in a row that give no map end a round: something is wrong that more ports will not mend."""


@dataclass(slots=True)
class Round:
    """A round of scans under way."""

    workspace: Workspace
    session: Session
    under: Ground
    only: frozenset[str]
    kept: list[Kept] = field(default_factory=list)
    tried: set[ScanSource] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    @property
    def seen(self) -> list[Fabric]:
        return [kept.fabric for kept in self.kept if kept.fabric.verdict.state != "rejected"]

    def settle(self, text: ScanText) -> None:
        """Read what came from a port, and remember it under the fabric's name."""
        if text.failed:
            self.failures.append(f"{text.source}: {text.failed}")
            say(f"{text.source}: {visible(text.failed)}")
            return
        state = self.workspace.store
        reading = read(text.raw, stderr=text.stderr)
        fabric = mapped(reading, self.under)
        source, named = self._configured(fabric, text.source)
        who = identify(fabric, switches_by_fabric(state), source=source, settings=named)
        if fabric.verdict.state == "rejected":
            self._rejected(text, fabric, who.name if not who.is_new else self._expected(text.source))
            return
        fabric = mapped(reading, self.under, earlier_domains(state, who.name))
        self.kept.append(self._keep(text, fabric, who.name))
        for other in who.others:
            say(f"{who.name}: has switches of {other} too: the two fabrics are joined, or switches were moved")

    def _configured(self, fabric: Fabric, source: ScanSource) -> tuple[ScanSource, dict[str, tuple[str, ...]]]:
        """What the settings say of a fabric: the one that has a port by which they name it, wherever it was scanned
        from; else all that they name by a node alone."""
        settings = self.under.settings
        named = {name: one.scan_from for name, one in settings.fabrics.items()} if settings else {}
        seen = {adapter.port_guid for adapter in fabric.adapters.values()}
        inside = {port.source for port in self.under.ports if port.port_guid in seen}
        for name, sources in named.items():
            for written in sources:
                if (port := parse_source(written)).device and port in inside:
                    return port, {name: sources}
        alone = {name: tuple(one for one in sources if ":" not in one) for name, sources in named.items()}
        return source, {name: alone[name] for name, sources in named.items() if alone[name] or not sources}

    def _keep(self, text: ScanText, fabric: Fabric, name: str) -> Kept:
        return keep(
            self.workspace.store,
            name,
            fabric,
            self.under,
            source=str(text.source),
            raw=text.raw,
            stderr=text.stderr,
            linkinfo=text.linkinfo,
        )

    def _rejected(self, text: ScanText, fabric: Fabric, name: str) -> None:
        """A scan that changes nothing; it is kept with its fabric where that is known, to be looked at."""
        where = f" (line {fabric.verdict.line})" if fabric.verdict.line else ""
        self.failures.append(f"{text.source}: rejected: {fabric.verdict.reason}{where}")
        say(f"{text.source}: rejected: {visible(fabric.verdict.reason)}{where}")
        if name:
            self._keep(text, fabric, name)

    def _expected(self, source: ScanSource) -> str:
        """The remembered fabric that was last scanned from there; empty where none was."""
        for fabric in fabrics(self.workspace.store):
            if any(scan.source == str(source) for scan in scans(self.workspace.store, fabric.name, limit=1)):
                return fabric.name
        return ""


def scan_all(workspace: Workspace, only: Collection[str]) -> Round:
    """Scan the named fabrics, or all: known and configured ones first, then ports that no scan has seen.

    The nodes are asked for their adapters first, so that every port has its owner and its state.
    """
    site = workspace.site
    ask_nodes(workspace, site.nodes)
    facts = load_facts(workspace.store, [node.name for node in site.nodes])
    answering = {name for name in facts.nodes if name not in facts.silent}
    ports = tuple(port for port in inventory_ports(facts) if port.node in answering)
    under = Ground(tuple(node.name for node in site.nodes), inventory_ports(facts), site.settings)
    with workspace.session() as session:
        round_ = Round(workspace, session, under, frozenset(only))
        _known_fabrics(round_, ports)
        if not only:
            _unseen_ports(round_, ports)
    _drop_old(workspace)
    return round_


def _known_fabrics(round_: Round, ports: Sequence[InventoryPort]) -> None:
    """A scan of each fabric that is configured or remembered, from its preferred port or the last one that worked.

    First one port of each fabric, all at once, a node for each; then port by port where that gave nothing.
    """
    wanted = _wanted(round_)
    first: dict[str, ScanSource] = {}
    for preferred in wanted.values():
        source = next((one for one in _sources(round_, ports, preferred) if one.node not in first), None)
        if source is not None:
            first[source.node] = source
    _scan(round_, *first.values())
    for name, preferred in wanted.items():
        for source in _sources(round_, ports, preferred):
            if any(kept.name == name for kept in round_.kept):
                break
            _scan(round_, source)


def _wanted(round_: Round) -> dict[str, Sequence[str]]:
    """The fabrics to look for, each with the sources to begin with."""
    settings = round_.under.settings
    wanted: dict[str, Sequence[str]] = {}
    for name, one in (settings.fabrics if settings else {}).items():
        if one.scan_from:
            wanted[name] = one.scan_from
    for fabric in fabrics(round_.workspace.store):
        last = [
            scan.source
            for scan in scans(round_.workspace.store, fabric.name, limit=20)
            if scan.verdict != "rejected"
        ]
        wanted[fabric.name] = [*wanted.get(fabric.name, ()), *dict.fromkeys(last)]
    return {name: sources for name, sources in wanted.items() if not round_.only or name in round_.only}


def _sources(round_: Round, ports: Sequence[InventoryPort], preferred: Sequence[str]) -> Iterator[ScanSource]:
    """The preferred ports that are there and active, then any other active port, as long as few of them fail."""
    active = {port.source for port in ports if port.state == "ACTIVE"}
    for source in candidates(ports, preferred=preferred, tried=round_.tried):
        if len(round_.failures) >= FAILURES:
            return
        if source in active and source not in round_.tried and not _is_seen(round_, ports, source):
            yield source


def _is_seen(round_: Round, ports: Sequence[InventoryPort], source: ScanSource) -> bool:
    """Whether a scan of this round has that port already."""
    return source not in {port.source for port in uncovered(ports, round_.seen)}


def _unseen_ports(round_: Round, ports: Sequence[InventoryPort]) -> None:
    """Go on with active ports that no scan has seen; each is on another fabric than those."""
    while len(round_.failures) < FAILURES:
        left = [port for port in uncovered(ports, round_.seen) if port.state == "ACTIVE"]
        source = next(iter(candidates(left, tried=round_.tried)), None)
        if source is None:
            return
        _scan(round_, source)


def _scan(round_: Round, *sources: ScanSource) -> None:
    round_.tried.update(sources)
    for text in run_scans(round_.session, round_.workspace.site, sources) if sources else ():
        round_.settle(text)


def _drop_old(workspace: Workspace) -> None:
    scan = workspace.settings.scan
    drop_old_scans(workspace.store, keep=scan.keep, keep_days=scan.keep_days, now=datetime.now(UTC))


def scan_text(workspace: Workspace, name: str, raw: str, *, source: str) -> Kept:
    """Remember a text that was not scanned by llmgw as a scan of the named fabric. LlmgwError where it is rejected."""
    under = ground(workspace)
    state = workspace.store
    fabric = mapped(read(raw), under, earlier_domains(state, name))
    if fabric.verdict.state == "rejected":
        where = f"{source}:{fabric.verdict.line}" if fabric.verdict.line else source
        known = any(one.name == name for one in fabrics(state))
        if known:
            keep(state, name, fabric, under, source=source, raw=raw, stderr="", linkinfo="")
        raise LlmgwError(f"{where}: rejected: {fabric.verdict.reason}", hint="the map stays as it was" * known)
    return keep(state, name, fabric, under, source=source, raw=raw, stderr="", linkinfo="")


def spoken(kept: Kept) -> str:
    """One line on what a scan found."""
    assert kept.topology is not None
    figures = kept.topology.summary
    parts = [
        count(figures.switches, "switch", "switches")
        + f" ({figures.leaves} leaves, {figures.spines} spines, {figures.cores} cores)",
        count(figures.adapters, "adapter"),
        count(figures.nodes, "node"),
        count(figures.links, "cable"),
        f"{figures.degraded} short",
        f"{figures.off_rail} off rail",
    ]
    verdict = kept.fabric.verdict
    state = "complete" if verdict.state == "complete" else f"{verdict.state}: {visible(verdict.reason)}"
    return f"{kept.name}: {', '.join(parts)}; {state}"
