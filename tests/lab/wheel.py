"""llmgw as a wheel, as it is or with the router's hot path compiled.

    python -m tests.lab.wheel

Builds the compiled one under build/compiled, unpacks it beside (`site`, for PYTHONPATH) and prints its path. Needs a C
compiler; a build that is younger than every source is kept.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lab.kernel import LabError, UnavailableError
from tests.lab.layer import REPOSITORY

COMPILED = REPOSITORY / "build" / "compiled"
SITE = COMPILED / "site"
_LEFT_OUT = shutil.ignore_patterns("build", ".*", "*.egg-info", "__pycache__")


def build_wheel(folder: Path, **environment: str) -> Path:
    """The wheel of this checkout, in that folder. UnavailableError where the tools for it are missing."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        shutil.copytree(REPOSITORY, source, symlinks=True, ignore=_LEFT_OUT)
        argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
        done = subprocess.run(
            argv,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if "No module named build" in done.stderr:
        raise UnavailableError("the package build is not installed (make env)")
    if done.returncode:
        raise LabError(f"no wheel: {done.stderr.strip()[-2000:]}")
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)


def unpack(wheel: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True)


def compiled_site() -> Path:
    """A folder for PYTHONPATH with a compiled llmgw of this checkout. UnavailableError without a C compiler."""
    if not shutil.which("cc"):
        raise UnavailableError("there is no C compiler (Debian: gcc)")
    sources = [*(REPOSITORY / "llmgw").rglob("*.py"), REPOSITORY / "setup.py", REPOSITORY / "pyproject.toml"]
    if not SITE.exists() or SITE.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        shutil.rmtree(COMPILED, ignore_errors=True)
        COMPILED.mkdir(parents=True)
        unpack(build_wheel(COMPILED, LLMGW_COMPILE="1"), COMPILED / "unpacked")
        (COMPILED / "unpacked").rename(SITE)
    return SITE


if __name__ == "__main__":
    try:
        compiled_site()
    except LabError as error:
        sys.exit(f"{error}")
    print(*COMPILED.glob("*.whl"))
