"""What a loopback lab's nodes and simulators share: a folder, programs without installation, processes with a mark."""

import os
import signal
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.lab import debs
from tests.lab.kernel import LabError, environment_of
from tests.lab.simulator import Meeting

MARK = "LLMGW_LOOPBACK"
SSH = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
FABRICS = {"ibsim": "ibsim-utils", "ibnetdiscover": "infiniband-diags", "opensm": "opensm"}


class LoopbackGround:
    """The machine itself, as the account that runs the lab; see tests.lab.simulator.Ground."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Another for each account and lab: of the loopback network 127/8 everyone may listen on every address.
        self.subnet = f"127.77.{zlib.crc32(f'{os.getuid()} {folder.name}'.encode()) % 250 + 1}"
        self.fabrics = folder / "fabrics"
        self.fabrics_inside = str(self.fabrics)
        self.tools_path = f"{debs.ROOT}/usr/sbin:{debs.ROOT}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.umad2sim = ""

    def provide(self, *, fabrics: bool) -> None:
        """Find sshd and ssh, and for fabrics their tools, unpacking what is missing. UnavailableError if not."""
        debs.provide(SSH | (FABRICS if fabrics else {}))
        if fabrics:
            self.umad2sim = str(debs.library("umad2sim/libumad2sim.so"))

    def environment(self, mark: Path) -> dict[str, str]:
        """What every process of the lab is started with; the mark says whose it is."""
        own = {key: os.environ[key] for key in ("HOME", "LANG", "LOGNAME", "USER") if key in os.environ}
        own |= {"PATH": self.tools_path, MARK: str(mark), "PYTHONDONTWRITEBYTECODE": "1"}
        return own | ({"LD_LIBRARY_PATH": found} if (found := debs.libraries()) else {})

    def make_key(self, path: Path, comment: str) -> None:
        """An SSH key of its own."""
        self.inside(debs.program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))

    def meeting(self, fabric: str, number: int) -> Meeting:  # noqa: ARG002
        """By the abstract unix sockets that ibsim makes unless told otherwise: nothing listens on the network."""
        name = f"llmgw-{os.getuid()}-{self.folder.name}-{fabric}"
        socket = {"IBSIM_SOCKNAME": name}
        return Meeting("", socket, socket, f"unix:{name}", 0)

    def read_log(self, name: str) -> str:
        """What something that was started has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def inside(self, *argv: str, may_fail: bool = False, tools: bool = False) -> str:  # noqa: ARG002
        """What a command printed."""
        done = subprocess.run(
            argv,
            env=self.environment(self.folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not may_fail:
            raise LabError(f"{' '.join(argv)}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def start_inside(
        self,
        argv: Sequence[str],
        *,
        log: str,
        tools: bool = False,  # noqa: ARG002
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Leave a command running; what it prints is appended to NAME.log."""
        self.start(argv, log=self.folder / f"{log}.log", mark=self.folder, stdin=stdin)

    def start(
        self, argv: Sequence[str], *, log: Path, mark: Path, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        """A process in a session of its own, marked."""
        with log.open("ab") as writes:
            return subprocess.Popen(
                argv,
                env=self.environment(mark),
                stdin=stdin,
                stdout=writes,
                stderr=writes,
                start_new_session=True,
            )


def marked(folder: Path) -> set[int]:
    """Processes that were started for that folder or below it.

    Known by the mark, by the PATH that SSH gave them, or as sshd's by the settings file that it names (it writes its
    title over its environment); and with each of these all that are below it.
    """
    parents, found = {}, set()
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        parents[pid] = _parent(path)
        if pid != os.getpid() and _is_marked(path, folder):
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _is_marked(process: Path, folder: Path) -> bool:
    words = (f"{MARK}={folder}", f"PATH={folder}/")
    if any(line.startswith(words) for line in environment_of(int(process.name)).split("\0")):
        return True
    with suppress(OSError):
        return f" -f {folder}/" in (process / "cmdline").read_text(errors="replace").replace("\0", " ")
    return False


def _parent(process: Path) -> int:
    with suppress(OSError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def signal_all(folder: Path, number: signal.Signals) -> None:
    """Send a signal to all of them, again until a round finds no new one: they may be forking."""
    seen: set[int] = set()
    while fresh := marked(folder) - seen:
        for pid in fresh:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        seen.update(fresh)


def settings(values: Mapping[str, object]) -> str:
    """Lines of sshd_config, or of a shell's exports."""
    return "".join(f"{name} {value}\n" for name, value in values.items())
