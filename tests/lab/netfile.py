"""Fabrics to simulate: from a few words (leaves, spines, rails) to switches, adapters, cables, ibsim's net file.

Pure: the same layout gives the same GUIDs, LIDs and text everywhere.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

# Speeds that ibsim 0.10 can train a link at, fastest first; and what one generation later calls the same place.
NATIVE = ("HDR", "EDR", "FDR")
LATER = {"HDR": "NDR", "EDR": "HDR", "FDR": "EDR"}
SWITCH_OUI, ADAPTER_OUI = 0xFC6A1C, 0xB83FD2


@dataclass(frozen=True, slots=True)
class Generation:
    """Hardware of one age. Source of the PCI device numbers: the PCI ID database, vendor 15b3."""

    speed: str
    switch_ports: int
    switch_device: int
    switch_model: str
    adapter_device: int


GENERATIONS = {
    "HDR": Generation("HDR", 40, 0xD2F0, "MQM8700", 0x101B),
    "NDR": Generation("NDR", 64, 0xD2F2, "MQM9700", 0x1021),
}


@dataclass(frozen=True, slots=True)
class Bank:
    """Hosts that are cabled alike, and the devices that each has on the fabric, one port each."""

    hosts: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A fabric in a few words.

    `per_leaf` hosts stand together under one leaf, or with rails under one leaf a device. `spines` are those of
    a pod, and every leaf of it has `cables` to each. Pods hold `groups_per_pod` such groups (0: all of them)
    and meet at `cores`, one cable from each spine to each core.
    """

    name: str
    banks: tuple[Bank, ...]
    per_leaf: int = 16
    rails: bool = True
    spines: int = 2
    cables: int = 1
    groups_per_pod: int = 0
    cores: int = 0
    generation: str = "NDR"


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; `name` is the short one, `description` its NodeDescription."""

    name: str
    guid: str
    lid: int
    description: str

    @property
    def id(self) -> str:
        return f"S-{self.guid}"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A device with one port. ibsim gives the port the GUID after the device's."""

    host: str
    device: str
    guid: str
    lid: int

    @property
    def id(self) -> str:
        return f"H-{self.guid}"

    @property
    def name(self) -> str:
        return f"{self.host} {self.device}"

    @property
    def description(self) -> str:
        return self.name

    @property
    def port_guid(self) -> str:
        return f"{int(self.guid, 16) + 1:016x}"


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable. `a` is a switch, and the one nearer the adapters where both are."""

    a: Switch
    a_port: int
    b: Switch | Adapter
    b_port: int

    def __str__(self) -> str:
        return f"{self.a.name}[{self.a_port}] - {self.b.name}[{self.b_port}]"


@dataclass(frozen=True)
class Plan:
    """All of a fabric's parts. Cables are in the order they are laid: adapters first, then up tier by tier."""

    layout: Layout
    switches: tuple[Switch, ...]
    adapters: tuple[Adapter, ...]
    cables: tuple[Cable, ...]

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def generation(self) -> Generation:
        return GENERATIONS[self.layout.generation]

    @property
    def rate(self) -> str:
        """What a good cable runs at, as the tools on hosts show it."""
        return f"4x{self.generation.speed}"

    @property
    def parts(self) -> tuple[Switch | Adapter, ...]:
        """Switches, then adapters."""
        return (*self.switches, *self.adapters)

    @cached_property
    def by_name(self) -> Mapping[str, Switch | Adapter]:
        """Every part by its name: "leaf1", "n1 mlx5_0"."""
        return {part.name: part for part in self.parts}

    def cable(self, one: str, other: str = "", *, nth: int = 0) -> Cable:
        """The nth cable between two parts by name, or of one adapter; KeyError where there is none."""
        ends = {one, other} - {""}
        found = [cable for cable in self.cables if ends <= {cable.a.name, cable.b.name}]
        if len(found) <= nth or (len(ends) == 1 and len(found) > 1):
            raise KeyError(f"{len(found)} cables of {' and '.join(sorted(ends))} in {self.name}")
        return found[nth]

    def native(self, rate: str) -> tuple[str, str]:
        """Width and speed to set in ibsim so that hosts see `rate`; ValueError for one that cannot be had."""
        width, _, shown = rate.partition("x")
        speeds = {self.shown(speed): speed for speed in NATIVE}
        if width not in ("1", "2", "4") or shown not in speeds:
            raise ValueError(f"{rate}: a cable of {self.name} can run at 1x, 2x or 4x {', '.join(speeds)}")
        return width, speeds[shown]

    def shown(self, speed: str) -> str:
        """How hosts see a speed of ibsim's."""
        return LATER[speed] if self.generation.speed == "NDR" else speed

    def net(self) -> str:
        """ibsim's net file, which is ibnetdiscover's own format."""
        lines: dict[str, list[str]] = defaultdict(list)
        for cable in self.cables:
            lines[cable.a.id].append(_switch_line(cable))
            lines[cable.b.id].append(_far_line(cable))
        blocks = [_switch_head(switch, self.generation) for switch in self.switches]
        blocks += [_adapter_head(adapter, self.generation) for adapter in self.adapters]
        parts = zip(blocks, self.parts, strict=True)
        return "\n".join("\n".join([head, *lines[part.id], ""]) for head, part in parts)


