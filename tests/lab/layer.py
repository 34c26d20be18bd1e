"""What lab hosts need and this machine lacks (sshd, sudo, ibsim…), installed beside the machine and never on it.

The packages are installed by apt into an overlay over the machine's own root; what the installation wrote is
kept under build/ and becomes one more layer of every host's root.

    python3 -m tests.lab.layer        makes it; whatever makes a lab does so too
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.lab.kernel import LabError, UnavailableError

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
LAYERS = REPOSITORY / "build" / "hosts"
# Package, and a file by which it is known; the first of several that exists.
REQUIRED = {
    "openssh-server": ("/usr/sbin/sshd",),
    "sudo": ("/usr/bin/sudo",),
    "systemd": ("/lib/systemd/systemd",),
    "dbus": ("/usr/bin/dbus-daemon",),
    "libpam-systemd": (
        "/usr/lib/x86_64-linux-gnu/security/pam_systemd.so",
        "/lib/x86_64-linux-gnu/security/pam_systemd.so",
    ),
    "iproute2": ("/usr/sbin/ip", "/sbin/ip"),
    "procps": ("/usr/bin/ps",),
    "python3": ("/usr/bin/python3",),
}
FABRIC = {
    "ibsim-utils": ("/usr/bin/ibsim",),
    "infiniband-diags": ("/usr/sbin/ibnetdiscover",),
    "opensm": ("/usr/sbin/opensm",),
}


def _lacking(packages: Mapping[str, tuple[str, ...]], *roots: Path) -> list[str]:
    return [
        package
        for package, files in packages.items()
        if not any((root / file.lstrip("/")).exists() for root in roots for file in files)
    ]


def lacks_fabric_tools(layer: Path | None, base: Path = Path("/")) -> str:
    """Why no fabric can be simulated on hosts of that layer; empty where one can be."""
    missing = _lacking(FABRIC, base, *([layer] if layer else []))
    return f"not to be had on this machine: {' '.join(missing)}" if missing else ""


def _key(required: list[str], optional: list[str]) -> str:
    """Changes with what is missing and with every package that is put on the machine or taken off it."""
    status = Path("/var/lib/dpkg/status").read_bytes() if Path("/var/lib/dpkg/status").exists() else b""
    script = (HERE / "layer.sh").read_bytes()
    return hashlib.sha256(repr((required, optional)).encode() + status + script).hexdigest()[:16]


def host_layer(folder: Path = LAYERS) -> Path | None:
    """The folder with what hosts need beside the machine's own files, made if need be; None for nothing.

    UnavailableError where packages are missing and apt cannot install them.
    """
    required, optional = _lacking(REQUIRED, Path("/")), _lacking(FABRIC, Path("/"))
    if not required and not optional:
        return None
    layer = folder / _key(required, optional)
    if not layer.exists():
        if not shutil.which("apt-get"):
            raise UnavailableError(f"not installed, and there is no apt-get: {' '.join(required + optional)}")
        _make(layer, required, optional)
    return layer


def _make(layer: Path, required: list[str], optional: list[str]) -> None:
    shutil.rmtree(layer.parent, ignore_errors=True)  # a layer over packages that the machine no longer has
    scratch, partial = layer.parent / f"scratch.{os.getpid()}", layer.parent / f"partial.{os.getpid()}"
    scratch.mkdir(parents=True)
    partial.mkdir()
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            str(HERE / "layer.sh"),
            str(scratch),
            str(partial),
            " ".join(required),
            " ".join(optional),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    scratch.rmdir()
    if done.returncode:
        shutil.rmtree(partial)
        why = " | ".join(done.stderr.strip().splitlines()[-4:])
        raise UnavailableError(f"apt could not install {' '.join(required + optional)}: {why}")
    _forget_overlay(partial)
    try:
        partial.rename(layer)
    except OSError as error:
        raise LabError(f"{layer}: {error}") from None


def _forget_overlay(layer: Path) -> None:
    """Remove what the overlay noted of its own on the files, but for which folders hide those below them."""
    for path in (layer, *layer.rglob("*")):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith("trusted.overlay.") and name != "trusted.overlay.opaque":
                os.removexattr(path, name, follow_symlinks=False)


if __name__ == "__main__":
    try:
        print(host_layer() or "hosts need nothing that this machine has not")
    except LabError as error:
        sys.exit(f"lab: {error}")
