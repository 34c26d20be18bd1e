"""What goes out of a map: the topology document, the planner's paths, findings, and exports."""

import json
import re
from datetime import UTC, datetime

import yaml
from prometheus_client.parser import text_string_to_metric_families

from llmgw.base import hosts_of
from llmgw.fabric import (
    DownPort,
    Fabric,
    Findings,
    Paths,
    Sample,
    Topology,
    finding_lines,
    host_list,
    prometheus,
    read,
    slurm_conf,
    slurm_yaml,
)
from llmgw.fabric.analyse import analyse
from llmgw.fabric.node_paths import paths
from llmgw.fabric.topology import topology
from llmgw.fabric.verify import verify
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.scans import NOW, one_leaf


def cluster() -> Cluster:
    made = fat_tree(nodes=8, rails=2, nodes_per_leaf=4, spines=2, cables=2, rate="4xHDR", pods=2, cores=2)
    made.short("gpu0002 mlx5_1", "1xHDR")
    made.swap("gpu0003 mlx5_0", "gpu0003 mlx5_1")
    return made


def fabric_of(made: Cluster) -> Fabric:
    return analyse(read(made.text()))


def test_the_topology_document_has_the_keys_that_were_agreed_on() -> None:
    document = json.loads(
        topology(fabric_of(cluster()), name="ib0", scanned_at=NOW, scanned_from="gpu0001").text()
    )
    assert list(document) == [
        "format", "fabric", "scanned_at", "scanned_from", "complete", "problems", "rail_aligned",
        "switches", "adapters", "links", "summary",
    ]  # fmt: skip
    assert (document["format"], document["fabric"], document["complete"]) == ("llmgw-topology/1", "ib0", True)
    assert document["scanned_at"] == "2026-12-01T08:47:56Z"
    assert set(document["switches"][0]) == {"guid", "name", "lid", "ports", "tier", "rail", "chassis"}
    assert set(document["adapters"][0]) == {
        "guid", "port", "device", "node", "description", "leaf", "rail", "off_rail", "rate",
    }  # fmt: skip
    assert set(document["links"][0]) == {"a", "b", "rate", "expected", "degraded"}
    assert document["summary"] == {
        "switches": 14, "leaves": 8, "spines": 4, "cores": 2, "adapters": 32, "nodes": 16, "links": 72,
        "degraded": 1, "off_rail": 2, "unnamed_adapters": 0,
    }  # fmt: skip


def test_the_topology_document_can_be_read_again_and_is_the_same_for_blocks_in_any_order() -> None:
    first = topology(fabric_of(cluster()), name="ib0", scanned_at=NOW)
    assert Topology.read(first.text(), "x") == first
    made = cluster()
    head, *blocks = made.text().split("\n\n")
    turned = "\n\n".join([head, *(block.strip("\n") for block in reversed(blocks))]) + "\n"
    assert topology(analyse(read(turned)), name="ib0", scanned_at=NOW).text() == first.text()


def test_every_cable_is_one_link_of_the_lower_end_first() -> None:
    document = topology(fabric_of(cluster()), name="ib0", scanned_at=NOW)
    ends = [((link.a.guid, link.a.port), (link.b.guid, link.b.port)) for link in document.links]
    assert all(a < b for a, b in ends)
    assert len({end for two in ends for end in two}) == 2 * len(ends)


def test_paths_have_what_placement_asks_for() -> None:
    found = paths(fabric_of(cluster()), name="ib0", scan=8812)
    assert Paths.read(found.text(), "x") == found
    assert (found.fabric, found.complete, found.rail_aligned, found.scan) == ("ib0", True, True, 8812)
    assert list(found.domains) == ["leaf-1-1", "leaf-1-3", "leaf-2-1", "leaf-2-3"]
    assert [domain.pod for domain in found.domains.values()] == ["pod-1", "pod-1", "pod-2", "pod-2"]
    short = found.nodes["gpu0002"]
    assert [(one.node_end, one.switch_end, one.rate, one.expected) for one in short.short] == [
        ("gpu0002 mlx5_1/1", "leaf-1-2 port 2", "1xHDR", "4xHDR")
    ]
    crossed = found.nodes["gpu0003"]
    assert crossed.off_rail
    assert crossed.domain == found.nodes["gpu0001"].domain
    assert [(one.device, one.rail, one.off_rail) for one in crossed.rails] == [
        ("mlx5_0", 1, True),
        ("mlx5_1", 2, True),
    ]


