"""The demo's site is one, and the demo does what it says, from a lab to a streamed answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.site import make_site, parse_catalogue, parse_settings
from tests.fakes.tiny_gguf import telling
from tests.lab.demo_stage import FABRICS, NODES, SITE, write_site
from tests.lab.hosts import Gpu, numbered
from tests.lab.kernel import alive
from tests.lab.layer import REPOSITORY
from tests.lab.loopback import LoopbackLab
from tests.lab.state import Places


def listing(hosts: Path, home: Path) -> dict[str, object]:
    """What ansible-inventory says of it."""
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", str(hosts), "--list"]
    environment = os.environ | {"ANSIBLE_HOME": str(home)}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env=environment
    )
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("kind", ["root", "loopback"])
def test_the_demos_files_are_a_site(kind: str, tmp_path: Path) -> None:
    folder = SITE
    if kind == "loopback":
        folder = tmp_path
        write_site(LoopbackLab("demo", numbered(4, gpus=[Gpu()]), fabrics=FABRICS), folder, tmp_path / "published")
    settings = parse_settings((folder / "llmgw.yml").read_text(), "llmgw.yml")
    catalogue = parse_catalogue((folder / "models.yml").read_text(), "models.yml", settings)
    site = make_site(settings, listing(folder / "hosts.yml", tmp_path), catalogue, inventory_name="hosts.yml")
    assert tuple(node.name for node in site.nodes) == NODES
    assert len(site.routers) == 1
    assert set(site.catalogue.models) == {"tiny", "count"}
    assert {settings.fabrics[name].role for name in ("compute", "storage")} == {"compute", "storage"}


@pytest.mark.lab
@pytest.mark.engine
@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_a_streamed_answer_and_leaves_nothing() -> None:
    places = Places("demo")
    if places.record.exists() and alive(places.read().get("switch", 0)):
        pytest.skip("the demo is up on this machine")

    def demo(verb: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "tests.lab.demo", verb]
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return subprocess.run(
            argv,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    try:
        up = demo("up")
        assert up.returncode == 0, up.stdout[-3000:] + up.stderr[-3000:]
        assert "1 short" in up.stdout
        assert " ".join(telling()).strip() in " ".join(up.stdout.split())
        assert "\n 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30\n" in up.stdout
        assert up.stdout.count("finish_reason length, [DONE]]") == 2
    finally:
        down = demo("down")
    assert down.returncode == 0, down.stderr
    assert not places.folder.exists()
    assert not places.cgroup.exists()
