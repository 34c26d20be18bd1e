"""Made-up fabrics and the text that ibnetdiscover would print of them: fat trees of any size, and their faults.

cluster = fat_tree(nodes=8, rails=4, nodes_per_leaf=4, spines=2)
cluster.short("gpu003 mlx5_1", "1xHDR")
cluster.pull("leaf-1-2", "spine-1-1")
text = cluster.text()
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

Ends = tuple[tuple[str, int], tuple[str, int]]

_GENERATED = "Tue Dec  1 03:58:44 2026"


@dataclass
class Device:
    """A switch (`S`), adapter (`H`) or router (`R`)."""

    guid: str
    kind: str
    name: str
    ports: int
    model: int
    lid: int
    system: str = ""


@dataclass
class Cluster:
    """Devices by GUID, and cables with their rate; ends in any order. Names are those of `name`, without MF0;…"""

    devices: dict[str, Device] = field(default_factory=dict)
    cables: dict[Ends, str] = field(default_factory=dict)
    scanner: str = ""

    def add(self, kind: str, name: str, *, ports: int, model: int, system: str = "") -> str:
        """The GUID of a new device."""
        number = len(self.devices) + 1
        guid = f"{'b8cef603' if kind == 'S' else '0c42a103'}{number * 256:08x}"
        self.devices[guid] = Device(guid, kind, name, ports, model, number, system or guid)
        self.scanner = self.scanner or (guid if kind == "H" else "")
        return guid

    def join(self, a: str, a_port: int, b: str, b_port: int, rate: str) -> None:
        """Cables two ports."""
        self.cables[(a, a_port), (b, b_port)] = rate

    def named(self, name: str) -> str:
        """The GUID of the only device of a name; a switch's may be its short one."""
        found = [
            guid for guid, one in self.devices.items() if name in (one.name, one.name.split(";")[-1].split(":")[0])
        ]
        assert len(found) == 1, (name, found)
        return found[0]

    def named_first(self, begin: str) -> str:
        """The GUID of the first device whose name begins so."""
        return next(guid for guid, one in self.devices.items() if one.name.split(";")[-1].startswith(begin))

    def cable(self, a: str, b: str = "", *, number: int = 0) -> Ends:
        """A cable of a device, or one of those between two, by their names."""
        one, other = self.named(a), self.named(b) if b else ""
        found = [
            ends
            for ends in self.cables
            if one in (ends[0][0], ends[1][0]) and (not b or other in (ends[0][0], ends[1][0]))
        ]
        return found[number]

    def short(self, a: str, rate: str, b: str = "") -> Ends:
        """Has a cable train at another rate."""
        ends = self.cable(a, b)
        self.cables[ends] = rate
        return ends

    def pull(self, a: str, b: str = "") -> Ends:
        """Takes a cable out. An adapter that has no other is in no scan any more."""
        ends = self.cable(a, b)
        del self.cables[ends]
        return ends

    def swap(self, a: str, b: str) -> None:
        """Exchanges where two adapters are cabled."""
        first, second = self.cable(a), self.cable(b)
        rate, other = self.cables.pop(first), self.cables.pop(second)
        (a_end, a_leaf), (b_end, b_leaf) = (
            _adapter_first(first, self.named(a)),
            _adapter_first(second, self.named(b)),
        )
        self.cables[a_end, b_leaf] = rate
        self.cables[b_end, a_leaf] = other

    def silence(self, name: str) -> None:
        """A device that does not answer: neither it nor its cables are in the scan."""
        guid = self.named(name)
        self.cables = {ends: rate for ends, rate in self.cables.items() if guid not in (ends[0][0], ends[1][0])}
        del self.devices[guid]

    def blocks(self) -> list[str]:
        """The blocks, switches first, each list newest first, as the tool has them."""
        lines: dict[str, list[tuple[int, str]]] = {guid: [] for guid in self.devices}
        for ends, rate in self.cables.items():
            for (near, port), (far, far_port) in (ends, ends[::-1]):
                if ends[0] == ends[1] and lines[near] and lines[near][-1][0] == port:
                    continue
                lines[near].append((port, self._port_line(near, port, far, far_port, rate)))
        order = sorted(self.devices.values(), key=lambda one: "SHR".index(one.kind))
        return [
            self._head(one) + "".join(line for _, line in sorted(lines[one.guid]))
            for one in _newest_first(order)
            if one.kind == "S" or lines[one.guid] or one.guid == self.scanner
        ]

    def header(self) -> str:
        """What stands above the blocks."""
        node = self.scanner or next(iter(self.devices))
        return f"#\n# Topology file: generated on {_GENERATED}\n#\n# Initiated from node {node} port {node}\n"

    def text(self) -> str:
        """The whole output."""
        return self.header() + "".join("\n" + block for block in self.blocks())

    def _head(self, one: Device) -> str:
        short = f"{int(one.guid, 16):x}"
        ids = f"vendid=0x2c9\ndevid=0x{one.model:x}\nsysimgguid=0x{int(one.system, 16):x}\n"
        if one.kind == "S":
            tail = f"enhanced port 0 lid {one.lid} lmc 0\n"
            return (
                f'{ids}switchguid=0x{short}({short})\nSwitch\t{one.ports} "S-{one.guid}"\t\t# "{one.name}" {tail}'
            )
        word, field_name = {"H": ("Ca", "ca"), "R": ("Rt", "rt")}[one.kind]
        return f'{ids}{field_name}guid=0x{short}\n{word}\t{one.ports} "{one.kind}-{one.guid}"\t\t# "{one.name}"\n'

    def _port_line(self, near: str, port: int, far: str, far_port: int, rate: str) -> str:
        own, peer = self.devices[near], self.devices[far]
        far_guid = "" if peer.kind == "S" else f"({int(far, 16):x}) "
        tail = f'"{peer.name}" lid {peer.lid} {rate}\n'
        if own.kind == "S":
            return f'[{port}]\t"{peer.kind}-{far}"[{far_port}]{far_guid}\t\t# {tail}'
        head = f'[{port}]({int(near, 16):x}) \t"{peer.kind}-{far}"[{far_port}]{far_guid}'
        return f"{head}\t\t# lid {own.lid} lmc 0 {tail}"