def test_paths_are_those_of_the_inventory_where_there_is_one() -> None:
    found = paths(fabric_of(cluster()), name="ib0", hosts=["gpu0002", "gpu0009", "elsewhere"])
    assert list(found.nodes) == ["gpu0002", "gpu0009"]
    assert list(found.domains) == ["leaf-1-1", "leaf-2-1"]


def test_domains_keep_their_ids_when_a_leaf_goes_and_new_ones_take_none_that_was_given() -> None:
    made = cluster()
    before = paths(fabric_of(made), name="ib0")
    made.silence("leaf-1-1")
    without_memory = analyse(read(made.text()))
    assert "leaf-1-1" not in without_memory.domains
    after = analyse(read(made.text()), earlier=before.domains)
    assert list(after.domains) == list(before.domains)
    assert [domain.pod for domain in after.domains.values()] == ["pod-1", "pod-1", "pod-2", "pod-2"]


def test_domains_of_unmanaged_switches_have_readable_ids_too() -> None:
    names = [f"n{number} mlx5_0" for number in range(1, 4)]
    found = paths(analyse(read(one_leaf(*names, switch_name="Quantum Mellanox Technologies"))), name="ib0")
    assert list(found.domains) == ["Quantum"]


def test_a_storage_switch_over_all_nodes_leaves_the_compute_leaves_their_domains() -> None:
    made = Cluster()
    leaves = [
        made.add("S", f"MF0;{name}:MQM8700/U1", ports=41, model=0xD2F0) for name in ("comp1", "comp2", "stor")
    ]
    for number, name in enumerate("abcdef"):
        for device, leaf in ((0, leaves[number // 3]), (1, leaves[2])):
            own = made.add("H", f"{name} mlx5_{device}", ports=1, model=0x101B)
            made.join(leaf, number + 1, own, 1, "4xHDR")
    made.join(leaves[0], 40, leaves[2], 39, "4xHDR")
    made.join(leaves[1], 40, leaves[2], 40, "4xHDR")
    domains = analyse(read(made.text())).domains
    assert {one: domain.nodes for one, domain in domains.items()} == {
        "comp1": ("a", "b", "c"),
        "comp2": ("d", "e", "f"),
    }


def test_verify_says_what_is_wrong_now_worst_first() -> None:
    fabric = fabric_of(cluster())
    spine = next(guid for guid, switch in fabric.switches.items() if switch.label == "spine-1-1")
    down = [DownPort(spine, 40, "MF0;spine-1-1:MQM9700/U1", "Polling", spine, 41)]
    found = verify(fabric, name="ib0", scanned_at=NOW, down=down)
    assert Findings.read(found.text(), "x") == found
    assert not found.healthy
    assert finding_lines(found) == [
        "error: port down: spine-1-1 port 40 is polling; it had a cable to spine-1-1 port 41",
        "error: short cable: gpu0002 mlx5_1/1 - leaf-1-2 port 2 runs at 1xHDR, its kind at 4xHDR",
        "error: off rail: gpu0003 mlx5_0/1 is rail 1, but cabled to leaf-1-2 port 3, the leaf of rail 2",
        "error: off rail: gpu0003 mlx5_1/1 is rail 2, but cabled to leaf-1-1 port 3, the leaf of rail 1",
    ]


def test_a_fabric_with_notes_alone_is_healthy() -> None:
    found = verify(
        analyse(read(one_leaf("n1 mlx5_0", "MT4129 ConnectX7   Mellanox Technologies"))), name="x", scanned_at=NOW
    )
    assert found.healthy
    assert [one.kind for one in found.findings] == ["unnamed adapters"]


def test_slurm_gets_a_tree_of_domains_pods_and_the_fabric() -> None:
    assert slurm_conf(fabric_of(cluster()), name="ib0") == (
        "# Written by llmgw from the map of fabric ib0.\n"
        "SwitchName=leaf-1-1 Nodes=gpu[0001-0004]\n"
        "SwitchName=leaf-1-3 Nodes=gpu[0005-0008]\n"
        "SwitchName=leaf-2-1 Nodes=gpu[0009-0012]\n"
        "SwitchName=leaf-2-3 Nodes=gpu[0013-0016]\n"
        "SwitchName=pod-1 Switches=leaf-1-1,leaf-1-3\n"
        "SwitchName=pod-2 Switches=leaf-2-1,leaf-2-3\n"
        "SwitchName=ib0 Switches=pod-1,pod-2\n"
    )


def test_slurms_yaml_says_the_same() -> None:
    (found,) = yaml.safe_load(
        slurm_yaml(fabric_of(cluster()), name="ib0", hosts=["gpu0001", "gpu0003", "gpu0016"])
    )
    assert found["topology"] == "ib0"
    assert found["tree"]["switches"] == [
        {"switch": "ib0", "children": "pod-1,pod-2"},
        {"switch": "pod-2", "children": "leaf-2-3"},
        {"switch": "pod-1", "children": "leaf-1-1"},
        {"switch": "leaf-2-3", "nodes": "gpu0016"},
        {"switch": "leaf-1-1", "nodes": "gpu[0001,0003]"},
    ]


def test_host_lists_mean_the_hosts_that_they_were_made_of() -> None:
    for hosts in (
        ["n1", "n2", "n10"],
        ["gpu01", "gpu09", "gpu10", "gpu11"],
        ["a7", "a007", "a08"],
        ["x", "x1"],
        ["c"],
    ):
        assert sorted(hosts_of(host_list(hosts))) == sorted(hosts)
    assert host_list([f"gpu{n:02d}" for n in (1, 2, 3, 9, 10, 12)]) == "gpu[01-03,09-10,12]"


FAMILIES = 17


def sample(fabric: Fabric, *, name: str, scanned_at: datetime = NOW) -> Sample:
    """A fabric that has one port down."""
    leaf = next(iter(fabric.switches))
    down = [DownPort(leaf, 40, "x", "Polling", leaf, 41)] if fabric.cables and name == "ib0" else []
    found = verify(fabric, name=name, scanned_at=scanned_at, down=down)
    return Sample(name, "compute", fabric, found, scanned_at)


def plain_numbers(text: str) -> str:
    """The text with its numbers written out."""
    return re.sub(r"\d\.\d+e\+\d+", lambda found: f"{float(found[0]):.1f}", text)


def test_prometheus_text_has_figures_and_one_series_for_each_short_cable() -> None:
    when = datetime(2026, 12, 1, tzinfo=UTC)
    text = prometheus([sample(fabric_of(cluster()), name="ib0", scanned_at=when)], run_at=when)
    assert 'llmgw_fabric_scan_complete{fabric="ib0"} 1.0\n' in text
    seconds = text.split('llmgw_fabric_scan_timestamp_seconds{fabric="ib0"} ')[1].split()[0]
    assert float(seconds) == when.timestamp()
    assert 'llmgw_fabric_switches{fabric="ib0",tier="core"} 2.0\n' in text
    assert 'llmgw_fabric_ports_down{fabric="ib0"} 1.0\n' in text
    assert f"llmgw_fabric_run_timestamp_seconds {when.timestamp():.0f}.0" in plain_numbers(text)
    assert 'cable_short{a="gpu0002 mlx5_1/1",b="leaf-1-2 port 2",expected="4xHDR",fabric="ib0",guid="' in text
    assert text.count("# TYPE ") == text.count("# HELP ") == FAMILIES + 1


def test_several_fabrics_are_one_text_with_each_family_once() -> None:
    quiet = fabric_of(fat_tree(nodes=4, rails=1, nodes_per_leaf=4, spines=1))
    text = prometheus([sample(fabric_of(cluster()), name="a"), sample(quiet, name="b")])
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert len(families) == text.count("# TYPE ") == FAMILIES
    healthy = {one.labels["fabric"]: one.value for one in families["llmgw_fabric_healthy"].samples}
    assert healthy == {"a": 0.0, "b": 1.0}


def test_c9_hostile_names_stay_inside_their_label() -> None:
    name = 'x"} 1\nevil{a="' + "y" * 200
    made = fat_tree(nodes=4, rails=1, nodes_per_leaf=4, spines=1)
    made.devices[made.named("leaf-1-1")].name = name.replace("\n", "\u202e\\")
    made.short("gpu0002 mlx5_0", "1xNDR")
    fabric = analyse(read(made.text()))
    families = list(text_string_to_metric_families(prometheus([sample(fabric, name=name)])))
    assert len(families) == FAMILIES
    (short,) = families[-1].samples
    assert short.labels["fabric"] == name.replace("\n", "\ufffd")[:128]
    assert len(short.labels["b"]) == 128
