"""The round of scans: every physical fabric of the inventory through one node each, until no port is unseen."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from llmgw.base import LlmgwError, UsageError, count, near, visible
from llmgw.cli.asking import ask_nodes
from llmgw.cli.keeping import Brought, Kept, keep
from llmgw.cli.maps import Ground, earlier_domains, ground, inventory_ports, mapped
from llmgw.cli.workspace import Workspace, say
from llmgw.fabric import (
    Fabric,
    InventoryPort,
    ScanSource,
    candidates,
    change_lines,
    claims,
    identify,
    preferred_sources,
    read,
    uncovered,
)
from llmgw.remote.playbook import Session
from llmgw.remote.scanning import ScanText, run_scans
from llmgw.site import ScanSettings, unknown_scanners
from llmgw.store.known import devices
from llmgw.store.maps import drop_old_scans, fabrics, rename_fabric, scans
from llmgw.store.nodes import load_facts

FAILURES = 8
"""So many ports that give no map end a round: something is wrong that more ports will not mend."""
SHOWN_CHANGES = 40


@dataclass(slots=True)
class Round:
    """A round of scans under way. No scan is begun after `until` (time.monotonic)."""

    workspace: Workspace
    session: Session
    under: Ground
    only: frozenset[str]
    until: float
    tell: Callable[[str], None] = say
    answered: int = 0
    kept: list[Kept] = field(default_factory=list)
    tried: set[ScanSource] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    @property
    def seen(self) -> list[Fabric]:
        return [kept.fabric for kept in self.kept]

    @property
    def names(self) -> frozenset[str]:
        """The fabrics of which this round has a map."""
        return frozenset(kept.name for kept in self.kept)

    @property
    def is_over(self) -> bool:
        """Whether no further port is to be tried."""
        return len(self.failures) >= FAILURES or time.monotonic() >= self.until

    @property
    def unseen(self) -> list[str]:
        """Fabrics that were to be seen, and of which no map came: the ones asked for; else those remembered."""
        wanted = self.only or {one.name for one in fabrics(self.workspace.store) if one.best is not None}
        return sorted(wanted - self.names)

    def settle(self, text: ScanText) -> None:
        """Read what came from a port, and remember it under the fabric's name."""
        if text.failed:
            self._fail(text.source, text.failed)
            return
        state = self.workspace.store
        reading = read(text.raw, stderr=text.stderr)
        fabric = mapped(reading, self.under)
        if fabric.verdict.state == "rejected":
            self._rejected(text, fabric)
            return
        name = self._named(fabric, text.source)
        fabric = mapped(reading, self.under, earlier_domains(state, name))
        self.kept.append(self._keep(text, fabric, name))

    def _fail(self, source: ScanSource, why: str) -> None:
        self.failures.append(f"{source}: {why}")
        self.tell(visible(self.failures[-1]))

    def _named(self, fabric: Fabric, source: ScanSource) -> str:
        """The fabric's name: the one that it has, or gets now."""
        state, settings = self.workspace.store, self.under.settings
        seen = {adapter.port_guid for adapter in fabric.adapters.values()}
        inside = [port for port in self.under.ports if port.port_guid in seen]
        named = {name: one.scan_from for name, one in settings.fabrics.items()} if settings else {}
        who = identify(
            fabric,
            devices(state),
            source=source,
            settings={name: claims(sources, self.under.ports, inside) for name, sources in named.items()},
            inside={port.source for port in inside},
        )
        if who.was:
            rename_fabric(state, who.was, who.name)
            self.tell(f"{who.was} is {who.name} from now on, as the settings name one of its ports")
        for other in who.others:
            self.tell(f"{who.name}: has switches of {other} too: the two are joined, or switches were moved")
        return who.name

    def _keep(self, text: ScanText, fabric: Fabric, name: str) -> Kept:
        brought = Brought(str(text.source), text.raw, text.stderr, text.linkinfo)
        return keep(self.workspace.store, name, fabric, self.under, brought)

    def _rejected(self, text: ScanText, fabric: Fabric) -> None:
        """A scan that changes nothing; it is kept with its fabric where that is known, to be looked at."""
        self._fail(text.source, rejection(fabric))
        if name := self._expected(text.source):
            self._keep(text, fabric, name)

    def _expected(self, source: ScanSource) -> str:
        """The remembered fabric of a port: the one that has it, or was last scanned from it; empty where none is."""
        keys = {port.key for port in self.under.ports if port.source == source}
        for name, known in devices(self.workspace.store).items():
            if not known.isdisjoint(keys):
                return name
        for fabric in fabrics(self.workspace.store):
            if any(scan.source == str(source) for scan in scans(self.workspace.store, fabric.name, limit=1)):
                return fabric.name
        return ""


def rejection(fabric: Fabric) -> str:
    """Why a text is no map, and the line that shows it."""
    where = f" (line {fabric.verdict.line})" if fabric.verdict.line else ""
    return f"rejected: {fabric.verdict.reason}{where}"


def scan_all(
    workspace: Workspace, only: Collection[str], *, limit_s: float, tell: Callable[[str], None] = say
) -> Round:
    """Scan the named fabrics, or all: known and configured ones first, then ports that no scan has seen.

    The nodes are asked for their adapters first, so that every port has its owner and its state. No scan is begun
    after `limit_s` seconds.
    """
    _check_known(workspace, only)
    site, until = workspace.site, time.monotonic() + limit_s
    for line in unknown_scanners(site):
        tell(line)
    ask_nodes(workspace, site.nodes, tell=tell)
    facts = load_facts(workspace.store, [node.name for node in site.nodes])
    answering = {name for name in facts.nodes if name not in facts.silent}
    ports = tuple(port for port in inventory_ports(facts) if port.node in answering)
    under = Ground(tuple(node.name for node in site.nodes), inventory_ports(facts), site.settings)
    with workspace.session() as session:
        round_ = Round(workspace, session, under, frozenset(only), until, tell, len(answering))
        _known_fabrics(round_, ports)
        if not only:
            _unseen_ports(round_, ports)
    _drop_old(workspace)
    return round_


