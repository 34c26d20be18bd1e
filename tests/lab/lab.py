"""A lab: several hosts on one Linux machine, each with a root of its own, systemd or a light init, and OpenSSH.

Each host is a set of namespaces over an overlay of the machine's own files. One network namespace has the bridge
that joins them; the machine itself is not on that network, so that nothing of a lab is reached from outside or
reaches out. All of it ends with the process that owns the lab, however that ends. The isolation is for tests, not
against attackers: a host's root is the machine's root in other namespaces.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.lab import seed
from tests.lab.hosts import Gpu, Host, Init, Share, numbered
from tests.lab.kernel import LabError, UnavailableError, alive, on_network, require_lab, wait_until
from tests.lab.layer import REPOSITORY, host_layer, lacks_fabric_tools
from tests.lab.netfile import Bank, Layout, make_plan
from tests.lab.node import Node
from tests.lab.simulator import Simulator
from tests.lab.spaces import Spaces
from tests.lab.state import Places, reserve_inotify, sweep

HERE = Path(__file__).resolve().parent
FIRST_HOST = 11  # the last number of the first host's address
UP_S = 60
THE_MACHINE = Path("/")


class Lab:
    """`with Lab("name", numbered(4)) as lab:`, then lab.nodes["n1"].freeze() and so on."""

    def __init__(
        self,
        name: str = "lab",
        hosts: Sequence[Host] = numbered(4),
        *,
        fabrics: Sequence[Layout] = (),
        subnet: str = "10.77.0",
        base: Path = THE_MACHINE,
    ) -> None:
        self.places = Places(name)
        self.spaces = Spaces(self.places, subnet=subnet, base=base)
        addresses = [f"{subnet}.{FIRST_HOST + number}" for number in range(len(hosts))]
        self.nodes = {host.name: Node(self, host, address) for host, address in zip(hosts, addresses, strict=True)}
        plans = [make_plan(layout) for layout in fabrics]
        self.fabrics = {
            plan.name: Simulator(self.spaces, plan, number, changed=self.show_adapters)
            for number, plan in enumerate(plans)
        }
        self._keeper: subprocess.Popen[str] | None = None

    @property
    def name(self) -> str:
        return self.places.name

    # -- its life --------------------------------------------------------------------------------------

    def up(self, *, keep: bool = False) -> "Lab":
        """Start every host and fabric and wait for them. Not kept, the lab ends with this process.

        UnavailableError where this machine cannot have a lab, LabError where one of that name is up already or
        something did not come up.
        """
        require_lab()
        self.spaces.layer = host_layer()
        if self.fabrics and (missing := lacks_fabric_tools(self.spaces.layer)):
            raise UnavailableError(missing)
        self._refuse_a_second()
        sweep(self.places)
        try:
            self._write()
            reserve_inotify(self.places, len(self.nodes))
            self._start_keeper(keep=keep)
            self.power(list(self.nodes.values()))
            for fabric in self.fabrics.values():
                fabric.start()
            for node in self.nodes.values():
                node.ready(timeout_s=UP_S)
        except BaseException:
            self.down()
            raise
        return self

    def _refuse_a_second(self) -> None:
        if self.places.record.exists() and alive(self.places.read().get("switch", 0)):
            end = f"python -m tests.lab --name {self.name} down"
            raise LabError(f"a lab named {self.name} is up; this ends it: {end}")

    def _write(self) -> None:
        addresses = {node.name: node.address for node in self.nodes.values()}
        hosts = [node.host for node in self.nodes.values()]
        seed.write_seed(self.places, hosts, addresses, self.spaces)
        self.show_adapters()
        for node in self.nodes.values():
            node.hardware.set_gpus(node.host.gpus)
        self.places.cgroup.mkdir()
        record = {
            "hosts": [asdict(host) for host in hosts],
            "fabrics": [asdict(fabric.plan.layout) for fabric in self.fabrics.values()],
            "subnet": self.spaces.subnet,
            "base": str(self.spaces.base),
            "layer": str(self.spaces.layer or ""),
        }
        self.places.record.write_text(json.dumps(record, indent=1, default=str))

    def _start_keeper(self, *, keep: bool) -> None:
        with self.places.log("keeper").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.lab.keeper", self.name, *([] if keep else ["tied"])],
                stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.spaces.environment(),
                cwd=REPOSITORY,
                start_new_session=True,
            )
        assert self._keeper.stdout
        answer = self._keeper.stdout.readline()
        if not answer.startswith("up "):
            raise LabError(f"the lab did not start: {answer}{self._keeper.stdout.read()}")
        self.spaces.switch_pid = int(answer.split()[1])

    @classmethod
    def open(cls, name: str = "lab") -> "Lab":
        """The lab of that name that is up, started by another process; LabError where there is none."""
        record = Places(name).read()
        lab = cls(
            name,
            [_host(host) for host in record["hosts"]],
            fabrics=[_layout(layout) for layout in record["fabrics"]],
            subnet=record["subnet"],
            base=Path(record["base"]),
        )
        lab.spaces.layer = Path(record["layer"]) if record["layer"] else None
        lab.spaces.switch_pid = record.get("switch", 0)
        if not alive(lab.spaces.switch_pid):
            raise LabError(f"the lab {name} is not up")
        return lab

    def down(self) -> None:
        """End every host and remove whatever the lab put on the machine. A lab that is not up is no error."""
        keeper = self._keeper.pid if self._keeper else self._recorded_keeper()
        if keeper and alive(keeper):
            os.kill(keeper, signal.SIGTERM)
            wait_until(lambda: not alive(keeper), lambda: "the lab's keeper does not end", timeout_s=30)
        if self._keeper:
            self._keeper.communicate()
        self._keeper, self.spaces.switch_pid = None, 0
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

    # -- its parts -------------------------------------------------------------------------------------

    def power(self, nodes: Sequence[Node]) -> None:
        """Switch these hosts on; they boot in their own time."""
        for node in nodes:
            argv = ["bash", str(HERE / "host.sh"), "power", node.name, node.address]
            self.spaces.start_inside(argv, log=node.name)

    def show_adapters(self) -> None:
        """Let every host's kernel show its adapters as the fabrics now have them."""
        for node in self.nodes.values():
            ports = [port for fabric in self.fabrics.values() for port in fabric.ports(node.name)]
            if ports:
                node.hardware.set_ports(sorted(ports, key=lambda port: (len(port.device), port.device)))

    def restore(self) -> None:
        """Every host on and well, every fabric whole."""
        for fabric in self.fabrics.values():
            fabric.restore()
        for node in self.nodes.values():
            node.restore()

    # -- how a control host gets there -----------------------------------------------------------------

    def entered(self) -> AbstractContextManager[None]:
        """This thread, and what it starts, is on the lab's network within the block. Loopback changes with it."""
        return on_network(self.spaces.network)

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """subprocess.run on the lab's network, in the machine's own files and processes."""
        return self.spaces.run(argv, **options)

    def popen(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """subprocess.Popen on the lab's network, in the machine's own files and processes."""
        return self.spaces.popen(argv, **options)

    def ssh(self, node: Node, command: str, *, user: str = "root") -> "subprocess.CompletedProcess[str]":
        """A command over SSH from the control host, by the lab's key and host keys."""
        argv = ["ssh", *self.spaces.ssh_options(), f"{user}@{node.address}", command]
        return self.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def inventory(
        self, user: str = "root", *, groups: Mapping[str, Sequence[str]] | None = None, **variables: Any
    ) -> dict[str, Any]:
        """An Ansible inventory of the hosts, by group; all of them ungrouped where none is given."""
        common = {
            "ansible_user": user,
            "ansible_ssh_private_key_file": str(self.places.key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": (
                f"-o UserKnownHostsFile={self.places.known_hosts} -o StrictHostKeyChecking=yes"
            ),
            **variables,
        }
        hosts = {node.name: {"ansible_host": node.address} for node in self.nodes.values()}
        children: dict[str, Any] = {
            group: {"hosts": {name: {} for name in names}} for group, names in (groups or {}).items()
        }
        return {"all": {"vars": common, "hosts": hosts, "children": children}}


def _host(written: Mapping[str, Any]) -> Host:
    shares = tuple(
        Share(Path(share["source"]), share["target"], writable=share["writable"]) for share in written["shares"]
    )
    gpus = tuple(Gpu(**gpu) for gpu in written["gpus"])
    return Host(written["name"], Init(written["init"]), written["disk"], shares, gpus)


def _layout(written: Mapping[str, Any]) -> Layout:
    banks = tuple(Bank(tuple(bank["hosts"]), tuple(bank["devices"])) for bank in written["banks"])
    return Layout(**{**written, "banks": banks})
