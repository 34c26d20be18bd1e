"""Nodes without root. As root these tests run themselves as an account that is not, on a copy of the checkout."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import debs
from tests.lab.hosts import Gpu, numbered
from tests.lab.kernel import UnavailableError, wait_until
from tests.lab.layer import REPOSITORY
from tests.lab.loopback import ROOT, LoopbackLab
from tests.lab.loopback_ground import marked
from tests.lab.netfile import Bank, Layout

pytestmark = pytest.mark.slow
FABRICS = (
    Layout("compute", (Bank(("n1", "n2"), ("mlx5_0", "mlx5_1")),)),
    Layout("storage", (Bank(("n1", "n2"), ("mlx5_2",)),), rails=False, spines=0, generation="HDR"),
)
APPS = "nvidia-smi --query-compute-apps=gpu_uuid,process_name --format=csv,noheader,nounits"


@pytest.fixture(scope="module")
def loopback() -> Iterator[LoopbackLab]:
    """Two nodes of this account, two fabrics."""
    lab = LoopbackLab("pytest", numbered(2, gpus=[Gpu()] * 2), fabrics=FABRICS)
    try:
        lab.up()
    except UnavailableError as error:
        pytest.skip(str(error))
    yield lab
    lab.down()
    assert not marked(lab.folder)
    assert not lab.folder.exists()


def test_each_node_scans_the_fabric_of_the_device_that_it_is_given(loopback: LoopbackLab) -> None:
    for name, node in loopback.nodes.items():
        done = loopback.ssh(node, "ibnetdiscover -C mlx5_1 -P 1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Ca\t") == 4
        own = next(part for part in loopback.fabrics["compute"].plan.adapters if part.name == f"{name} mlx5_1")
        assert f"Initiated from node {own.guid} port {own.port_guid}" in done.stdout
        assert "storage-leaf1" in loopback.ssh(node, "ibnetdiscover -C mlx5_2").stdout


def test_a_short_cable_is_seen_by_scan_and_stand_in_for_sysfs(loopback: LoopbackLab) -> None:
    fabric = loopback.fabrics["compute"]
    fabric.train(fabric.plan.cable("n2 mlx5_0"), "4xHDR")
    assert loopback.ssh(loopback.nodes["n1"], "ibnetdiscover").stdout.count(" 4xHDR") == 2
    sysfs = loopback.nodes["n2"].variables()["llmgw_sysfs_infiniband"]
    assert loopback.ssh(loopback.nodes["n2"], f"cat {sysfs}/mlx5_0/ports/1/rate").stdout == "200 Gb/sec (4X HDR)\n"
    fabric.restore()
    assert loopback.ssh(loopback.nodes["n1"], "ibnetdiscover").stdout.count(" 4xHDR") == 0


def test_a_process_holds_the_gpu_of_its_own_node_only(loopback: LoopbackLab) -> None:
    one, other = loopback.nodes.values()
    loopback.ssh(one, "LLMGW_GPUS=1 setsid -f sleep 300 </dev/null >/dev/null 2>&1")
    wait_until(lambda: "sleep" in loopback.ssh(one, APPS).stdout, lambda: "not held", timeout_s=5)
    assert loopback.ssh(other, APPS).stdout == ""
    one.off()
    one.on()
    assert loopback.ssh(one, APPS).stdout == ""


def test_an_inventory_leads_ansible_to_the_nodes(loopback: LoopbackLab, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps(loopback.inventory(groups={"gpu_nodes": list(loopback.nodes)})))
    argv = [
        sys.executable,
        "-m",
        "ansible",
        "adhoc",
        "gpu_nodes",
        "-i",
        str(hosts),
        "-m",
        "command",
        "-a",
        "id -u",
    ]
    settings = loopback.environment() | {"ANSIBLE_PIPELINING": "True", "ANSIBLE_HOME": str(tmp_path)}
    done = loopback.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"CHANGED | rc=0 >>\n{os.getuid()}") == 2


def test_a_frozen_node_says_nothing_and_goes_on_when_thawed(loopback: LoopbackLab) -> None:
    node = loopback.nodes["n2"]
    node.freeze()
    assert not node.greets()
    node.thaw()
    assert node.greets()


@pytest.mark.skipif(os.geteuid() == 0, reason="a loopback lab is for accounts that are not root")
def test_nothing_is_left_when_the_owner_is_killed() -> None:
    code = (
        "import time; from tests.lab.loopback import LoopbackLab; from tests.lab.hosts import numbered; "
        "LoopbackLab('doomed', numbered(1)).up(); print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    assert owner.stdout.readline() == "up\n"
    folder = ROOT / "doomed"
    assert marked(folder)
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: not marked(folder) and not folder.exists(), lambda: f"{marked(folder)}", timeout_s=15)


@pytest.mark.lab
@pytest.mark.skipif(os.geteuid() != 0, reason="this account is not root: the tests above ran as it is")
def test_all_of_this_as_an_account_that_is_not_root() -> None:
    """On a machine without sshd, ssh and fabric tools, in an overlay of this one; see tests/lab/bare.py."""
    began = time.monotonic()
    command = "make env && build/venv/bin/pytest tests/test_lab_loopback.py -rs"
    argv = [sys.executable, "-m", "tests.lab.bare", "--user", "dev", "bash", "-c", command]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    print(done.stdout, time.monotonic() - began)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "7 passed" in done.stdout, done.stdout[-2000:]


def test_programs_that_no_package_has_are_refused_in_words() -> None:
    with pytest.raises(UnavailableError, match="there is no no-such-program"):
        debs.program("no-such-program")
