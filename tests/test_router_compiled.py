"""The router with its hot path compiled answers as it does otherwise: the same tests, on a compiled copy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.kernel import UnavailableError
from tests.lab.layer import REPOSITORY as ROOT
from tests.lab.wheel import compiled_site

pytestmark = pytest.mark.slow
SUITES = ("faults", "guards", "processes")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Under which Python finds the compiled copy first."""
    try:
        site = compiled_site()
    except UnavailableError as why:
        pytest.skip(str(why))
    return os.environ | {"PYTHONPATH": f"{site}:{ROOT}", "PYTHONSAFEPATH": "1"}


def test_the_copy_is_compiled_and_found_first(environment: dict[str, str]) -> None:
    asked = "import llmgw.router.exchange as found; print(found.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).suffix == ".so"
    assert done.stdout.startswith(environment["PYTHONPATH"].partition(":")[0])


@pytest.mark.parametrize("suite", SUITES)
def test_it_passes_the_routers_tests(environment: dict[str, str], suite: str) -> None:
    argv = [str(Path(sys.executable).parent / "pytest"), "--import-mode=append", f"tests/test_router_{suite}.py"]
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