def _drop_old(workspace: Workspace) -> None:
    """Forget what the settings do not want kept; their defaults where no site is named."""
    scan = workspace.settings.scan if workspace.folder else ScanSettings()
    drop_old_scans(workspace.store, keep=scan.keep, keep_days=scan.keep_days, now=datetime.now(UTC))


def _check_known(workspace: Workspace, only: Collection[str]) -> None:
    """UsageError, with near names, for a fabric that is neither configured nor remembered."""
    known = {*workspace.settings.fabrics, *(one.name for one in fabrics(workspace.store))}
    for name in only:
        if name not in known:
            close = near(name, sorted(known))
            raise UsageError(
                f"there is no fabric {name}", hint=f"did you mean {' or '.join(close)}?" if close else ""
            )


def _known_fabrics(round_: Round, ports: Sequence[InventoryPort]) -> None:
    """A scan of each fabric that is configured or remembered, from its preferred port or the last one that worked.

    First one port of each fabric, all at once, a node for each; then port by port where that gave nothing.
    """
    wanted = _wanted(round_)
    first: dict[str, ScanSource] = {}
    for name, preferred in wanted.items():
        source = next((one for one in _sources(round_, ports, name, preferred) if one.node not in first), None)
        if source is not None:
            first[source.node] = source
    _scan(round_, *first.values())
    for name, preferred in wanted.items():
        for source in _sources(round_, ports, name, preferred):
            if name in round_.names:
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


def _sources(
    round_: Round, ports: Sequence[InventoryPort], name: str, preferred: Sequence[str]
) -> Iterator[ScanSource]:
    """Where the fabric may be scanned from: its preferred ports, then others that it is known to have, then ports
    that no fabric is known to have; those that are active and that no scan of this round has seen."""
    known = devices(round_.workspace.store)
    elsewhere = frozenset[str]().union(*(keys for other, keys in known.items() if other != name))
    active = [port for port in ports if port.is_up]
    own = [port for port in active if port.key in known.get(name, ())]
    free = [port for port in active if port.key not in elsewhere]
    there = {port.source for port in active}
    order = [*preferred_sources(preferred, active), *candidates(own), *candidates(free)]
    for source in dict.fromkeys(order):
        if round_.is_over:
            return
        if source in there and source not in round_.tried and not _is_seen(round_, active, source):
            yield source


def _is_seen(round_: Round, ports: Sequence[InventoryPort], source: ScanSource) -> bool:
    """Whether a scan of this round has that port already."""
    return source not in {port.source for port in uncovered(ports, round_.seen)}


def _unseen_ports(round_: Round, ports: Sequence[InventoryPort]) -> None:
    """Go on with active ports that no scan has seen; each is on another fabric than those."""
    while not round_.is_over:
        left = [port for port in uncovered(ports, round_.seen) if port.is_up]
        source = next(iter(candidates(left, tried=round_.tried)), None)
        if source is None:
            return
        _scan(round_, source)


def _scan(round_: Round, *sources: ScanSource) -> None:
    round_.tried.update(sources)
    for text in run_scans(round_.session, round_.workspace.site, sources) if sources else ():
        round_.settle(text)


def scan_text(workspace: Workspace, name: str, raw: str, *, source: str) -> Kept:
    """Remember a text that was not scanned by llmgw as a scan of the named fabric. LlmgwError where it is rejected."""
    under = ground(workspace)
    state = workspace.store
    fabric = mapped(read(raw), under, earlier_domains(state, name))
    if fabric.verdict.state == "rejected":
        where = f"{source}:{fabric.verdict.line}" if fabric.verdict.line else source
        known = any(one.name == name for one in fabrics(state))
        if known:
            keep(state, name, fabric, under, Brought(source, raw))
        raise LlmgwError(f"{where}: rejected: {fabric.verdict.reason}", hint="the map stays as it was" * known)
    kept = keep(state, name, fabric, under, Brought(source, raw))
    _drop_old(workspace)
    return kept


def spoken(kept: Kept) -> list[str]:
    """What a scan found: one line of figures, and one for each change since the last map, the first forty of them."""
    assert kept.topology is not None
    figures = kept.topology.summary
    by_tier = ((figures.leaves, "leaf", "leaves"), (figures.spines, "spine", ""), (figures.cores, "core", ""))
    tiers = ", ".join(count(number, one, many) for number, one, many in by_tier)
    parts = [
        f"{count(figures.switches, 'switch', 'switches')} ({tiers})",
        count(figures.adapters, "adapter"),
        count(figures.nodes, "node"),
        count(figures.links, "cable"),
        f"{figures.degraded} short",
        f"{figures.off_rail} off rail",
    ]
    verdict = kept.fabric.verdict
    state = "complete" if verdict.state == "complete" else f"{verdict.state}: {visible(verdict.reason)}"
    lines = [f"  {line}" for line in change_lines(kept.changes)]
    more = len(lines) - SHOWN_CHANGES
    last = (
        [f"  and {more} more changes: llmgw fabric history {kept.name} --scan {kept.number}"] if more > 0 else []
    )
    return [f"{kept.name}: {', '.join(parts)}; {state}", *lines[:SHOWN_CHANGES], *last]
