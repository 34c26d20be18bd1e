"""What the lab asks of Linux: namespaces, cgroups, a death that follows its parent's; and whether it is there."""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount", "ssh-keygen", "python3")
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(RuntimeError):
    """Something in the lab did not come about. The message says what, and shows what the part printed."""


class UnavailableError(LabError):
    """This machine cannot have a lab of hosts. The message is the reason, fit for a skipped test."""


def _called(result: int, what: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def join_network(namespace: str) -> None:
    """Move this thread, and whatever it starts from now on, into a network namespace given by its path."""
    handle = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _called(_libc.setns(handle, CLONE_NEWNET), namespace)
    finally:
        os.close(handle)


@contextmanager
def on_network(namespace: str) -> Iterator[None]:
    """This thread is in that network namespace within the block, and back where it was after it."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        join_network(namespace)
        yield
    finally:
        _called(_libc.setns(before, CLONE_NEWNET), "back to the network of before")
        os.close(before)


def die_with_parent() -> None:
    """For preexec_fn: SIGKILL when the thread that started this process ends."""
    _called(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "PR_SET_PDEATHSIG")


def cgroup2() -> Path:
    """Where this machine has its cgroup v2 tree, alone or beside v1."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    raise UnavailableError("there is no cgroup v2 here")


def alive(pid: int) -> bool:
    """Whether a process of that number runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def environment_of(pid: int) -> str:
    """A process's environment, NUL between the variables; empty where it is gone or not ours to read."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return ""


def wait_until(
    done: Callable[[], object], what: Callable[[], str], *, timeout_s: float, pause_s: float = 0.02
) -> None:
    """Ask again and again; LabError with the text of `what` when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise LabError(f"not within {timeout_s:g} s: {what()}")
        time.sleep(pause_s)


def require_lab() -> None:
    """UnavailableError with the reason where a lab of hosts cannot be made."""
    if os.geteuid():
        raise UnavailableError("a lab of hosts needs root")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise UnavailableError(f"not installed: {' '.join(missing)}")
    if "overlay" not in Path("/proc/filesystems").read_text() and not _loads("overlay"):
        raise UnavailableError("this kernel has no overlay file system")
    _try_cgroup()
    _try_namespaces()


def _loads(module: str) -> bool:
    return (
        bool(shutil.which("modprobe")) and subprocess.run(["modprobe", "-q", module], check=False).returncode == 0
    )


def _try_cgroup() -> None:
    probe = cgroup2() / f"llmgw-lab-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise UnavailableError(f"cgroups cannot be made here: {error.strerror}") from None


def _try_namespaces() -> None:
    tried = subprocess.run(
        ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--ipc", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise UnavailableError(f"namespaces cannot be made here: {tried.stderr.strip()}")
