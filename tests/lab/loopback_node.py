"""One node of a loopback lab: an sshd of this account, and what was started through it."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.lab import debs
from tests.lab.hardware import Hardware
from tests.lab.hosts import Host
from tests.lab.kernel import wait_until
from tests.lab.loopback_ground import LoopbackGround, marked, settings, signal_all
from tests.lab.stand_ins import FABRIC_TOOLS
from tests.lab.stand_ins import HERE as STAND_INS

FIRST_HOST = 11
SSH_PORT = 22022
FIRST_ENGINE_PORT = 18000


class LoopbackNode:
    """A node that is up, off or frozen."""

    def __init__(self, ground: LoopbackGround, host: Host, number: int) -> None:
        self.ground = ground
        self.host = host
        self.name = host.name
        self.address = f"{ground.subnet}.{FIRST_HOST + number}"
        self.ports = f"{FIRST_ENGINE_PORT + 100 * number}-{FIRST_ENGINE_PORT + 100 * number + 99}"
        self.folder = ground.folder / host.name
        self.hardware = Hardware(self.folder / "machine", host.name)
        self._sshd: subprocess.Popen[bytes] | None = None

    # -- what it has -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Its folder: keys, sshd's settings, and programs that answer for this node only."""
        for name in ("bin", "runs", "tmp", "published", "machine"):
            (self.folder / name).mkdir(parents=True)
        self.ground.make_key(self.folder / "host_key", self.name)
        (self.folder / "sshd_config").write_text(self._sshd_config())
        self._write_programs()
        self.hardware.set_gpus(self.host.gpus)

    def _sshd_config(self) -> str:
        values = {
            "ListenAddress": f"{self.address}:{SSH_PORT}",
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.ground.folder / "id.pub",
            "PidFile": self.folder / "sshd.pid",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "MaxStartups": "100:30:200",
            "Subsystem": "sftp internal-sftp",
            "SetEnv": f"PATH={self.folder}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }
        return settings(values)

    def _write_programs(self) -> None:
        """nvidia-smi, and the fabric tools where there are fabrics, with what makes them this node's."""
        smi = {"LAB_GPUS": self.folder / "machine/gpus.json", "LAB_MARK": f"{self.folder}/"}
        self._program("nvidia-smi", smi, [sys.executable, "-IS", str(STAND_INS / "nvidia-smi")])
        if not self.ground.umad2sim:
            return
        environment = {
            "LAB_PORTS": self.folder / "machine/fabric-ports",
            "LAB_FABRIC_TOOLS": Path(debs.program("ibnetdiscover")).parent,
            "LAB_UMAD2SIM": self.ground.umad2sim,
            "TMPDIR": self.folder / "tmp",
            "LD_LIBRARY_PATH": debs.libraries(),
        }
        (self.folder / "lib").mkdir()
        for tool in FABRIC_TOOLS:
            shutil.copyfile(STAND_INS / "ibtool", self.folder / "lib" / tool)
            self._program(tool, environment, ["bash", str(self.folder / "lib" / tool)])

    def _program(self, name: str, environment: Mapping[str, object], argv: list[str]) -> None:
        exports = "".join(f"export {key}={shlex.quote(str(value))}\n" for key, value in environment.items())
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\n{exports}exec {shlex.join(argv)} "$@"\n')
        path.chmod(0o755)

    def variables(self) -> Mapping[str, object]:
        """What an inventory has to say of it."""
        return {
            "ansible_host": self.address,
            "ansible_port": SSH_PORT,
            "ansible_remote_tmp": str(self.folder / "tmp"),
            "llmgw_supervisor": "process",
            "llmgw_account": os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid()),
            "llmgw_ports": self.ports,
            "llmgw_run_dir": str(self.folder / "runs"),
            "llmgw_published": str(self.folder / "published"),
            "llmgw_sysfs_infiniband": str(self.folder / "machine/sys/class/infiniband"),
            "llmgw_nvidia_smi": str(self.folder / "bin/nvidia-smi"),
            "llmgw_ibnetdiscover": str(self.folder / "bin/ibnetdiscover"),
            "llmgw_iblinkinfo": str(self.folder / "bin/iblinkinfo"),
        }

    # -- its power -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start its sshd."""
        argv = [
            debs.program("sshd"),
            "-D",
            "-f",
            str(self.folder / "sshd_config"),
            "-E",
            str(self.folder / "sshd.log"),
        ]
        self._sshd = self.ground.start(argv, log=self.folder / "console.log", mark=self.folder)

    def ready(self) -> None:
        """Wait for its SSH banner."""
        wait_until(self.greets, lambda: f"no SSH banner from {self.name}: {self.log()}", timeout_s=20)

    def greets(self) -> bool:
        """Whether its sshd sends a banner within a second."""
        if self._sshd and self._sshd.poll() is not None:
            return False  # whoever answers there is another
        with suppress(OSError), socket.create_connection((self.address, SSH_PORT), 1) as link:
            link.settimeout(1)
            return link.recv(4) == b"SSH-"
        return False

    def log(self) -> str:
        """What sshd said last."""
        files = [self.folder / name for name in ("console.log", "sshd.log")]
        return "".join(path.read_text(errors="replace")[-1500:] for path in files if path.exists())

    def processes(self) -> list[int]:
        """Everything that runs on it."""
        return sorted(marked(self.folder))

    def off(self) -> None:
        """Every process gone at once; files stay."""
        signal_all(self.folder, signal.SIGKILL)

    def on(self) -> None:
        """Start it again and wait for SSH."""
        self.start()
        self.ready()

    def freeze(self) -> None:
        """No process of it runs, though connections are completed."""
        signal_all(self.folder, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        signal_all(self.folder, signal.SIGCONT)

    def restore(self) -> None:
        """On, and running."""
        self.thaw()
        if not self.greets():
            self.off()
            self.on()
        self.hardware.restore(self.host.gpus)
