"""Commands of `llmgw fabric`, run in this process on a store of the test's own. tests/conftest.py loads it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.cli.main import run

LLMGW = Callable[..., tuple[int, str, str]]


@pytest.fixture
def llmgw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> LLMGW:
    """Runs a command of `llmgw fabric`: its exit code, stdout and stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["--state", str(tmp_path / "state.db"), "fabric", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command
