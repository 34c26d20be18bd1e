"""This machine as it would be if it had never seen the project, to run a command on: make test, make demo, .ci/run.

    python -m tests.lab.bare [--user NAME] [--purge PACKAGE]… COMMAND…

An overlay root of the machine in which the project's Debian packages are purged, homes, caches and apt's lists are
empty, and /src/llmgw is a fresh clone of what is committed here. No terminal, no standard input. Every line of output
gets the seconds since the start. A missing install step, which a machine that has everything hides, fails there.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.kernel import LabError, require_lab
from tests.lab.layer import FABRIC, REPOSITORY, REQUIRED
from tests.lab.packages import GROUPS

START = "bare: start\n"
HERE = Path(__file__).resolve().parent
# A host without these would be no Debian; everything else that the project names is purged.
STAYS = {"systemd", "dbus", "libpam-systemd", "procps", "python3"}
MORE = (
    "nftables",
    "chromium-common",
    "chromium-driver",
    "libumad2sim0",
    "python3-venv",
    "python3.11-venv",
    "python3-pip",
    "python3-pip-whl",
)


def purged(extra: Sequence[str] = ()) -> list[str]:
    """The packages that are taken off, of those that are installed."""
    named = {package for group in GROUPS.values() for package in group} | {*REQUIRED, *FABRIC, *MORE, *extra}
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n"], capture_output=True, text=True, check=True
    )
    installed = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    return sorted((named - STAYS) & installed)


def run_bare(command: Sequence[str], *, user: str = "root", purge: Sequence[str] = ()) -> int:
    """Exit status of the command there. Its output goes to stdout, with the seconds since the start."""
    require_lab()
    with tempfile.TemporaryDirectory(prefix="llmgw-bare-") as scratch:
        argv = [
            "unshare",
            "--fork",
            "--kill-child",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "bash",
            str(HERE / "bare.sh"),
        ]
        argv += [scratch, str(REPOSITORY), user, " ".join(purged(purge)), *command]
        began = time.monotonic()
        print("bare: taking things off", flush=True)
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout
        for line in process.stdout:
            if line == START:
                print(f"bare: ready after {time.monotonic() - began:.1f} s; from here on seconds of the command")
                began = time.monotonic()
                continue
            sys.stdout.write(f"{time.monotonic() - began:7.1f}  {line}")
            sys.stdout.flush()
        status = process.wait()
        print(f"{time.monotonic() - began:7.1f}  bare: over, exit status {status}")
    return status


def main(argv: Sequence[str]) -> int:
    """Exit status of the command, 1 where it could not be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--user", default="root", help="an account to run it as, made for it")
    parser.add_argument("--purge", action="append", default=[], metavar="PACKAGE", help="take this off as well")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    if not args.command or not shutil.which("git"):
        parser.error("a command, and git, are needed")
    try:
        return run_bare(args.command, user=args.user, purge=args.purge)
    except LabError as error:
        print(f"bare: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
