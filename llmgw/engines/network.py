"""What NCCL and Gloo are told of the network, from the fabric maps and the inventory.

Source: NCCL 2.30 user guide, environment variables (NCCL_IB_HCA, NCCL_NET, NCCL_CROSS_NIC, NCCL_SOCKET_IFNAME,
NCCL_NET_MERGE_POLICY). NCCL_IB_HCA names adapters as `=<device>:<port>:<rail>:<plane>`: the `=` because mlx5_1
would match mlx5_10 too; the port always, because 2.29 reads `mlx5_0::0` as port 0 (and skips rail and plane).
"""

from collections.abc import Mapping, Sequence

from llmgw.fabric import NodePath, Paths, Rail
from llmgw.site import HostVariables


def network_environment(
    node: str, peers: Sequence[str], *, fabrics: Mapping[str, Paths], variables: HostVariables
) -> dict[str, str]:
    """The variables of the rank on `node` of a replica on `peers` (its own node among them).

    Adapters are those of every compute fabric on which all peers are, in rail order; those of storage fabrics,
    and of fabrics that some peer is not on, stay out. A replica of one node is told only the socket interface.
    The inventory's ib_hca and env win over the map.
    """
    found: dict[str, str] = {}
    if variables.socket_interface:
        found["NCCL_SOCKET_IFNAME"] = f"={variables.socket_interface}"
        found["GLOO_SOCKET_IFNAME"] = variables.socket_interface
    if len(peers) > 1:
        found["NCCL_DEBUG"] = "WARN"
        shared = shared_fabrics(peers, fabrics)
        if shared:
            found.update(_rails(node, peers, shared))
    if variables.ib_hca and len(peers) > 1:
        found.update(NCCL_NET="IB", NCCL_IB_HCA=variables.ib_hca)
    return {**found, **variables.env}


def shared_fabrics(peers: Sequence[str], fabrics: Mapping[str, Paths]) -> list[Paths]:
    """The compute fabrics that every one of the nodes is on, by name."""
    return [
        paths
        for _, paths in sorted(fabrics.items())
        if paths.role == "compute" and all(peer in paths.nodes and paths.nodes[peer].rails for peer in peers)
    ]


def _rails(node: str, peers: Sequence[str], shared: Sequence[Paths]) -> dict[str, str]:
    """NCCL_NET=IB, so that it fails rather than fall back to sockets, and what is known of the rails."""
    names: list[str] = []
    ports: dict[str, set[int]] = {}
    offset = 0
    for paths in shared:
        numbers = [_rail_number(rail, peers, paths) for rail in paths.nodes[node].rails]
        for rail, number in zip(paths.nodes[node].rails, numbers, strict=True):
            where = f"{rail.device}:{rail.port}"
            names.append(where if number is None else f"{where}:{offset + number - 1}:0")
            ports.setdefault(rail.device, set()).add(offset + (number or 0))
        offset += max((number for number in numbers if number), default=0)
    found = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=" + ",".join(names)}
    if any(len(rails) > 1 for rails in ports.values()):
        found["NCCL_NET_MERGE_POLICY"] = "RAIL"
    cross = cross_nic([paths.nodes[peer] for paths in shared for peer in peers], shared)
    if cross:
        found["NCCL_CROSS_NIC"] = cross
    return found


def _rail_number(rail: Rail, peers: Sequence[str], paths: Paths) -> int | None:
    """The rail that the adapter's leaf belongs to: for a swapped cable that of its neighbours there."""
    if rail.off_rail:
        for peer in peers:
            for other in paths.nodes[peer].rails:
                if other.leaf == rail.leaf and not other.off_rail:
                    return other.rail
    return rail.rail


def cross_nic(places: Sequence[NodePath], shared: Sequence[Paths]) -> str:
    """NCCL_CROSS_NIC: 0 where the Nth adapter of every node is on the Nth rail, 1 where all adapters of each
    node are on one leaf, else empty: NCCL's own default."""
    if all(len({rail.leaf for rail in place.rails}) == 1 and len(place.rails) > 1 for place in places):
        return "1"
    lined_up = all(paths.rail_aligned for paths in shared)
    rails = {tuple(rail.rail for rail in place.rails) for place in places}
    if lined_up and len(shared) == 1 and len(rails) == 1 and not any(place.off_rail for place in places):
        return "0"
    return ""
