"""A lab: several hosts on one Linux machine, each with a root of its own, systemd or a light init, and OpenSSH.

Each host is a set of namespaces over an overlay of the machine's own files. One network namespace has the bridge that
joins them; the machine itself is not on that network, so nothing of a lab can be reached from outside or reaches out.
All of it ends with the process that owns the lab, however that ends. Isolation is for tests, not against attackers:
a host's root is the machine's root in other namespaces.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.lab import seed
from tests.lab.hosts import Gpu, Host, Init, Share, numbered
from tests.lab.kernel import LabError, alive, join_network, on_network, require_lab, wait_until
from tests.lab.layer import REPOSITORY, host_layer
from tests.lab.node import Node
from tests.lab.state import TAG, Places, reserve_inotify, sweep

HERE = Path(__file__).resolve().parent
FIRST_HOST = 11  # the last number of the first host's address
UP_S = 60


class Lab:
    """`with Lab("name", numbered(4)) as lab:`, then lab.nodes["n1"].freeze() and so on."""

    def __init__(
        self,
        name: str = "lab",
        hosts: Sequence[Host] = numbered(4),
        *,
        subnet: str = "10.77.0",
        base: Path = Path("/"),
    ) -> None:
        self.places = Places(name)
        self.subnet = subnet
        self.base = base
        self.nodes = {
            host.name: Node(self, host, f"{subnet}.{FIRST_HOST + number}") for number, host in enumerate(hosts)
        }
        self.switch_pid = 0
        self._layer: Path | None = None
        self._keeper: subprocess.Popen[str] | None = None

    # -- its life --------------------------------------------------------------------------------------

    def up(self, *, keep: bool = False) -> "Lab":
        """Start every host and wait for its SSH. Not kept, the lab ends with this process.

        LabUnavailable where this machine cannot have a lab, LabError where something did not come up.
        """
        require_lab()
        self._layer = host_layer()
        sweep(self.places)
        try:
            self._write()
            reserve_inotify(len(self.nodes))
            self._start_keeper(keep=keep)
            self.power(list(self.nodes.values()))
            for node in self.nodes.values():
                node.ready(timeout_s=UP_S)
        except BaseException:
            self.down()
            raise
        return self

    def _write(self) -> None:
        addresses = {node.name: node.address for node in self.nodes.values()}
        hosts = [node.host for node in self.nodes.values()]
        seed.write_seed(self.places, hosts, addresses, self._layer, self.base)
        self.places.cgroup.mkdir()
        record = {"hosts": [asdict(host) for host in hosts], "subnet": self.subnet, "base": str(self.base)}
        self.places.record.write_text(
            json.dumps(record | {"layer": str(self._layer or "")}, indent=1, default=str)
        )

    def _start_keeper(self, *, keep: bool) -> None:
        argv = [sys.executable, "-m", "tests.lab.keeper", self.places.name, *([] if keep else ["tied"])]
        with self.places.log("keeper").open("ab") as log:
            self._keeper = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
                cwd=REPOSITORY,
                start_new_session=True,
            )
        assert self._keeper.stdout
        answer = self._keeper.stdout.readline()
        if not answer.startswith("up "):
            raise LabError(f"the lab did not start: {answer}{self._keeper.stdout.read()}")
        self.switch_pid = int(answer.split()[1])

    @classmethod
    def open(cls, name: str = "lab") -> "Lab":
        """The lab of that name that is up, started by another process; LabError where there is none."""
        record = Places(name).read()
        hosts = [_host(host) for host in record["hosts"]]
        lab = cls(name, hosts, subnet=record["subnet"], base=Path(record["base"]))
        lab._layer = Path(record["layer"]) if record["layer"] else None
        lab.switch_pid = record.get("switch", 0)
        if not alive(lab.switch_pid):
            raise LabError(f"the lab {name} is not up")
        return lab

    def down(self) -> None:
        """End every host and remove whatever the lab put on the machine. A lab that is not up is no error."""
        keeper = self._keeper.pid if self._keeper else self._recorded_keeper()
        if keeper and alive(keeper):
            os.kill(keeper, 15)
            wait_until(lambda: not alive(keeper), lambda: "the lab's keeper does not end", timeout_s=30)
        if self._keeper:
            self._keeper.communicate()
        self._keeper, self.switch_pid = None, 0
        sweep(self.places)

    def _recorded_keeper(self) -> int:
        try:
            return int(self.places.read().get("keeper", 0))
        except LabError:
            return 0

    def __enter__(self) -> "Lab":
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    # -- inside its namespaces -------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            TAG: self.places.name,
            "LAB_STATE": str(self.places.folder),
            "LAB_BASE": str(self.base),
            "LAB_LAYER": str(self._layer or ""),
            "LAB_CGROUP": str(self.places.cgroup),
            "LAB_GATEWAY": f"{self.subnet}.1",
            "LAB_PREFIX": "24",
        }

    def inside(self, *argv: str, may_fail: bool = False, tools: bool = False) -> str:
        """What a command printed that ran beside the lab's bridge, as the machine's own root.

        With `tools`, in a root that has the hosts' packages as well (ibsim, the fabric tools).
        """
        done = subprocess.run(
            [*self._nsenter(tools=tools), *argv],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not may_fail:
            raise LabError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

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

    def start_inside(
        self, argv: Sequence[str], *, log: str, tools: bool = False, stdin: Path = Path(os.devnull)
    ) -> None:
        """Leave a command running there; it ends with the lab. What it prints is appended to NAME.log."""
        with stdin.open("r+b") as reads, self.places.log(log).open("ab") as writes:
            subprocess.run(
                [*self._nsenter(tools=tools), "setsid", "--fork", *argv],
                env=self._environment(),
                stdin=reads,
                stdout=writes,
                stderr=writes,
                check=True,
            )

    def power(self, nodes: Sequence[Node]) -> None:
        """Switch these hosts on; they boot in their own time."""
        for node in nodes:
            self.start_inside(["bash", str(HERE / "host.sh"), "power", node.name, node.address], log=node.name)

    # -- how a controller gets there -------------------------------------------------------------------

    @property
    def network(self) -> str:
        """The network namespace that has the bridge, as a path."""
        return f"/proc/{self.switch_pid}/ns/net"

    @property
    def controller(self) -> str:
        """The address of whatever runs on that network: this process inside `entered`, commands given to `run`."""
        return f"{self.subnet}.1"

    def entered(self) -> AbstractContextManager[None]:
        """This thread, and what it starts, is on the lab's network within the block. Loopback changes with it."""
        return on_network(self.network)

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """subprocess.run on the lab's network, in the machine's own files and processes: the control host."""
        network = self.network
        return subprocess.run(
            argv, preexec_fn=lambda: join_network(network), check=options.pop("check", False), **options
        )

    def popen(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """subprocess.Popen on the lab's network."""
        network = self.network
        return subprocess.Popen(argv, preexec_fn=lambda: join_network(network), **options)

    def ssh(
        self, node: Node, command: str, *, user: str = "root", timeout_s: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """A command over SSH from the control host, by the lab's key and host keys."""
        argv = [
            "ssh",
            "-F",
            "none",
            "-i",
            str(self.places.key),
            *self.ssh_options(),
            f"{user}@{node.address}",
            command,
        ]
        return self.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)

    def ssh_options(self) -> list[str]:
        """Options of ssh(1) with which nothing is asked and no unknown host is accepted."""
        return [
            *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=5"),
            *("-o", f"UserKnownHostsFile={self.places.known_hosts}"),
        ]

    def inventory(
        self, user: str = "root", *, groups: Mapping[str, Sequence[str]] | None = None, **variables: Any
    ) -> dict[str, Any]:
        """An Ansible inventory of the hosts, by group; all of them ungrouped where none is given."""
        common = {
            "ansible_user": user,
            "ansible_ssh_private_key_file": str(self.places.key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.places.known_hosts} -o StrictHostKeyChecking=yes",
            **variables,
        }
        hosts = {node.name: {"ansible_host": node.address} for node in self.nodes.values()}
        children = {group: {"hosts": {name: {} for name in names}} for group, names in (groups or {}).items()}
        return {"all": {"vars": common, "hosts": hosts, "children": children}}


def _host(written: Mapping[str, Any]) -> Host:
    shares = tuple(Share(Path(share["source"]), share["target"], share["writable"]) for share in written["shares"])
    gpus = tuple(Gpu(**gpu) for gpu in written["gpus"])
    return Host(written["name"], Init(written["init"]), written["disk"], shares, gpus)
