"""Scans of simulated fabrics by the real tools, over SSH and Ansible: faults are made, and exactly they are named."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.site import PUBLISHED, LabSite

pytestmark = [pytest.mark.lab, pytest.mark.simulator]


@pytest.fixture(scope="module")
def scanned(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> LabSite:
    """A site with two named fabrics, both scanned while they were whole, and published."""
    made = LabSite(lab, tmp_path_factory.mktemp("fabrics") / "site").write()
    made.prepare()
    told = made.llmgw("fabric", "scan").stdout.splitlines()
    assert [line.split(":")[0] for line in told] == ["compute", "storage"]
    assert all(line.endswith("complete") for line in told)
    return made


@pytest.fixture
def site(scanned: LabSite, whole_lab: Lab) -> LabSite:
    """The same, and its fabrics are whole again after the test."""
    return scanned


def scan(site: LabSite, *options: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    return site.llmgw("fabric", "scan", "--no-publish", *options, code=code)


def diff(site: LabSite, fabric: str) -> list[str]:
    return site.llmgw("fabric", "diff", fabric).stdout.splitlines()


def test_the_faults_of_two_fabrics_are_named_and_nothing_else(site: LabSite) -> None:
    compute, storage = site.lab.fabrics["compute"], site.lab.fabrics["storage"]
    assert site.llmgw("fabric", "verify").stdout == "compute: nothing is wrong\nstorage: nothing is wrong\n"
    published = json.loads(site.lab.nodes["r1"].sh(f"cat {PUBLISHED}/fabrics/compute.json"))
    assert (published["format"], published["complete"]) == ("llmgw-topology/1", True)

    pulled, trained = compute.plan.cable("n2 mlx5_0"), compute.plan.cable("n3 mlx5_1")
    between = compute.plan.cable("leaf2", "spine1")
    lost = storage.plan.cable("n4 mlx5_2")
    compute.pull(pulled)
    compute.pull(between)
    compute.train(trained, "4xHDR")
    storage.pull(lost)
    done = scan(site, "--cron", "--detailed-exitcode", code=10)
    assert (done.stdout, done.stderr) == ("", "")
    assert diff(site, "compute") == [
        f"adapter gone: n2 mlx5_0/1, was on compute-{pulled.a.name} port {pulled.a_port}",
        f"cable gone: compute-leaf2 port {between.a_port} - compute-spine1 port {between.b_port}, 4xNDR",
        f"newly short: n3 mlx5_1/1 - compute-{trained.a.name} port {trained.a_port}, 4xNDR to 4xHDR, its kind at 4xNDR",
    ]
    assert diff(site, "storage") == [f"adapter gone: n4 mlx5_2/1, was on storage-{lost.a.name} port {lost.a_port}"]
    _what_verify_says(site)

    compute.plug(pulled)
    compute.plug(between)
    compute.train(trained, "4xNDR")
    storage.plug(lost)
    assert "recovered: n3 mlx5_1/1" in scan(site).stdout
    assert site.llmgw("fabric", "verify").returncode == 0
    seen = [one["times"] for one in site.json("fabric", "history", "compute")["scans"]]
    assert seen == [1, 1, 1]


def _what_verify_says(site: LabSite) -> None:
    """Cables that are missed, by iblinkinfo's word with ports that are down; the short one; no other."""
    done = site.llmgw("fabric", "verify", code=1)
    kinds = [line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("  error")]
    assert sorted(kinds) == ["port down", "port down", "port down", "short cable"]
    assert "is polling" in done.stdout
    assert "n2 mlx5_0/1 - compute-leaf1" in done.stdout


def test_a_silent_switch_makes_a_partial_scan_that_is_told_once_and_calls_nothing_gone(site: LabSite) -> None:
    compute = site.lab.fabrics["compute"]
    compute.silence(compute.plan.by_name["spine1"])
    done = scan(site, "--cron", code=1)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("llmgw: compute: partial: ")
    assert diff(site, "compute") == []
    assert scan(site, "--cron").stderr == ""
    row = next(one for one in site.json("fabric", "list")["fabrics"] if one["name"] == "compute")
    assert (row["state"], row["switches"]) == ("complete, a partial scan since", 8)
    compute.hear(compute.plan.by_name["spine1"])
    assert scan(site, "--cron", "--detailed-exitcode").returncode == 0


def test_where_a_port_is_down_the_next_one_is_scanned_from(site: LabSite) -> None:
    compute = site.lab.fabrics["compute"]
    compute.pull(compute.plan.cable("n1 mlx5_0"))
    scan(site)
    (newest,) = site.json("fabric", "history", "compute", "--limit", "1")["scans"]
    assert newest["what"].startswith("adapter gone: n1 mlx5_0/1")
    sources = {one["name"]: one["source"] for one in site.json("fabric", "list")["fabrics"]}
    assert sources == {"compute": "n3:mlx5_0/1", "storage": "n1:mlx5_2/1"}


def test_a_fabric_that_hangs_is_given_up_and_costs_not_the_other_fabric(site: LabSite) -> None:
    before = {name: _times(site, name) for name in ("compute", "storage")}
    site.settings["scan"] = {"timeout_s": 3}
    site.write()
    compute = site.lab.fabrics["compute"]
    compute.hang()
    figures = site.folder / "llmgw.prom"
    done = scan(site, "--cron", "--timeout", "15", "--textfile", str(figures), code=1)
    compute.go_on()
    compute.forget_clients()
    (line,) = done.stderr.splitlines()
    assert line.startswith("llmgw: no map of compute came about: ")
    assert "took more than 3 s" in line
    for line in (
        'success{fabric="compute"} 0.0',
        'success{fabric="storage"} 1.0',
        'complete{fabric="compute"} 1.0',
    ):
        assert f"llmgw_fabric_scan_{line}\n" in figures.read_text()
    after = {name: _times(site, name) for name in ("compute", "storage")}
    assert after == {"compute": before["compute"], "storage": before["storage"] + 1}


def _times(site: LabSite, fabric: str) -> int:
    """How many scans there were."""
    return sum(one["times"] for one in site.json("fabric", "history", fabric)["scans"])


def test_a_fabric_that_nobody_named_beside_one_for_compute_places_no_replica(lab: Lab, tmp_path: Path) -> None:
    site = LabSite(lab, tmp_path / "site")
    del site.settings["fabrics"]["storage"]
    site.write()
    done = scan(site)
    made_up = next(one for one in site.json("fabric", "list")["fabrics"] if one["name"] != "compute")
    assert made_up["name"].startswith("ib-")
    assert made_up["role"] == "storage"
    assert (
        f"{made_up['name']}: the settings name compute for compute, and not this one; no replica is" in done.stderr
    )
    assert "nothing is placed by it: the settings name compute" in site.llmgw("plan", "--no-refresh").stdout
    site.settings["fabrics"]["storage"] = {"role": "storage", "scan_from": ["n3:mlx5_2/1"]}
    site.write()
    assert f"{made_up['name']} is storage from now on" in scan(site).stderr
    assert [one["name"] for one in site.json("fabric", "list")["fabrics"]] == ["compute", "storage"]
