"""What a lab is made of, in values: its hosts, what they share with the machine, their GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class Init(StrEnum):
    """What a host has as PID 1. Light: a shell that keeps sshd running, for hosts without systemd."""

    SYSTEMD = "systemd"
    LIGHT = "light"


@dataclass(frozen=True, slots=True)
class Share:
    """A file or folder of the machine that a host sees at `target`, read-only unless `writable`."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a host's nvidia-smi shows."""

    model: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81559


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a GPU's memory without saying so in its environment: someone else's job."""

    gpu: int
    pid: int
    name: str
    memory_mib: int = 1024


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a lab. `disk` is the size of what it may write, as mount(8) takes it for a tmpfs."""

    name: str
    init: Init = Init.SYSTEMD
    disk: str = "64m"
    shares: tuple[Share, ...] = ()
    gpus: tuple[Gpu, ...] = ()

    def with_shares(self, *shares: Share) -> "Host":
        """The same host with these as well."""
        return replace(self, shares=(*self.shares, *shares))


def numbered(
    count: int, *, prefix: str = "n", init: Init = Init.SYSTEMD, gpus: Sequence[Gpu] = ()
) -> tuple[Host, ...]:
    """Hosts n1 … nN, all alike."""
    return tuple(Host(f"{prefix}{number}", init, gpus=tuple(gpus)) for number in range(1, count + 1))


@dataclass(frozen=True, slots=True)
class User:
    """An account that every host has. `sudo` is its line in sudoers, empty where it may not use sudo."""

    name: str
    uid: int
    sudo: str = ""


PASSWORD = "lab"
USERS = (
    User("ops", 4242, "ops ALL=(ALL:ALL) NOPASSWD: ALL"),
    User("ask", 4243, "ask ALL=(ALL:ALL) ALL"),
    User("plain", 4244),
    User("limited", 4245),  # what it may do is given by Node.allow
)
