"""Where to scan from next: until every InfiniBand port of the inventory belongs to a fabric that was seen."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llmgw.base import natural_key
from llmgw.fabric.fabric import Fabric
from llmgw.fabric.identity import ScanSource, parse_source
from llmgw.fabric.owners import KnownPort


@dataclass(frozen=True, slots=True)
class InventoryPort:
    """A port as a node reported it. `state` is the kernel's word (ACTIVE, INIT, DOWN…)."""

    node: str
    device: str
    port: int
    port_guid: str
    state: str = "ACTIVE"
    link_layer: str = "InfiniBand"
    pci: str = ""
    node_guid: str = ""

    @property
    def key(self) -> str:
        """The adapter's key in a fabric: its GUID and port, `0c42a10300000001/1`."""
        return f"{self.node_guid}/{self.port}"

    @property
    def is_up(self) -> bool:
        """Whether it can be scanned from: an InfiniBand port that is active."""
        return self.link_layer == "InfiniBand" and self.state.upper().endswith("ACTIVE")

    @property
    def source(self) -> ScanSource:
        """The port as a place to scan from."""
        return ScanSource(self.node, self.device, self.port)


def known_ports(ports: Collection[InventoryPort]) -> dict[str, KnownPort]:
    """What `analyse` wants: whose each port GUID is. A GUID that two nodes report is nobody's."""
    found: dict[str, KnownPort] = {}
    twice = set()
    for port in ports:
        if not port.port_guid.strip("0"):
            continue
        known = KnownPort(port.node, port.device, port.pci)
        if found.setdefault(port.port_guid, known).node != port.node:
            twice.add(port.port_guid)
    return {guid: known for guid, known in found.items() if guid not in twice}


def uncovered(ports: Collection[InventoryPort], fabrics: Collection[Fabric]) -> list[InventoryPort]:
    """InfiniBand ports that no scan has seen, active ones first, then in natural order.

    A port that is down is in no scan of its own fabric either: it counts as covered where nothing else is left.
    """
    seen = {adapter.port_guid for fabric in fabrics for adapter in fabric.adapters.values()}
    left = [port for port in ports if port.link_layer == "InfiniBand" and port.port_guid not in seen]
    return sorted(
        left, key=lambda port: (not port.is_up, natural_key(port.node), natural_key(port.device), port.port)
    )


def candidates(
    ports: Collection[InventoryPort],
    *,
    preferred: Sequence[str] = (),
    unknown_nodes: Collection[str] = (),
    tried: Collection[ScanSource] = (),
) -> list[ScanSource]:
    """Where to scan from, in order: what the settings prefer, active ports one node after another, then nodes of
    which no port is known (the tool chooses there).

    `preferred` is written as in the settings; a node without a device stands for its active ports, if any are
    known. `tried` sources are left out.
    """
    by_node = _active_by_node(ports)
    order = preferred_sources(preferred, ports)
    rounds = max((len(own) for own in by_node.values()), default=0)
    order += [own[turn] for turn in range(rounds) for own in by_node.values() if turn < len(own)]
    order += [ScanSource(node) for node in sorted(unknown_nodes, key=natural_key)]
    return [source for source in dict.fromkeys(order) if source not in set(tried)]


def preferred_sources(preferred: Sequence[str], ports: Collection[InventoryPort]) -> list[ScanSource]:
    """What the settings prefer, in their order; a node without a device stands for its active ports."""
    by_node = _active_by_node(ports)
    order: list[ScanSource] = []
    for written in preferred:
        wanted = parse_source(written)
        order += [wanted] if wanted.device else by_node.get(wanted.node, [wanted])
    return order


def _active_by_node(ports: Collection[InventoryPort]) -> dict[str, list[ScanSource]]:
    active = [port for port in ports if port.is_up]
    by_node: dict[str, list[ScanSource]] = {}
    for port in sorted(active, key=lambda port: (natural_key(port.node), natural_key(port.device), port.port)):
        by_node.setdefault(port.node, []).append(port.source)
    return by_node


def claims(
    sources: Sequence[str], ports: Collection[InventoryPort], inside: Collection[InventoryPort]
) -> tuple[str, ...]:
    """Those of a configured fabric's sources that may name the fabric that has the ports `inside`.

    A node without a device is in several fabrics, and means the one that has most of its InfiniBand ports: where the
    scanned one has fewer, or half of them while others are down, the node's name says nothing of it. A name that
    is left without a source by this keeps a source that is nowhere, so that it is not taken for a name of any fabric.
    """
    return tuple(one for one in sources if _may_name(one, ports, inside)) or (("",) if sources else ())


def _may_name(written: str, ports: Collection[InventoryPort], inside: Collection[InventoryPort]) -> bool:
    wanted = parse_source(written)
    own = [port for port in ports if port.node == wanted.node and port.link_layer == "InfiniBand"]
    outside = [port for port in own if port not in inside]
    here = len(own) - len(outside)
    return bool(
        wanted.device
        or not own
        or here > len(outside)
        or (here == len(outside) and all(port.is_up for port in outside))
    )


def unseen_hosts(hosts: Collection[str], fabrics: Mapping[str, Fabric]) -> list[str]:
    """Inventory hosts of which no fabric has an adapter, in natural order."""
    seen = {node for fabric in fabrics.values() for node in fabric.nodes}
    return sorted((host for host in hosts if host not in seen), key=natural_key)
