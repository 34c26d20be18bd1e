"""Programs from Debian packages without installing anything and without root: unpacked under build/debian."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.lab.kernel import UnavailableError

FOLDER = Path(__file__).resolve().parent.parent.parent / "build" / "debian"
ROOT = FOLDER / "root"


def provide(packages: Mapping[str, str]) -> None:
    """Make sure of programs, given with the package of each: what the machine has not is unpacked, all at once.

    UnavailableError where there is no apt that can fetch them, or a package has not the program.
    """
    lacking = {name: package for name, package in packages.items() if not find(name)}
    if lacking:
        unpack(*dict.fromkeys(lacking.values()))
    if still := [name for name in lacking if not find(name)]:
        raise UnavailableError(f"not to be had: {' '.join(still)}")


def find(name: str) -> Path | None:
    """A program of that name: the machine's own, or one that was unpacked."""
    if own := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        return Path(own)
    return next((path for folder in ("usr/sbin", "usr/bin") if (path := ROOT / folder / name).exists()), None)


def program(name: str) -> str:
    """The path of a program that was provided."""
    if path := find(name):
        return str(path)
    raise UnavailableError(f"there is no {name}")


def provide_dot() -> None:
    """Graphviz's dot, which is a link into another package (libgvc6) and wants its plugins listed once, by -c."""
    if shutil.which("dot") or (ROOT / "usr/bin/dot").exists():
        return
    unpack("graphviz")
    dot, machines_own = ROOT / "usr/bin/dot", Path("/usr/sbin/libgvc6-config-update")
    if not dot.exists() and machines_own.exists():
        dot.unlink()
        dot.symlink_to(machines_own)
    elif dot.exists():
        subprocess.run([str(dot), "-c"], env=os.environ | environment(), check=False, stdin=subprocess.DEVNULL)


def environment() -> dict[str, str]:
    """What programs that were unpacked are started with; empty where nothing was."""
    found = {}
    if folders := libraries():
        found["LD_LIBRARY_PATH"] = folders
    for plugins in ROOT.glob("usr/lib/*-linux-gnu/graphviz"):
        if list(plugins.glob("libgvplugin_*")):
            found["GVBINDIR"] = str(plugins)
    return found


def libraries() -> str:
    """LD_LIBRARY_PATH for what was unpacked; empty where nothing was."""
    return ":".join(str(path) for path in sorted(ROOT.glob("usr/lib/*-linux-gnu")))


def library(name: str) -> Path:
    """A library by its place under /usr/lib/*-linux-gnu: unpacked, or the machine's own."""
    for root in (ROOT, Path("/")):
        for path in sorted(root.glob(f"usr/lib/*-linux-gnu/{name}")):
            return path
    raise UnavailableError(f"there is no {name}")


def _apt(*argv: str, folder: Path = FOLDER) -> str:
    """apt-get with lists and caches of our own, so that any account may use it."""
    settings: Mapping[str, object] = {
        "Dir::State::Lists": FOLDER / "lists",
        "Dir::Cache": FOLDER / "cache",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    done = subprocess.run(
        ["apt-get", "-qq", *options, *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"apt-get {argv[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def unpack(*packages: str) -> None:
    """Unpack packages with whatever they need that is not installed. UnavailableError where apt cannot fetch them."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise UnavailableError(f"not installed, and there is no apt-get: {' '.join(packages)}")
    for name in ("lists/partial", "cache/archives/partial", "debs", "root"):
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
    _apt("update")
    planned = _apt("install", "--simulate", "--no-install-recommends", *packages)
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    _apt("download", *names, folder=FOLDER / "debs")
    for deb in sorted((FOLDER / "debs").glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(ROOT)], check=True)
        deb.unlink()
