"""Maps between the store and the pure package: what a scan's text means, by what the inventory and nodes say now."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from llmgw.base import UsageError, near
from llmgw.cli.workspace import Workspace
from llmgw.fabric import (
    Domain,
    Fabric,
    InventoryPort,
    KnownPort,
    Paths,
    Reading,
    Topology,
    analyse,
    known_ports,
    paths,
    topology,
)
from llmgw.observed import Facts
from llmgw.site import SiteSettings
from llmgw.store import State
from llmgw.store.maps import (
    NewScan,
    StoredFabric,
    StoredScan,
    fabrics,
    save_scan,
    scan_texts,
    scans,
    topology_text,
)
from llmgw.store.nodes import load_facts


@dataclass(frozen=True, slots=True)
class Ground:
    """What a map is read against: the inventory's hosts, the ports that nodes reported, and the settings' parts."""

    hosts: tuple[str, ...] = ()
    ports: tuple[InventoryPort, ...] = ()
    settings: SiteSettings | None = None

    @property
    def known(self) -> Mapping[str, KnownPort]:
        return known_ports(self.ports)

    def role(self, name: str) -> str:
        found = self.settings.fabrics.get(name) if self.settings else None
        return found.role if found else "compute"


def ground(workspace: Workspace) -> Ground:
    """What is known of the site; nothing where no site folder is named."""
    if workspace.folder is None:
        return Ground()
    site = workspace.remembered_site
    names = tuple(node.name for node in site.nodes)
    return Ground(names, inventory_ports(load_facts(workspace.store, names)), site.settings)


def inventory_ports(facts: Facts) -> tuple[InventoryPort, ...]:
    """Every adapter port that nodes reported."""
    return tuple(
        InventoryPort(
            node=name,
            device=adapter.device,
            port=adapter.port,
            port_guid=adapter.port_guid,
            state=adapter.state,
            link_layer=adapter.link_layer,
            pci=adapter.pci,
        )
        for name, seen in facts.nodes.items()
        for adapter in seen.adapters
    )


def mapped(reading: Reading, under: Ground, earlier: Mapping[str, Domain] | None = None) -> Fabric:
    """What a reading means on this ground."""
    return analyse(reading, hosts=under.hosts, ports=under.known, earlier=earlier)


def stored(state: State, name: str | None) -> StoredFabric:
    """A fabric by name; the only one where no name is given. UsageError, with near names, where that is none."""
    known = fabrics(state)
    names = [fabric.name for fabric in known]
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        raise UsageError(
            "there is no fabric yet" if not known else "name one of the fabrics",
            hint="llmgw fabric scan" if not known else ", ".join(names),
        )
    for fabric in known:
        if fabric.name == name:
            return fabric
    close = near(name, names)
    raise UsageError(
        f"there is no fabric {name}", hint=f"did you mean {close[0]}?" if close else ", ".join(names) or "none yet"
    )


def pick(state: State, fabric: StoredFabric, number: int | None) -> StoredScan:
    """One scan of a fabric: by number, else the one that stands for it. UsageError where there is none."""
    wanted = number if number is not None else fabric.best
    found = next((scan for scan in scans(state, fabric.name, limit=1_000_000) if scan.number == wanted), None)
    if found is None:
        raise UsageError(
            f"{fabric.name} has no scan {number}" if number is not None else f"{fabric.name} has no map yet",
            hint=f"llmgw fabric history {fabric.name}",
        )
    return found


def load(state: State, scan: StoredScan, under: Ground) -> Fabric:
    """The map of a stored scan, read again from its raw text."""
    from llmgw.fabric import read

    texts = scan_texts(state, scan.number)
    assert texts is not None
    return mapped(read(texts[0], stderr=texts[1]), under, earlier_domains(state, scan.fabric))


def earlier_domains(state: State, name: str) -> dict[str, Domain]:
    """The leaf domains of a fabric's map, so that they keep their names."""
    from llmgw.store.maps import current_paths

    known = current_paths(state).get(name)
    return dict(known.domains) if known else {}


def switches_by_fabric(state: State) -> dict[str, Collection[str]]:
    """The switch GUIDs of every remembered fabric, its partial map's among them."""
    found: dict[str, Collection[str]] = {}
    for fabric in fabrics(state):
        guids: set[str] = set()
        for number in filter(None, (fabric.map, fabric.partial)):
            text = topology_text(state, number)
            if text:
                guids |= {switch.guid for switch in Topology.read(text, f"scan {number}").switches}
        found[fabric.name] = guids
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """A scan that was remembered: its number, its map, and the documents made of it (none of a rejected one)."""

    number: int
    name: str
    fabric: Fabric
    topology: Topology | None
    paths: Paths | None


def keep(
    state: State, name: str, fabric: Fabric, under: Ground, *, source: str, raw: str, stderr: str, linkinfo: str
) -> Kept:
    """Remember a scan and what was made of it."""
    now = datetime.now(UTC).replace(microsecond=0)
    rejected = fabric.verdict.state == "rejected"
    shape = None if rejected else topology(fabric, name=name, scanned_at=now, scanned_from=source)
    way = None if rejected else paths(fabric, name=name, role=under.role(name), hosts=under.hosts)  # type: ignore[arg-type]
    number = save_scan(
        state,
        NewScan(
            fabric=name,
            at=now,
            source=source,
            verdict=fabric.verdict.state,
            problems="\n".join(map(str, fabric.verdict.problems)),
            raw=raw,
            stderr=stderr,
            topology=shape.text() if shape else None,
            paths=way.text() if way else None,
            linkinfo=linkinfo,
        ),
    )
    return Kept(number, name, fabric, shape, way)
