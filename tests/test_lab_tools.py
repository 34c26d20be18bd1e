"""What stands round the lab: markers that skip with a reason, and a search for what was left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.layer import REPOSITORY

MARKED = """
import pytest

@pytest.mark.browser
def test_in_a_browser():
    raise AssertionError("was run")

def test_anywhere():
    pass
"""
CONFIG = "[tool:pytest]\nmarkers =\n    browser: drives a browser\n"


def run_pytest(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """pytest with the lab's plugin, on a machine that has no chromium on its PATH."""
    (folder / "test_marked.py").write_text(MARKED)
    (folder / "setup.cfg").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "tests.lab.fixtures", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={"PATH": "/nowhere", "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_the_machine_cannot_do_is_skipped_with_the_reason(tmp_path: Path) -> None:
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "browser: not installed: chromium (make packages)" in done.stdout


def test_what_is_required_is_not_skipped_but_fails_the_run(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, LLMGW_REQUIRE="lab,browser")
    assert done.returncode == 3
    assert "LLMGW_REQUIRE has browser, but: not installed: chromium" in done.stdout


def leftovers(command: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "tests.lab.leftovers", "sh", "-c", command]
    return subprocess.run(
        argv, cwd=REPOSITORY, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.slow
def test_a_process_and_a_file_that_were_left_are_found() -> None:
    path = Path(f"/tmp/llmgw-left-{os.getpid()}")
    done = leftovers(f"touch {path}; setsid sleep 300 >/dev/null 2>&1 </dev/null & ")
    found = [line.split() for line in done.stderr.splitlines() if line.startswith("  process:")]
    for line in found:
        os.kill(int(line[1]), signal.SIGKILL)
    path.unlink()
    assert done.returncode == 9
    assert [line[3:] for line in found] == [["sleep", "300"]]
    assert f"  file: {path}" in done.stderr


def test_a_command_that_leaves_nothing_keeps_its_exit_status() -> None:
    assert leftovers("exit 0").returncode == 0
    assert leftovers("mktemp; exit 4").returncode == 4  # in a folder for temporary files that goes with it


def test_sigterm_reaches_the_command_which_may_clean_up() -> None:
    command = "trap 'exit 5' TERM; echo begun; while :; do sleep 0.05; done"
    argv = [sys.executable, "-m", "tests.lab.leftovers", "bash", "-c", command]
    with subprocess.Popen(
        argv, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as done:
        assert done.stdout is not None
        assert done.stdout.readline() == "begun\n"
        done.terminate()
        assert done.wait() == 5
