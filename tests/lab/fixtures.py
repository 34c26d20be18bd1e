"""The lab in pytest: what the markers of setup.cfg need, and fixtures. tests/conftest.py loads it as a plugin.

A test that this machine cannot run is skipped with the reason. LLMGW_REQUIRE=lab,simulator,engine,browser makes such
a skip a failure, so that a run which is meant to cover everything cannot pass by leaving something out.
"""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.lab.hosts import Gpu, Host, Init, numbered
from tests.lab.kernel import UnavailableError, require_lab
from tests.lab.lab import Lab
from tests.lab.llama import engine_shares, has_llama
from tests.lab.netfile import Bank, Layout
from tests.lab.node import Node
from tests.lab.site import python_shares

NODES = ("n1", "n2", "n3", "n4", "l1")
FABRICS = (
    Layout("compute", (Bank(NODES, ("mlx5_0", "mlx5_1")),), per_leaf=2, spines=2),
    Layout("storage", (Bank(NODES, ("mlx5_2",)),), rails=False, spines=0, generation="HDR"),
)


def _lab() -> str:
    try:
        require_lab()
    except UnavailableError as error:
        return str(error)
    return ""


def _programs(*names: str) -> Callable[[], str]:
    def missing() -> str:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        absent = [name for name in names if not shutil.which(name, path=path)]
        return f"not installed: {' '.join(absent)} (make packages)" if absent else ""

    return missing


def _engine() -> str:
    return "" if has_llama() else "llama-server was not fetched (make engine)"


NEEDS: dict[str, Callable[[], str]] = {
    "lab": _lab,
    "simulator": _programs("ibsim", "ibnetdiscover"),
    "engine": _engine,
    "browser": _programs("chromium"),
}


def _required() -> set[str]:
    return set(filter(None, os.environ.get("LLMGW_REQUIRE", "").split(",")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run; what must not be skipped fails in its place."""
    required = _required()
    reasons: dict[str, str] = {}
    for item in items:
        for marker in NEEDS.keys() & {mark.name for mark in item.iter_markers()}:
            if marker not in reasons:
                reasons[marker] = NEEDS[marker]()
            if reasons[marker] and marker in required:
                pytest.exit(f"LLMGW_REQUIRE has {marker}, but: {reasons[marker]}", returncode=3)
            if reasons[marker]:
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reasons[marker]}"))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four nodes and a router host with systemd, one node without, two fabrics, engines and models; for the whole run.

    The test process stays off its network: `with lab.entered():`, or lab.run.
    """
    shares = engine_shares()
    router = Host("r1", shares=python_shares())
    hosts = [*numbered(4, gpus=[Gpu()] * 4), Host("l1", Init.LIGHT, gpus=(Gpu(),) * 4), router]
    made = Lab(f"pytest-{os.getpid()}", [host.with_shares(*shares) for host in hosts], fabrics=FABRICS)
    try:
        made.up()
    except UnavailableError as error:
        if "lab" in _required():
            pytest.exit(f"LLMGW_REQUIRE has lab, but: {error}", returncode=3)
        pytest.skip(str(error))
    yield made
    made.down()


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    """A node to break, n2; whatever was done to it, the next test finds it well."""
    yield lab.nodes["n2"]
    lab.nodes["n2"].restore()


@pytest.fixture
def whole_lab(lab: Lab) -> Iterator[Lab]:
    """The lab, every part of which may be broken: all of it is mended afterwards."""
    yield lab
    lab.restore()
