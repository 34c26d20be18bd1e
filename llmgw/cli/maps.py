"""Maps between the store and the pure package: what a scan's text means, by what the inventory and nodes say now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw.base import UsageError, near
from llmgw.cli.workspace import Workspace
from llmgw.fabric import Domain, Part, Paths, Role, parts
from llmgw.observed import Facts
from llmgw.site import SiteSettings
from llmgw.store import State
from llmgw.store.maps import StoredFabric, StoredScan, current_paths, fabrics, scan_texts, stored_scan
from llmgw.store.nodes import load_facts

if TYPE_CHECKING:
    from llmgw.fabric import Fabric, InventoryPort, KnownPort, Reading


@dataclass(frozen=True, slots=True)
class Ground:
    """What a map is read against: the inventory's hosts, the ports that nodes reported, and the settings' parts."""

    hosts: tuple[str, ...] = ()
    ports: "tuple[InventoryPort, ...]" = ()
    settings: SiteSettings | None = None

    @property
    def known(self) -> "Mapping[str, KnownPort]":
        from llmgw.fabric import known_ports

        return known_ports(self.ports)

    def parts(self, maps: Mapping[str, Paths]) -> dict[str, Part]:
        """What each fabric is for."""
        return parts(maps, self._named)

    def stored_parts(self, state: State) -> dict[str, Part]:
        """What each remembered fabric is for; their maps are read only where that takes a look at them."""
        names = [one.name for one in fabrics(state) if one.best is not None]
        if len([name for name in names if name not in self._named]) < 2:
            return parts(dict.fromkeys(names), self._named)
        return parts(current_paths(state), self._named)

    @property
    def _named(self) -> dict[str, Role]:
        return {name: one.role for name, one in self.settings.fabrics.items()} if self.settings else {}


def ground(workspace: Workspace) -> Ground:
    """What is known of the site; nothing where no site folder is named."""
    if workspace.folder is None:
        return Ground()
    site = workspace.remembered_site
    names = tuple(node.name for node in site.nodes)
    return Ground(names, inventory_ports(load_facts(workspace.store, names)), site.settings)


def inventory_ports(facts: Facts) -> "tuple[InventoryPort, ...]":
    """Every adapter port that nodes reported."""
    from llmgw.fabric import InventoryPort

    return tuple(
        InventoryPort(
            node=name,
            device=adapter.device,
            port=adapter.port,
            port_guid=adapter.port_guid,
            state=adapter.state,
            link_layer=adapter.link_layer,
            pci=adapter.pci,
            node_guid=adapter.node_guid,
        )
        for name, seen in facts.nodes.items()
        for adapter in seen.adapters
    )


def mapped(reading: "Reading", under: Ground, earlier: Mapping[str, Domain] | None = None) -> "Fabric":
    """What a reading means on this ground."""
    from llmgw.fabric.analyse import analyse

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
    found = stored_scan(state, number if number is not None else fabric.best)
    if found is None or found.fabric != fabric.name:
        raise UsageError(
            f"{fabric.name} has no scan {number}" if number is not None else f"{fabric.name} has no map yet",
            hint=f"llmgw fabric history {fabric.name}",
        )
    return found


def load(state: State, scan: StoredScan, under: Ground) -> "Fabric":
    """The map of a stored scan, read again from its raw text."""
    from llmgw.fabric import read

    texts = scan_texts(state, scan.number)
    assert texts is not None
    return mapped(read(texts[0], stderr=texts[1]), under, earlier_domains(state, scan.fabric))


def earlier_domains(state: State, name: str) -> dict[str, Domain]:
    """The leaf domains of a fabric's map, so that they keep their names."""
    known = current_paths(state).get(name)
    return dict(known.domains) if known else {}


def placing_paths(
    state: State, settings: SiteSettings, *, read: Callable[[str | bytes, str], Paths] | None = None
) -> dict[str, Paths]:
    """What placement needs of every fabric that has a map, each with its part; `read` makes them of documents."""
    found = current_paths(state, read=read)
    of = Ground(settings=settings).parts(found)
    return {name: way.model_copy(update={"role": of[name].role}) for name, way in found.items()}
