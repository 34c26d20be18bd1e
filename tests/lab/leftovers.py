"""What a command left behind on the machine: processes, mounts, network namespaces, cgroups, files.

    python3 -m tests.lab.leftovers [--all] COMMAND…

Runs the command and compares the machine before and after. Exit status: the command's own; 9 where it succeeded and
left something. Of processes, network namespaces and files only what is ours by its name or by a mark in the
environment counts, since others work on the machine too; with --all (on a machine of its own) everything does.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

MARK = "LLMGW_LEFTOVERS"
OURS = ("llmgw", "ibsim", "ansible", "pytest")
PATIENCE_S = 5.0  # what ends by itself, a little after the command


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def processes() -> dict[str, str]:
    """Command lines by PID and start time; kernel threads and zombies have none."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        command = _text(folder / "cmdline").replace("\0", " ").strip()
        fields = _text(folder / "stat").rpartition(")")[2].split()
        if command and fields and int(folder.name) != os.getpid():
            found[f"{folder.name} {fields[19]}"] = command
    return found


def marked(key: str) -> bool:
    """Whether that process was started by the command, however far down."""
    return f"{MARK}={os.environ[MARK]}" in _text(Path("/proc") / key.split()[0] / "environ")


def mounts() -> dict[str, str]:
    lines = _text(Path("/proc/self/mountinfo")).splitlines()
    return {line.split()[4]: line for line in lines}


def network_namespaces() -> dict[str, str]:
    """One process of each, by the namespace's inode."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[str((folder / "ns/net").readlink())] = _text(folder / "cmdline").replace("\0", " ").strip()
        except OSError:
            continue
    return found


def _names(*patterns: str) -> Callable[[], dict[str, str]]:
    def listed() -> dict[str, str]:
        return {str(path): "" for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))}

    return listed


def settings() -> dict[str, str]:
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    return {f"{limit} = {_text(limit).strip()}": ""}


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "process": processes,
    "mount": mounts,
    "network namespace": network_namespaces,
    "interface": _names("/sys/class/net/*"),
    "cgroup": _names("/sys/fs/cgroup/*", "/sys/fs/cgroup/*/llmgw*", "/sys/fs/cgroup/unified/*"),
    "file": _names("/tmp/*", "/run/*", "/run/netns/*", "/var/tmp/*", "/dev/shm/*", f"{Path.home()}/.[!c]*"),
    "setting": settings,
}


def snapshot() -> dict[str, dict[str, str]]:
    """The machine as it is, by kind."""
    return {kind: look() for kind, look in KINDS.items()}


def _counts(kind: str, key: str, words: str) -> bool:
    if kind == "process":
        return marked(key)
    if kind in ("file", "network namespace"):
        return any(word in key + words for word in OURS)
    return True


def left(before: dict[str, dict[str, str]], *, everything: bool) -> list[str]:
    """What is there now and was not before, a line each."""
    lines = []
    for kind, things in snapshot().items():
        for key, words in things.items():
            if key not in before[kind] and (everything or _counts(kind, key, words)):
                lines.append(f"{kind}: {key} {words}".rstrip())
    return lines


def _settled(before: dict[str, dict[str, str]], *, everything: bool) -> list[str]:
    deadline = time.monotonic() + PATIENCE_S
    while (lines := left(before, everything=everything)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return lines


def _report(lines: Iterable[str]) -> None:
    print("left behind on this machine:", file=sys.stderr)
    for line in lines:
        print(f"  {line[:300]}", file=sys.stderr)


def main(argv: Sequence[str]) -> int:
    """Run the command and say what it left."""
    everything = argv[:1] == ["--all"]
    before = snapshot()
    os.environ[MARK] = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="llmgw-") as scratch:
        command = subprocess.Popen(argv[1:] if everything else argv, env=os.environ | {"TMPDIR": scratch})
        signal.signal(signal.SIGTERM, lambda *_: command.terminate())
        status = command.wait()
    lines = _settled(before, everything=everything)
    if lines:
        _report(lines)
    counts = {kind: len(things) for kind, things in snapshot().items()}
    was = {kind: len(things) for kind, things in before.items()}
    print(f"before: {json.dumps(was)}\nafter:  {json.dumps(counts)}", file=sys.stderr)
    return status or (9 if lines else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
