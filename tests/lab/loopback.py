"""Nodes without root: an sshd of this account for each, on loopback addresses of the machine, no namespaces at all.

    python -m tests.lab.loopback NAME        keeps the lab of that name; started by LoopbackLab

What it leaves out stands in LEAVES_OUT. What stays real: OpenSSH, Ansible, the fabric tools on simulated fabrics,
engines, and the process supervisor.
"""

import getpass
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from tests.lab import debs
from tests.lab.hosts import Host, numbered
from tests.lab.kernel import LabError, UnavailableError, wait_until
from tests.lab.layer import REPOSITORY
from tests.lab.loopback_ground import LoopbackGround, marked, signal_all
from tests.lab.loopback_node import LoopbackNode
from tests.lab.netfile import Layout, make_plan
from tests.lab.simulator import Simulator

ROOT = REPOSITORY / "build" / "loopback"
LEAVES_OUT = """\
Without root the nodes are processes of this account on the machine itself. Left out are: hosts of their own (they
share files, processes, ports and the clock), systemd units, journals and reboots, sudo and other accounts, cut, slow
and lossy cables, full disks. An SSH session, a playbook, a scan, an engine and a stream are as real as with root.
"""


class LoopbackLab:
    """`with LoopbackLab("name", numbered(4)) as lab:`; what Lab has and this has not is named in LEAVES_OUT."""

    def __init__(
        self, name: str = "loopback", hosts: Sequence[Host] = numbered(4), *, fabrics: Sequence[Layout] = ()
    ) -> None:
        self.name = name
        self.folder = ROOT / name
        self.ground = LoopbackGround(self.folder)
        self.nodes = {host.name: LoopbackNode(self.ground, host, number) for number, host in enumerate(hosts)}
        plans = [make_plan(layout) for layout in fabrics]
        self.fabrics = {
            plan.name: Simulator(self.ground, plan, number, changed=self.show_adapters)
            for number, plan in enumerate(plans)
        }
        self._keeper: subprocess.Popen[bytes] | None = None

    def up(self, *, keep: bool = False) -> "LoopbackLab":
        """Start every sshd and fabric. Not kept, the lab ends with this process.

        UnavailableError where sshd or the fabric tools are missing and cannot be fetched.
        """
        if not os.geteuid():
            raise UnavailableError("a loopback lab is for accounts that are not root, which has a real one")
        self.ground.provide(fabrics=bool(self.fabrics))
        self.down()
        try:
            self._write()
            if not keep:
                self._start_keeper()
            for fabric in self.fabrics.values():
                fabric.start()
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.ready()
        except BaseException:
            self.down()
            raise
        return self

    def _write(self) -> None:
        (self.folder / "fabrics").mkdir(parents=True)
        self.ground.make_key(self.folder / "id", "lab-controller")
        for node in self.nodes.values():
            node.write()
        self.show_adapters()
        known = [
            f"[{node.address}]:{node.variables()['ansible_port']} {(node.folder / 'host_key.pub').read_text()}"
            for node in self.nodes.values()
        ]
        (self.folder / "known_hosts").write_text("".join(known))

    def _start_keeper(self) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.loopback", self.name],
            stdin=subprocess.PIPE,
            cwd=REPOSITORY,
            start_new_session=True,
        )

    def down(self) -> None:
        """End every process of the lab and remove its folder. A lab that is not up is no error."""
        if self._keeper:
            assert self._keeper.stdin
            self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper = None
        sweep(self.name)

    def __enter__(self) -> "LoopbackLab":
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    def show_adapters(self) -> None:
        """Let every node's stand-in for sysfs show its adapters as the fabrics now have them."""
        for node in self.nodes.values():
            ports = [port for fabric in self.fabrics.values() for port in fabric.ports(node.name)]
            if ports:
                node.hardware.set_ports(sorted(ports, key=lambda port: (len(port.device), port.device)))

    def restore(self) -> None:
        """Every node on and well, every fabric whole."""
        for fabric in self.fabrics.values():
            fabric.restore()
        for node in self.nodes.values():
            node.restore()

    def entered(self) -> AbstractContextManager[None]:
        """The nodes are on the machine's own loopback: there is nowhere to go."""
        return nullcontext()

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """subprocess.run, for the sake of what runs on either lab."""
        options.setdefault("env", self.environment())
        return subprocess.run(argv, check=options.pop("check", False), **options)

    def environment(self) -> dict[str, str]:
        """This process's own, with the programs that were unpacked (ssh, dot) where the machine has none."""
        path = f"{os.environ.get('PATH', '')}:{debs.ROOT}/usr/bin:{debs.ROOT}/usr/sbin"
        return os.environ | {"PATH": path} | debs.environment()

    def ssh_options(self) -> list[str]:
        """Options of ssh(1) with the lab's key and host keys: nothing is asked, no unknown host is accepted."""
        words = ("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=5", "IdentitiesOnly=yes")
        options = [*words, f"UserKnownHostsFile={self.folder / 'known_hosts'}"]
        return ["-F", "/dev/null", "-i", str(self.folder / "id"), *(w for o in options for w in ("-o", o))]

    def ssh(self, node: LoopbackNode, command: str) -> "subprocess.CompletedProcess[str]":
        """A command over SSH, as this account."""
        port = str(node.variables()["ansible_port"])
        argv = [
            debs.program("ssh"),
            *self.ssh_options(),
            "-p",
            port,
            f"{getpass.getuser()}@{node.address}",
            command,
        ]
        return self.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def inventory(self, *, groups: Mapping[str, Sequence[str]] | None = None, **variables: Any) -> dict[str, Any]:
        """An Ansible inventory of the nodes, with the llmgw_ variables that a node without root needs."""
        common = {
            "ansible_user": getpass.getuser(),
            "ansible_ssh_private_key_file": str(self.folder / "id"),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": (
                f"-F /dev/null -o UserKnownHostsFile={self.folder / 'known_hosts'} -o StrictHostKeyChecking=yes"
            ),
            **variables,
        }
        hosts = {node.name: node.variables() for node in self.nodes.values()}
        children: dict[str, Any] = {
            group: {"hosts": {name: {} for name in names}} for group, names in (groups or {}).items()
        }
        return {"all": {"vars": common, "hosts": hosts, "children": children}}


def sweep(name: str) -> None:
    """Remove what a lab of that name has left."""
    folder = ROOT / name
    signal_all(folder, signal.SIGKILL)
    wait_until(lambda: not marked(folder), lambda: f"{marked(folder)} live on", timeout_s=10)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        ROOT.rmdir()  # the last lab's


def main(name: str) -> int:
    """Wait until standard input ends, which it does with the lab's owner; then sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    try:
        sweep(name)
    except LabError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
