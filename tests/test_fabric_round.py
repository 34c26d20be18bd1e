"""The round of scans, without any node: what is made of what ports bring, and where is scanned from next."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmgw.cli.main import run
from llmgw.cli.maps import Ground
from llmgw.cli.scanning import FAILURES, Round, _known_fabrics, _sources
from llmgw.cli.workspace import Workspace
from llmgw.fabric import InventoryPort, ScanSource
from llmgw.remote.playbook import Session
from llmgw.remote.scanning import ScanText
from llmgw.store.maps import fabrics, scans
from tests.fakes.fabrics import Cluster, fat_tree

SETTINGS = """
format: llmgw-site/1
name: round
fabrics:
  compute: {role: compute, scan_from: ["gpu0002:mlx5_0/1"]}
  storage: {role: storage, scan_from: ["gpu0001:mlx5_9/1"]}
"""


def compute() -> Cluster:
    return fat_tree(nodes=4, rails=2, nodes_per_leaf=4, spines=1, rate="4xHDR")


def storage() -> Cluster:
    made = fat_tree(nodes=4, rails=1, nodes_per_leaf=4, spines=1, rate="4xHDR")
    turned = {guid: f"{guid[:8]}ff{guid[10:]}" for guid in made.devices}
    for guid, device in made.devices.items():
        device.guid = device.system = turned[guid]
        device.name = device.name.replace("mlx5_0", "mlx5_9")
    made.devices = {turned[guid]: device for guid, device in made.devices.items()}
    made.cables = {((turned[a], m), (turned[b], n)): rate for ((a, m), (b, n)), rate in made.cables.items()}
    made.scanner = turned[made.scanner]
    return made


def ports_of(*clusters: Cluster, down: Sequence[str] = ()) -> tuple[InventoryPort, ...]:
    """What the nodes report of their adapters; `down` are descriptions."""
    return tuple(
        InventoryPort(*device.name.split(), 1, guid, "DOWN" if device.name in down else "ACTIVE", node_guid=guid)
        for cluster in clusters
        for guid, device in cluster.devices.items()
        if device.kind == "H"
    )


class Rounds:
    """Rounds on one site and its store."""

    def __init__(self, folder: Path) -> None:
        assert run(["init", str(folder)]) == 0
        (folder / "llmgw.yml").write_text(SETTINGS)
        self.workspace = Workspace(folder, folder / "state.db")
        self.said: list[str] = []

    def begin(self, ports: Sequence[InventoryPort], *, seconds: float = 60.0, only: Sequence[str] = ()) -> Round:
        self.said.clear()
        hosts = tuple(dict.fromkeys(port.node for port in ports))
        under = Ground(hosts, tuple(ports), self.workspace.settings)
        session = Session(self.workspace.path("hosts.yml"), sockets=self.workspace.folder)
        until = time.monotonic() + seconds
        return Round(self.workspace, session, under, frozenset(only), until, self.said.append)

    def names(self) -> list[str]:
        return [one.name for one in fabrics(self.workspace.store)]


@pytest.fixture
def rounds(tmp_path: Path) -> Rounds:
    return Rounds(tmp_path / "site")


def text(node: str, device: str, cluster: Cluster | str, *, stderr: str = "") -> ScanText:
    raw = cluster if isinstance(cluster, str) else cluster.text()
    return ScanText(ScanSource(node, device, 1), raw, stderr)


def test_a_fabric_is_named_by_the_port_that_the_settings_name_wherever_it_was_scanned_from(rounds: Rounds) -> None:
    done = rounds.begin(ports_of(compute(), storage()))
    done.settle(text("gpu0004", "mlx5_1", compute()))
    done.settle(text("gpu0003", "mlx5_9", storage()))
    assert [one.name for one in done.kept] == rounds.names() == ["compute", "storage"]
    assert done.unseen == []


def test_a_fabric_gets_its_name_when_the_settings_come_to_name_it(rounds: Rounds) -> None:
    first = rounds.begin(())
    first.settle(text("gpu0004", "mlx5_1", compute()))
    (made_up,) = rounds.names()
    assert made_up.startswith("ib-")
    second = rounds.begin(ports_of(compute()))
    second.settle(text("gpu0004", "mlx5_1", compute()))
    assert rounds.names() == ["compute"]
    assert f"{made_up} is compute from now on, as the settings name one of its ports" in rounds.said
    assert [one.number for one in scans(rounds.workspace.store, "compute")][-1] == 1


def test_a_rejected_text_is_kept_with_the_fabric_that_has_its_port_and_changes_nothing(rounds: Rounds) -> None:
    rounds.begin(ports_of(compute())).settle(text("gpu0001", "mlx5_0", compute()))
    done = rounds.begin(ports_of(compute()))
    done.settle(text("gpu0003", "mlx5_1", compute().text()[:2500]))
    assert done.kept == []
    assert done.unseen == ["compute"]
    assert "gpu0003:mlx5_1/1: rejected: " in rounds.said[0]
    assert [one.verdict for one in scans(rounds.workspace.store, "compute")] == ["rejected", "complete"]
    assert fabrics(rounds.workspace.store)[0].map == 1


def test_a_rejected_text_of_a_fabric_that_was_never_seen_leaves_nothing(rounds: Rounds) -> None:
    done = rounds.begin(ports_of(compute()))
    done.settle(text("gpu0003", "mlx5_1", "garbage"))
    assert rounds.names() == []
    assert len(done.failures) == 1


def test_two_fabrics_that_were_joined_are_told(rounds: Rounds) -> None:
    first = rounds.begin(ports_of(compute(), storage()))
    first.settle(text("gpu0001", "mlx5_0", compute()))
    first.settle(text("gpu0001", "mlx5_9", storage()))
    joined, other = compute(), storage()
    joined.devices |= other.devices
    joined.cables |= other.cables
    joined.join(joined.named_first("spine"), 60, other.named_first("spine"), 60, "4xHDR")
    done = rounds.begin(ports_of(compute(), storage()))
    done.settle(text("gpu0001", "mlx5_0", joined))
    assert [one.name for one in done.kept] == ["compute"]
    assert "compute: has switches of storage too: the two are joined, or switches were moved" in rounds.said


def test_the_settings_port_comes_first_then_ports_that_the_fabric_is_known_to_have(rounds: Rounds) -> None:
    ports = ports_of(compute(), storage())
    rounds.begin(ports).settle(text("gpu0001", "mlx5_9", storage()))
    rounds.begin(ports).settle(text("gpu0001", "mlx5_0", compute()))
    order = [str(one) for one in _sources(rounds.begin(ports), ports, "compute", ["gpu0002:mlx5_0/1"])]
    assert order[:3] == ["gpu0002:mlx5_0/1", "gpu0001:mlx5_0/1", "gpu0003:mlx5_0/1"]
    assert len(order) == 8
    assert not any("mlx5_9" in one for one in order)


def test_ports_that_are_down_or_seen_in_this_round_are_not_scanned_from(rounds: Rounds) -> None:
    ports = ports_of(compute(), storage(), down=["gpu0002 mlx5_0"])
    done = rounds.begin(ports)
    assert "gpu0002:mlx5_0/1" not in map(str, _sources(done, ports, "compute", ["gpu0002:mlx5_0/1"]))
    done.settle(text("gpu0001", "mlx5_0", compute()))
    assert {one.device for one in _sources(done, ports, "storage", [])} == {"mlx5_9"}


def test_a_round_gives_up_after_eight_ports_or_when_its_time_is_over(rounds: Rounds) -> None:
    ports = ports_of(compute())
    done = rounds.begin(ports)
    for number in range(FAILURES):
        assert not done.is_over
        done.settle(ScanText(ScanSource(f"n{number}", "mlx5_0", 1), failed="ibnetdiscover took more than 120 s"))
    assert done.is_over
    assert list(_sources(done, ports, "compute", [])) == []
    late = rounds.begin(ports, seconds=0.0)
    _known_fabrics(late, ports)
    assert late.tried == set()


def test_a_fabric_that_was_asked_for_and_gave_no_map_is_unseen(rounds: Rounds) -> None:
    done = rounds.begin(ports_of(compute()), only=["compute", "nope"])
    done.settle(text("gpu0001", "mlx5_0", compute()))
    assert done.unseen == ["nope"]


def test_a_fabric_that_nobody_knows_is_refused_before_any_node_is_asked(
    rounds: Rounds, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = rounds.workspace.site_folder
    assert run(["--site", str(folder), "--state", str(folder / "state.db"), "fabric", "scan", "computee"]) == 2
    said = capsys.readouterr().err
    assert "there is no fabric computee" in said
    assert "did you mean compute?" in said


def test_no_more_scans_are_kept_than_the_settings_say_and_always_the_map(
    rounds: Rounds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds.workspace.path("llmgw.yml").write_text(SETTINGS + "scan: {keep: 2}\n")
    rounds.workspace.path("models.yml").write_text("format: llmgw-models/1\nmodels: {}\n")
    begin = ["--site", str(rounds.workspace.site_folder), "--state", str(tmp_path / "x.db"), "fabric"]
    whole = tmp_path / "whole"
    whole.write_text(compute().text())
    assert run([*begin, "scan", "compute", "--from", str(whole)]) == 0
    for number in range(5):
        part = compute()
        part.silence("leaf-1-2") if number % 2 else part.short("gpu0001 mlx5_0", "1xHDR")
        lost = "query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,9 Attr 0x11:0) bad status 110; timed out\n"
        whole.write_text(lost + part.text())
        assert run([*begin, "scan", "compute", "--from", str(whole)]) == 0
    capsys.readouterr()
    assert run([*begin, "history", "compute", "--no-headers"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["6", "5", "1"]
