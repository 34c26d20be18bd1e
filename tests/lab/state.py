"""What a lab keeps on the machine while it is up (/run/llmgw-lab/NAME, a cgroup), and how all of it is removed."""

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.kernel import LabError, cgroup2, environment_of, wait_until

ROOT = Path("/run/llmgw-lab")
TAG = "LLMGW_LAB"
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_EACH = 8  # a systemd takes six, all hosts' root being one user of the machine's


@dataclass(frozen=True, slots=True)
class Places:
    """Where a lab of one name keeps its things."""

    name: str

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def cgroup(self) -> Path:
        return cgroup2() / f"llmgw-lab-{self.name}"

    @property
    def record(self) -> Path:
        return self.folder / "lab.json"

    @property
    def key(self) -> Path:
        return self.folder / "id"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def seed(self) -> Path:
        return self.folder / "seed"

    @property
    def fabrics(self) -> Path:
        return self.folder / "fabrics"

    def host(self, name: str) -> Path:
        return self.folder / "hosts" / name

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def read(self) -> dict[str, Any]:
        """The record of the lab that runs, or ran, under that name; LabError where there is none."""
        try:
            return dict(json.loads(self.record.read_text()))
        except FileNotFoundError:
            raise LabError(f"there is no lab named {self.name}") from None


def names() -> list[str]:
    """The labs that have a folder, alive or left behind."""
    return sorted(path.name for path in ROOT.glob("*/") if path.is_dir())


def sweep(places: Places) -> None:
    """Remove whatever a lab of that name has left, its processes first. Nothing there is nothing to do."""
    if places.record.exists():
        _kill_recorded(places)
    if places.cgroup.exists():
        _remove_cgroup(places.cgroup)
    shutil.rmtree(places.folder, ignore_errors=True)
    _set_inotify()
    with suppress(OSError):
        ROOT.rmdir()  # the last lab's


def _kill_recorded(places: Places) -> None:
    """The record outlives its processes, and numbers are used again: only one that has our mark is ours."""
    record = places.read()
    for role in ("keeper", "switch"):
        pid = record.get(role, 0)
        if pid and pid != os.getpid() and f"{TAG}={places.name}\0" in environment_of(pid) + "\0":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _remove_cgroup(cgroup: Path) -> None:
    (cgroup / "cgroup.kill").write_text("1")

    def gone() -> bool:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        return not cgroup.exists()

    wait_until(gone, lambda: f"{cgroup} is still in use", timeout_s=10, pause_s=0.01)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time, of all that make labs here."""
    folder = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def reserve_inotify(places: Places, hosts: int) -> None:
    """Let a lab of so many hosts run: the limit is one for the machine's root in all its namespaces together."""
    (places.folder / "inotify").write_text(str(INOTIFY_EACH * hosts))
    _set_inotify()


def inotify_needed() -> int:
    """How many inotify instances the labs that are here need."""
    return sum(int(path.read_text()) for path in ROOT.glob("*/inotify"))


def _set_inotify() -> None:
    """What the machine had, and what the labs that are here need; what the machine had when there is none."""
    before = ROOT / "inotify-before"
    with suppress(FileNotFoundError), _alone():
        needed = inotify_needed()
        if needed and not before.exists():
            before.write_text(INOTIFY.read_text())
        if before.exists():
            INOTIFY.write_text(str(int(before.read_text()) + needed))
        if not needed:
            before.unlink(missing_ok=True)
