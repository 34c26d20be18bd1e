"""Case files: an expected text beside the tests, rewritten by `pytest --write-cases`, the difference reviewed."""

from collections.abc import Callable
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-cases", action="store_true", help="rewrite the expected texts under tests/cases")


@pytest.fixture
def check_case(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the case file of that name under tests/cases, or writes it there."""

    def check(name: str, text: str) -> None:
        path = CASES / name
        if request.config.getoption("--write-cases"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no case {name}: pytest --write-cases writes it"
        assert text == path.read_text(), f"{path} differs: pytest --write-cases, then git diff"

    return check