def _adapter_first(ends: Ends, adapter: str) -> Ends:
    return ends if ends[0][0] == adapter else (ends[1], ends[0])


def _newest_first(devices: list[Device]) -> Iterator[Device]:
    for kind in "SHR":
        yield from reversed([one for one in devices if one.kind == kind])


def fat_tree(
    *,
    nodes: int,
    rails: int = 8,
    nodes_per_leaf: int = 32,
    spines: int = 16,
    pods: int = 1,
    cores: int = 0,
    cables: int = 1,
    rate: str = "4xNDR",
    rail_spines: int = 0,
    aggregation: int = 0,
) -> Cluster:
    """A fat tree of one or several pods, each of `nodes` nodes.

    Node `gpu0001` of a pod has adapters mlx5_0… on one leaf a rail, all at the same port; with `rails` of 1 the
    leaf of a node has all its adapters. Each leaf has `cables` to every spine of its pod, or, with `rail_spines`,
    to that many spines of its own rail. Each spine has one cable to each core switch. `aggregation` gives every
    switch its aggregation node.
    """
    cluster = Cluster()
    core_guids = [
        cluster.add("S", f"MF0;core-{n + 1:03d}:MQM9700/U1", ports=65, model=0xD2F2) for n in range(cores)
    ]
    used = dict.fromkeys(core_guids, 0)
    for pod in range(1, pods + 1):
        groups = rails if rail_spines else 1
        above = [
            [
                _switch(cluster, f"spine-{pod}-{group * max(rail_spines, spines) + n + 1}", used)
                for n in range(rail_spines or spines)
            ]
            for group in range(groups)
        ]
        for first in range(0, nodes, nodes_per_leaf):
            block = first // nodes_per_leaf
            leaves = [_switch(cluster, f"leaf-{pod}-{block * rails + rail + 1}", used) for rail in range(rails)]
            for number in range(first, min(first + nodes_per_leaf, nodes)):
                name = f"gpu{(pod - 1) * nodes + number + 1:04d}"
                for rail, leaf in enumerate(leaves):
                    adapter = cluster.add("H", f"{name} mlx5_{rail}", ports=1, model=0x1021)
                    cluster.join(leaf, number - first + 1, adapter, 1, rate)
                    used[leaf] = max(used[leaf], number - first + 1)
            for rail, leaf in enumerate(leaves):
                for spine in above[rail if rail_spines else 0]:
                    for _ in range(cables):
                        _connect(cluster, leaf, spine, used, rate)
        for spine in (one for group in above for one in group):
            for core in core_guids:
                _connect(cluster, spine, core, used, rate)
    if aggregation:
        for guid in [guid for guid, one in cluster.devices.items() if one.kind == "S"]:
            node = cluster.add("H", "Mellanox Technologies Aggregation Node", ports=1, model=0xCF09, system=guid)
            cluster.join(guid, cluster.devices[guid].ports, node, 1, rate)
    return cluster


def _switch(cluster: Cluster, name: str, used: dict[str, int]) -> str:
    guid = cluster.add("S", f"MF0;{name}:MQM9700/U1", ports=65, model=0xD2F2)
    used[guid] = 0
    return guid


def _connect(cluster: Cluster, a: str, b: str, used: dict[str, int], rate: str) -> None:
    used[a] += 1
    used[b] += 1
    for guid in (a, b):
        cluster.devices[guid].ports = max(cluster.devices[guid].ports, used[guid] + 1)
    cluster.join(a, used[a], b, used[b], rate)
