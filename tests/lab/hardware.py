"""What a host's hardware says of itself: /sys/class/infiniband, the fabric tools' ports, nvidia-smi's GPUs.

All of it is files in a folder that the host sees read-only as /run/lab; they can be changed while it runs, is
frozen or off. Formats of sysfs: Linux, Documentation/ABI/stable/sysfs-class-infiniband and
drivers/infiniband/core/sysfs.c.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab.hosts import Gpu, Holder

# Where the adapters and GPUs of a DGX H100 sit; the first half of either is on the first CPU.
ADAPTER_SLOTS = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc", "29", "aa", "39", "bb")
GPU_SLOTS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
LANE_GBPS = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0}
PORT_FILES = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid", "lid_mask_count", "cap_mask")
COUNTERS = ("port_xmit_data", "port_rcv_data", "symbol_error", "link_downed", "port_rcv_errors", "port_xmit_wait")
DRIVER = "570.124.06"


@dataclass(frozen=True, slots=True)
class AdapterPort:
    """One device with its one port, as the kernel knows it. `rate` is 4xNDR; empty where the port is down.

    `server` and `node_id` say where the fabric tools find it: ibsim's address, UDP port, and the node to be
    there. `generation` is what ibsim's HDR is to be called.
    """

    device: str
    guid: str
    port_guid: str
    lid: int
    rate: str
    server: str
    udp_port: int
    node_id: str
    generation: str
    link_layer: str = "InfiniBand"


@dataclass(frozen=True, slots=True)
class Fault:
    """What nvidia-smi does instead of answering."""

    text: str = "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n"
    exit: int = 255
    sleep_s: float = 0


class Hardware:
    """One host's folder. Everything that is set replaces what was set before."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.host = host
        self.ports: tuple[AdapterPort, ...] = ()
        self.gpus: tuple[Gpu, ...] = ()
        self.holders: tuple[Holder, ...] = ()
        self.fault: Fault | None = None
        self._read()

    def _read(self) -> None:
        """What another process has set."""
        written = self.folder / "gpus.json"
        if not written.exists():
            return
        machine = json.loads(written.read_text())
        self.gpus = tuple(Gpu(gpu["model"], gpu["memory_mib"]) for gpu in machine["gpus"])
        self.holders = tuple(Holder(**holder) for holder in machine["holders"])
        self.fault = Fault(**machine["fault"]) if machine["fault"] else None

    def set_gpus(self, gpus: Sequence[Gpu]) -> None:
        """The GPUs that it has; none and nvidia-smi finds no driver."""
        self.gpus = tuple(gpus)
        self._write_gpus()

    def hold(self, *holders: Holder) -> None:
        """Other people's processes on its GPUs, beside those that say so in their environment."""
        self.holders = holders
        self._write_gpus()

    def break_nvidia_smi(self, fault: Fault | None) -> None:
        """Make nvidia-smi fail or hang; None mends it."""
        self.fault = fault
        self._write_gpus()

    def set_ports(self, ports: Sequence[AdapterPort]) -> None:
        """The adapters that it has, in the order of their PCI addresses."""
        self.ports = tuple(ports)
        lines = [
            f"{port.device} 1 {port.server} {port.udp_port} {port.node_id} "
            f"{'later' if port.generation == 'NDR' else 'as'}\n"
            for port in self.ports
        ]
        _replace(self.folder / "fabric-ports", "".join(lines))
        for number, port in enumerate(self.ports):
            write_device(self.folder / "sys", port, adapter_slot(number))
        self._write_gpus()

    def restore(self, gpus: Sequence[Gpu]) -> None:
        """No foreign holders, no fault, and these GPUs."""
        self.holders, self.fault = (), None
        self.set_gpus(gpus)

    def _write_gpus(self) -> None:
        _replace(self.folder / "gpus.json", json.dumps(self._machine(), indent=1))

    def _machine(self) -> dict[str, Any]:
        return {
            "driver": DRIVER,
            "nvlink": "NV18" if len(self.gpus) > 1 else "",
            "gpus": [_gpu(self.host, number, gpu, len(self.gpus)) for number, gpu in enumerate(self.gpus)],
            "nics": [
                {"device": port.device, "pci": adapter_slot(number), "numa": numa(number), "pair": number}
                for number, port in enumerate(self.ports)
            ],
            "holders": [asdict(holder) for holder in self.holders],
            "fault": asdict(self.fault) if self.fault else None,
        }


def adapter_slot(number: int) -> str:
    """The PCI address of a host's adapter of that number, from 0."""
    return f"0000:{ADAPTER_SLOTS[number]}:00.0"


def numa(number: int) -> int:
    """The NUMA node of that slot."""
    return int(number % 8 >= 4)


def _gpu(host: str, number: int, gpu: Gpu, of: int) -> dict[str, Any]:
    word = hashlib.sha256(f"{host} gpu {number}".encode()).hexdigest()
    return {
        "index": number,
        "uuid": f"GPU-{word[:8]}-{word[8:12]}-{word[12:16]}-{word[16:20]}-{word[20:32]}",
        "model": gpu.model,
        "memory_mib": gpu.memory_mib,
        "pci": f"00000000:{GPU_SLOTS[number].upper()}:00.0",
        "numa": int(number >= (of + 1) // 2) if of > 1 else 0,
        "pair": number,
    }


def write_device(sys: Path, port: AdapterPort, slot: str) -> None:
    """A device's folders under `sys`, and its link in class/infiniband."""
    pci = sys / "devices" / f"pci0000:{slot[5:7]}" / slot
    device = pci / "infiniband" / port.device
    for name, text in _device_files(port).items():
        _replace(device / name, f"{text}\n")
    _replace(pci / "numa_node", f"{numa(ADAPTER_SLOTS.index(slot[5:7]))}\n")
    _replace(pci / "vendor", "0x15b3\n")
    _link(device / "device", f"../../../{slot}")
    _link(
        sys / "class/infiniband" / port.device, f"../../devices/{pci.parent.name}/{slot}/infiniband/{port.device}"
    )


def _device_files(port: AdapterPort) -> dict[str, str]:
    up = bool(port.rate)
    values = {
        "state": "4: ACTIVE" if up else "1: DOWN",
        "phys_state": "5: LinkUp" if up else "2: Polling",
        "rate": kernel_rate(port.rate or "4xSDR"),
        "link_layer": port.link_layer,
        "lid": f"0x{port.lid if up else 0xFFFF:x}",
        "sm_lid": "0x1",
        "lid_mask_count": "0",
        "cap_mask": "0xa751e848",
        "gids/0": f"fe80:0000:0000:0000:{_colons(port.port_guid)}",
        **{f"counters/{name}": "0" for name in COUNTERS},
    }
    return {
        "node_guid": _colons(port.guid),
        "sys_image_guid": _colons(port.guid),
        "node_desc": port.device,
        "node_type": "1: CA",
        "hca_type": "MT4129",
        "fw_ver": "28.43.2026",
        "board_id": "MT_0000000838",
        **{f"ports/1/{name}": text for name, text in values.items()},
    }


def kernel_rate(rate: str) -> str:
    """4xNDR as the kernel writes it: "400 Gb/sec (4X NDR)"."""
    width, _, speed = rate.partition("x")
    return f"{LANE_GBPS[speed] * int(width):g} Gb/sec ({width}X {speed})"


def _colons(guid: str) -> str:
    return ":".join(guid[at : at + 4] for at in range(0, 16, 4))


def _replace(path: Path, text: str) -> None:
    """Write the file whole, for a reader on a running host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(text)
    partial.rename(path)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)
