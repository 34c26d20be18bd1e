"""The wheel, installed alone in a fresh environment away from the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.kernel import UnavailableError
from tests.lab.wheel import build_wheel, unpack

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def llmgw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `llmgw` program of a wheel built from this checkout, in an environment that has its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    try:
        wheel = build_wheel(folder)
    except UnavailableError as why:
        pytest.skip(str(why))
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site_packages,) = environment.glob("lib/python3*/site-packages")
    unpack(wheel, site_packages)
    ours = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    for entry in ours.iterdir():  # its dependencies, as pip would have put them there
        target = site_packages / entry.name
        if not target.exists() and "llmgw" not in entry.name.lower() and not entry.name.endswith(".pth"):
            target.symlink_to(entry)
    write_program(environment, "ansible-inventory", "from ansible.cli.inventory import main")
    return write_program(environment, "llmgw", "from llmgw.cli.main import main")


def write_program(environment: Path, name: str, importing: str) -> Path:
    """A console script, as an installer writes it."""
    program = environment / "bin" / name
    program.write_text(f"#!{environment}/bin/python\nimport sys\n{importing}\nsys.exit(main())\n")
    program.chmod(0o755)
    return program


def run(program: Path, *words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LLMGW"))}
    environment |= {"XDG_STATE_HOME": str(cwd / "state")}
    return subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_wheel_works_alone(llmgw: Path, tmp_path: Path) -> None:
    version = run(llmgw, "--version", cwd=tmp_path)
    assert version.stdout.startswith("llmgw 0.")
    made = run(llmgw, "init", "site", "--name", "mine", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "name: mine" in (tmp_path / "site" / "llmgw.yml").read_text()
    checked = run(llmgw, "--site", "site", "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "17 nodes, 2 router hosts; 2 models, 4 replicas wanted" in checked.stderr


def test_the_wheel_carries_the_playbooks(llmgw: Path) -> None:
    (package,) = llmgw.parent.parent.glob("lib/python3*/site-packages/llmgw")
    for path in (ROOT / "playbooks").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            carried = package / "playbooks" / path.relative_to(ROOT / "playbooks")
            assert carried.read_bytes() == path.read_bytes()
            assert not carried.is_symlink()


def test_the_wheel_carries_no_tests_and_nothing_that_was_built(llmgw: Path) -> None:
    (package,) = llmgw.parent.parent.glob("lib/python3*/site-packages/llmgw")
    assert not (package.parent / "tests").exists()
    assert not list(package.rglob("*.db"))
