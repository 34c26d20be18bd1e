"""Debian packages that the machine itself lacks, installed by apt so that no service starts.

    python3 -m tests.lab.packages [demo] [test]

Only programs, no services: sshd, systemd and the like are for lab hosts, which have them beside the machine (layer.py).
Standard library only: it runs before there is an environment. What was installed is noted in build/packages.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NOTE = REPOSITORY / "build" / "packages"
POLICY = Path("/usr/sbin/policy-rc.d")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Package, and the program by which it is known.
GROUPS = {
    "demo": {"openssh-client": "ssh", "iproute2": "ip", "graphviz": "dot"},
    "test": {"ibsim-utils": "ibsim", "infiniband-diags": "ibnetdiscover", "chromium": "chromium"},
}


def _has(program: str) -> bool:
    return shutil.which(program, path=PATH) is not None


def missing(groups: Sequence[str]) -> list[str]:
    """The packages of these groups that are not there."""
    return [package for group in groups for package, program in GROUPS[group].items() if not _has(program)]


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """While it lasts, packages start no service. Source: invoke-rc.d(8), policy-rc.d exit status 101."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt(*argv: str) -> int:
    """Exit status of apt-get; what it printed is shown only where it failed."""
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
    return done.returncode


def install(packages: Sequence[str]) -> int:
    """Exit status of apt-get."""
    with _no_service_starts():
        status = _apt("update") or _apt("install", "-y", "--no-install-recommends", *packages)
    if status == 0:
        NOTE.parent.mkdir(exist_ok=True)
        with NOTE.open("a") as note:
            note.writelines(f"{package}\n" for package in packages)
    return status


def main(argv: Sequence[str]) -> int:
    """Install what is missing; without root, or without apt, say what that is and go on."""
    packages = missing(argv or list(GROUPS))
    if not packages:
        return 0
    words = " ".join(packages)
    if os.geteuid() or not shutil.which("apt-get"):
        print(
            f"not installed here: {words}\nwhat needs them is skipped; as root: apt-get install {words}",
            file=sys.stderr,
        )
        return 0
    print(f"installing {words}", file=sys.stderr)
    return install(packages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
