"""The Python environment under build/venv, every package by its hash in requirements.lock.

    python3 -m tests.lab.venv

Needs Python 3.11 to 3.13 and nothing else: no pip, no venv package of Debian's, no root. pip comes from the wheel that
Python or Debian carries; it brings uv, which brings the rest four times as fast. Where uv cannot reach an index (a
mirror that only pip.conf names) pip does that too. Standard library only.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.lab.kernel import LabError

REPOSITORY = Path(__file__).resolve().parent.parent.parent
VENV = REPOSITORY / "build" / "venv"
LOCK = REPOSITORY / "requirements.lock"
PYTHON = VENV / "bin" / "python"


def _carried() -> Iterator[Path]:
    """Wheels of pip that are on the machine: CPython's own, Debian's, one that was unpacked before."""
    from tests.lab.debs import ROOT

    stdlib = Path(venv.__file__).parent.parent
    for folder in (
        stdlib / "ensurepip/_bundled",
        Path("/usr/share/python-wheels"),
        ROOT / "usr/share/python-wheels",
    ):
        yield from sorted(folder.glob("pip-*.whl"), reverse=True)


def pip_wheel() -> Path:
    """A wheel that pip can be run from, fetched from Debian's archive where the machine has none."""
    from tests.lab.debs import unpack

    for wheel in _carried():
        return wheel
    unpack("python3-pip-whl")
    for wheel in _carried():
        return wheel
    raise LabError("there is no pip for this Python; install its ensurepip (Debian: python3-venv)")


def _run(*argv: object) -> bool:
    return (
        subprocess.run(
            [str(word) for word in argv], cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


def _must(*argv: object) -> None:
    if not _run(*argv):
        raise LabError(f"failed: {' '.join(str(word) for word in argv)}")


def build() -> None:
    """Make it anew."""
    shutil.rmtree(VENV, ignore_errors=True)
    venv.create(VENV, with_pip=False, symlinks=True)
    pip = [
        sys.executable,
        pip_wheel() / "pip",
        "--python",
        PYTHON,
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    uv_alone = re.search(r"^uv==.*?(?=^\S)", LOCK.read_text() + "\nend", re.MULTILINE | re.DOTALL)
    assert uv_alone
    (VENV / "uv.lock").write_text(uv_alone[0])
    _must(*pip, "--require-hashes", "--requirement", VENV / "uv.lock")
    uv = [VENV / "bin/uv", "pip", "install", "--quiet", "--python", PYTHON]
    if not _run(*uv, "--require-hashes", "--requirement", LOCK):
        _must(*pip, "--require-hashes", "--requirement", LOCK)
    _must(*uv, "--no-deps", "--no-build-isolation", "--editable", ".")


def main() -> int:
    """Exit status."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        sys.exit("llmgw needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 …")
    try:
        build()
    except LabError as error:
        sys.exit(f"env: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
