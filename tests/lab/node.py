"""One host of a lab, as somebody sees it who stands before the rack: power, cable, console, disk."""

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.hardware import Hardware
from tests.lab.hosts import Host, Init
from tests.lab.kernel import LabError, on_network, wait_until

if TYPE_CHECKING:
    from tests.lab.lab import Lab

HERE = Path(__file__).resolve().parent
CONSOLE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FILL = "/var/tmp/lab-fill"


class Node:
    """A host that is up, off, or broken in one of the ways below."""

    def __init__(self, lab: "Lab", host: Host, address: str) -> None:
        self.lab = lab
        self.host = host
        self.name = host.name
        self.address = address
        self.hardware = Hardware(lab.places.host(host.name) / "machine", host.name)

    def __repr__(self) -> str:
        return f"<{self.name} {self.address}>"

    # -- its console -----------------------------------------------------------------------------------

    def console(
        self, command: str, *, text_in: str | None = None, timeout_s: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """A shell command run as root past SSH, whatever became of the network. LabError where the host is off."""
        pid = self.init_pid()
        if not pid:
            raise LabError(f"{self.name} is off")
        return subprocess.run(
            ["nsenter", "-t", str(pid), "-a", "--", "/bin/sh", "-c", command],
            input=text_in,
            stdin=subprocess.DEVNULL if text_in is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={"PATH": CONSOLE_PATH, "LC_ALL": "C.UTF-8", "HOME": "/root"},
        )

    def sh(self, command: str, *, text_in: str | None = None) -> str:
        """What the command printed on the console; LabError where it failed."""
        done = self.console(command, text_in=text_in)
        if done.returncode:
            raise LabError(f"{self.name}: {command}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def write(self, path: str, text: str, *, mode: str = "644", owner: str = "root") -> None:
        """A file on the host, its folders with it."""
        self.sh(
            f"mkdir -p '{Path(path).parent}' && cat >'{path}' && chmod {mode} '{path}' && chown {owner} '{path}'",
            text_in=text,
        )

    def allow(self, user: str, *commands: str) -> None:
        """Let a user run these commands as root by sudo, without a password, in the words of sudoers(5)."""
        rules = "".join(f"{user} ALL=(root) NOPASSWD: {command}\n" for command in commands)
        path = f"/etc/sudoers.d/lab-{user}"
        self.write(path, rules, mode="440")
        self.sh("visudo -c -q")

    def processes(self, word: str) -> list[int]:
        """The host's own PIDs of its processes that have that word on their command lines."""
        done = self.console(f"pgrep -f -- '[{word[0]}]{word[1:]}'")  # not the shell that runs pgrep
        return [int(pid) for pid in done.stdout.split()]

    def log(self) -> str:
        """What the host's power supply and first steps printed."""
        path = self.lab.places.log(self.name)
        return path.read_text(errors="replace") if path.exists() else ""

    def init_pid(self) -> int:
        """The machine's PID of this host's PID 1; 0 where the host is off."""
        for folder, _, _ in os.walk(self._cgroup / "guest"):
            with suppress(OSError):
                for pid in (Path(folder) / "cgroup.procs").read_text().split():
                    if _is_first(int(pid)):
                        return int(pid)
        return 0

    # -- its power -------------------------------------------------------------------------------------

    @property
    def _cgroup(self) -> Path:
        return self.lab.places.cgroup / self.name

    def boots(self) -> int:
        """How often it was switched on or rebooted."""
        return self.log().count(" wired\n")

    def ready(self, *, timeout_s: float = 30, boots: int = 1) -> None:
        """Wait for the SSH banner of that boot or a later one."""

        # Not before its cable is in: a SYN to an address that nobody answers for waits a second for ARP.
        def answers() -> bool:
            if self.boots() == 0 and f"host {self.name} ended" in self.log():
                raise LabError(f"{self.name} does not boot: {self.log()[-2000:]}")
            return self.boots() >= boots and self.greets()

        wait_until(answers, lambda: f"no SSH banner from {self.name}: {self.log()[-2000:]}", timeout_s=timeout_s)

    def greets(self) -> bool:
        """Whether its sshd sends a banner within a second."""
        with (
            suppress(OSError),
            on_network(self.lab.spaces.network),
            socket.create_connection((self.address, 22), 1) as link,
        ):
            link.settimeout(1)
            return link.recv(4) == b"SSH-"
        return False

    def off(self) -> None:
        """Cut its power: every process gone at once, what was written stays."""
        (self._cgroup / "cgroup.kill").write_text("1")

        def dead() -> bool:
            return "populated 0" in (self._cgroup / "cgroup.events").read_text()

        wait_until(dead, lambda: f"{self.name} does not die", timeout_s=10, pause_s=0.01)

    def on(self) -> None:
        """Switch it on and wait until SSH answers."""
        boots = self.boots()
        self.lab.power([self])
        self.ready(boots=boots + 1)

    def reboot(self) -> None:
        """What `reboot` on its console does; back when SSH answers again."""
        boots = self.boots()
        self.console("systemctl reboot" if self.host.init is Init.SYSTEMD else "reboot")
        self.ready(boots=boots + 1)

    def freeze(self) -> None:
        """It hangs: no process of it runs, though its kernel still answers TCP and completes connections."""
        (self._cgroup / "cgroup.freeze").write_text("1")

    def thaw(self) -> None:
        """It goes on where it was."""
        (self._cgroup / "cgroup.freeze").write_text("0")

    # -- its cable -------------------------------------------------------------------------------------

    @property
    def _port(self) -> str:
        return f"v-{self.name}"

    def cut(self) -> None:
        """Pull its network cable: packets vanish, nothing is reset, nothing is refused."""
        self.lab.spaces.inside("ip", "link", "set", self._port, "nomaster")

    def heal(self) -> None:
        """Plug its cable in again, a good one."""
        self.lab.spaces.inside("ip", "link", "del", f"d-{self.name}", may_fail=True)  # ends wire.py as well
        self.lab.spaces.inside("ip", "link", "set", self._port, "master", "br0")
        self._segments(65535)

    def _segments(self, most: int) -> None:
        """How many segments its TCP may hand to the adapter at once: 1, so that a bad cable deals in frames."""
        if pid := self.init_pid():
            argv = ["nsenter", "-t", str(pid), "-n", "ip", "link", "set", "eth0", "gso_max_segs", str(most)]
            subprocess.run(argv, check=True)

    def wire(self, *, delay_ms: float = 0, loss_percent: float = 0, rate_kbit: float = 0) -> None:
        """Give it a worse cable, each way: so much later, so many frames lost, so many bits a second (0: all)."""
        self.heal()
        self.cut()
        self._segments(1)
        tap = f"d-{self.name}"
        self.lab.spaces.start_inside(
            ["python3", str(HERE / "wire.py"), self._port, tap, str(delay_ms), str(loss_percent), str(rate_kbit)],
            log=tap,
        )

        def plugged() -> bool:
            return "master br0" in self.lab.spaces.inside("ip", "link", "show", tap, may_fail=True)

        wait_until(
            plugged, lambda: f"no wire to {self.name}: {self.lab.places.log(tap).read_text()}", timeout_s=10
        )

    def delay(self, ms: float) -> None:
        """A long cable: every frame takes that long each way."""
        self.wire(delay_ms=ms)

    def lose(self, percent: float) -> None:
        """A bad cable: that share of the frames is lost, each way."""
        self.wire(loss_percent=percent)

    def slow(self, kbit: float) -> None:
        """A slow cable: so many thousand bits a second, each way."""
        self.wire(rate_kbit=kbit)

    # -- its disk --------------------------------------------------------------------------------------

    def fill_disk(self) -> None:
        """No byte more can be written; what is there stays."""
        self.console(f"dd if=/dev/zero of={FILL} bs=1M 2>/dev/null; cat /dev/zero >>{FILL} 2>/dev/null")

    def free_disk(self) -> None:
        """Undo fill_disk."""
        self.sh(f"rm -f {FILL}")

    def restore(self) -> None:
        """Whatever was done to it: on, running, cabled, room on its disk, and `limited` may do nothing."""
        if self.init_pid():
            self.thaw()
            self.heal()
        else:
            self.on()
        self.ready()
        self.sh(f"rm -f {FILL} /etc/sudoers.d/lab-*")
        self.hardware.restore(self.host.gpus)


def _is_first(pid: int) -> bool:
    """Whether it is PID 1 of its innermost PID namespace."""
    status = Path(f"/proc/{pid}/status").read_text()
    return status.split("NSpid:")[1].splitlines()[0].split()[-1] == "1"
