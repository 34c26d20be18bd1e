"""The lab's namespaces, entered from the machine: commands beside its bridge, and as its control host."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.kernel import LabError, join_network
from tests.lab.simulator import Meeting
from tests.lab.state import TAG, Places

FIRST_UDP_PORT = 17000
UDP_PORTS_EACH = 20  # ibsim takes eleven


class Spaces:
    """Everything of the lab's first process: its network, its mounts, its PIDs."""

    fabrics_inside = "/run/fabrics"
    tools_path = "/usr/lib/lab/fabric:/usr/sbin:/usr/bin"
    umad2sim = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"

    def __init__(self, places: Places, *, subnet: str, base: Path) -> None:
        self.places = places
        self.subnet = subnet
        self.base = base
        self.fabrics = places.fabrics
        self.layer: Path | None = None
        self.switch_pid = 0

    def meeting(self, fabric: str, number: int) -> Meeting:  # noqa: ARG002
        """By UDP on the lab's network: ibsim's own sockets do not reach from one network namespace to another."""
        port = FIRST_UDP_PORT + UDP_PORTS_EACH * number
        client = {"IBSIM_SERVER_NAME": self.controller, "IBSIM_SERVER_PORT": str(port)}
        return Meeting(f"-r -l {port}", {}, client, self.controller, port)

    def read_log(self, name: str) -> str:
        """What something that was started inside has printed."""
        return self.places.log(name).read_text(errors="replace")

    @property
    def network(self) -> str:
        """The network namespace that has the bridge, as a path."""
        return f"/proc/{self.switch_pid}/ns/net"

    @property
    def controller(self) -> str:
        """The address of whatever runs on that network and is no host."""
        return f"{self.subnet}.1"

    def environment(self) -> dict[str, str]:
        """What host.sh and everything else in the lab is started with."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            TAG: self.places.name,
            "LAB_STATE": str(self.places.folder),
            "LAB_BASE": str(self.base),
            "LAB_LAYER": str(self.layer or ""),
            "LAB_CGROUP": str(self.places.cgroup),
            "LAB_GATEWAY": self.controller,
            "LAB_PREFIX": "24",
        }

    def _nsenter(self, *, tools: bool) -> list[str]:
        root = f"{self.places.folder}/disks/tools"
        return [
            "nsenter",
            "-t",
            str(self.switch_pid),
            "-n",
            "-m",
            "-p",
            "--",
            *(["chroot", root] if tools else []),
        ]

    def inside(self, *argv: str, may_fail: bool = False, tools: bool = False) -> str:
        """What a command printed that ran beside the bridge, as the machine's own root.

        With `tools`, in a root that has the hosts' packages as well (ibsim, the fabric tools).
        """
        done = subprocess.run(
            [*self._nsenter(tools=tools), *argv],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not may_fail:
            raise LabError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def start_inside(
        self, argv: Sequence[str], *, log: str, tools: bool = False, stdin: int = subprocess.DEVNULL
    ) -> None:
        """Leave a command running there; it ends with the lab. What it prints is appended to NAME.log."""
        with self.places.log(log).open("ab") as writes:
            subprocess.run(
                [*self._nsenter(tools=tools), "setsid", "--fork", *argv],
                env=self.environment(),
                stdin=stdin,
                stdout=writes,
                stderr=writes,
                check=True,
            )

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """subprocess.run on that network, in the machine's own files and processes: as the control host."""
        network, check = self.network, options.pop("check", False)
        return subprocess.run(argv, preexec_fn=lambda: join_network(network), check=check, **options)

    def popen(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """subprocess.Popen on that network."""
        network = self.network
        return subprocess.Popen(argv, preexec_fn=lambda: join_network(network), **options)

    def ssh_options(self) -> list[str]:
        """Options of ssh(1) with the lab's key and host keys: nothing is asked, no unknown host is accepted."""
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": "5",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.places.known_hosts,
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return ["-F", os.devnull, "-i", str(self.places.key), *words]