def _switch_head(switch: Switch, kind: Generation) -> str:
    return (
        f"vendid=0x2c9\ndevid={kind.switch_device:#x}\nsysimgguid=0x{switch.guid}\n"
        f"switchguid=0x{switch.guid}({switch.guid})\n"
        f'Switch\t{kind.switch_ports} "{switch.id}"\t\t# "{switch.description}" '
        f"enhanced port 0 lid {switch.lid} lmc 0"
    )


def _adapter_head(adapter: Adapter, kind: Generation) -> str:
    return (
        f"vendid=0x2c9\ndevid={kind.adapter_device:#x}\nsysimgguid=0x{adapter.guid}\ncaguid=0x{adapter.guid}\n"
        f'Ca\t1 "{adapter.id}"\t\t# "{adapter.description}"'
    )


def _switch_line(cable: Cable) -> str:
    far = cable.b
    guid = f"({far.port_guid}) " if isinstance(far, Adapter) else ""
    return f'[{cable.a_port}]\t"{far.id}"[{cable.b_port}]{guid}\t\t# "{far.description}" lid {far.lid} 4xHDR'


def _far_line(cable: Cable) -> str:
    near, far = cable.a, cable.b
    tail = f'"{near.id}"[{cable.a_port}]\t\t# '
    if isinstance(far, Adapter):
        return f'[1]({far.port_guid}) \t{tail}lid {far.lid} lmc 0 "{near.description}" lid {near.lid} 4xHDR'
    return f'[{cable.b_port}]\t{tail}"{near.description}" lid {near.lid} 4xHDR'


def make_plan(layout: Layout) -> Plan:
    """Lay the fabric out. ValueError where a switch has too few ports for it."""
    return _Builder(layout).plan()


@dataclass
class _Builder:
    """Hands out GUIDs, LIDs and ports."""

    layout: Layout
    switches: list[Switch] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def plan(self) -> Plan:
        pods: dict[int, list[Switch]] = defaultdict(list)
        for group, hosts in enumerate(self._groups()):
            pods[group // self.layout.groups_per_pod if self.layout.groups_per_pod else 0] += self._group(hosts)
        spines = [spine for leaves in pods.values() for spine in self._tier("spine", self.layout.spines, leaves)]
        if self.layout.cores:
            self._tier("core", self.layout.cores, spines, cables=1)
        return Plan(self.layout, tuple(self.switches), tuple(self.adapters), tuple(self.cables))

    def _groups(self) -> Iterator[list[tuple[str, tuple[str, ...]]]]:
        """The hosts that stand under the same leaves, with their devices."""
        hosts = [(host, bank.devices) for bank in self.layout.banks for host in bank.hosts]
        for first in range(0, len(hosts), self.layout.per_leaf):
            yield hosts[first : first + self.layout.per_leaf]

    def _group(self, hosts: list[tuple[str, tuple[str, ...]]]) -> list[Switch]:
        """The leaves of one group of hosts, cabled: with rails the same port number on each leaf."""
        rails = max(len(devices) for _, devices in hosts) if self.layout.rails else 1
        leaves = [self._switch("leaf") for _ in range(rails)]
        for host, devices in hosts:
            for place, device in enumerate(devices):
                self._lay(leaves[place % rails], self._adapter(host, device), down=True)
        return leaves

    def _tier(self, kind: str, count: int, below: list[Switch], *, cables: int = 0) -> list[Switch]:
        above = [self._switch(kind) for _ in range(count)]
        for low in below:
            for high in above:
                for _ in range(cables or self.layout.cables):
                    self._lay(low, high, down=False)
        return above

    def _lay(self, near: Switch, far: Switch | Adapter, *, down: bool) -> None:
        """A cable: adapters and lower switches from port 1 up, the way up from the middle on."""
        far_port = self._port(far, "down") if isinstance(far, Switch) else 1
        self.cables.append(Cable(near, self._port(near, "down" if down else "up"), far, far_port))

    def _port(self, switch: Switch, way: str) -> int:
        half = GENERATIONS[self.layout.generation].switch_ports // 2
        self.used[switch.name + way] += 1
        number = self.used[switch.name + way] + (half if way == "up" else 0)
        if self.used[switch.name + way] > (half if self._goes_up(switch) else 2 * half):
            raise ValueError(f"{self.layout.name}: {switch.name} has too few ports")
        return number

    def _goes_up(self, switch: Switch) -> bool:
        return bool(self.layout.cores) if switch.name.startswith("spine") else switch.name.startswith("leaf")

    def _switch(self, kind: str) -> Switch:
        number = sum(switch.name.startswith(kind) for switch in self.switches) + 1
        model = GENERATIONS[self.layout.generation].switch_model
        description = f"MF0;{self.layout.name}-{kind}{number}:{model}/U1"
        made = Switch(f"{kind}{number}", self._guid(SWITCH_OUI, len(self.switches)), self._lid(), description)
        self.switches.append(made)
        return made

    def _adapter(self, host: str, device: str) -> Adapter:
        made = Adapter(host, device, self._guid(ADAPTER_OUI, len(self.adapters)), self._lid())
        self.adapters.append(made)
        return made

    def _guid(self, oui: int, number: int) -> str:
        """A maker's prefix, twelve bits of the fabric's name, and a number that leaves room for port GUIDs."""
        return f"{oui << 40 | zlib.crc32(self.layout.name.encode()) % 4096 << 28 | (number + 1) << 4:016x}"

    def _lid(self) -> int:
        return len(self.switches) + len(self.adapters) + 1
