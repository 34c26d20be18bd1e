"""Scans of real fabrics that developers may have beside the repository, in ../shared (LLMGW_SHARED overrules)."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("LLMGW_SHARED") or Path(__file__).parents[2] / "shared")
FABRICS = SHARED / "fabrics"


def capture(name: str) -> str:
    """The text of a capture as it is, line ends included; skips the test where there is none."""
    path = FABRICS / name
    if not path.exists():
        pytest.skip(f"no capture {name}: {FABRICS} is not on this machine")
    return path.read_bytes().decode("utf-8", "surrogateescape")
