"""Comparing two maps: one line a change, keyed by GUID and port, the same lines every time."""

import itertools

from llmgw.fabric import Changes, Fabric, Topology, change_lines, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.diff import diff
from llmgw.fabric.topology import topology
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.scans import NOW


def small() -> Cluster:
    return fat_tree(nodes=8, rails=2, nodes_per_leaf=4, spines=2, cables=2, rate="4xHDR")


def fabric_of(cluster: Cluster, stderr: str = "") -> Fabric:
    return analyse(read(cluster.text(), stderr=stderr))


def map_of(cluster: Cluster, stderr: str = "") -> Topology:
    return topology(fabric_of(cluster, stderr), name="ib0", scanned_at=NOW)


def lines(old: Cluster, new: Cluster, stderr: str = "") -> list[str]:
    return change_lines(diff(map_of(old), map_of(new, stderr)).changes)


def test_two_scans_of_an_unchanged_fabric_differ_in_nothing() -> None:
    assert lines(small(), small()) == []


def test_a_cable_between_switches_that_is_gone_is_one_line_and_back_again_another() -> None:
    new = small()
    new.pull("leaf-1-1", "spine-1-2")
    assert lines(small(), new) == ["cable gone: spine-1-2 port 1 - leaf-1-1 port 7, 4xHDR"]
    assert lines(new, small()) == ["cable added: spine-1-2 port 1 - leaf-1-1 port 7, 4xHDR"]


def test_a_nodes_cable_that_was_pulled_is_an_adapter_that_is_gone() -> None:
    new = small()
    new.pull("gpu0003 mlx5_1")
    assert lines(small(), new) == ["adapter gone: gpu0003 mlx5_1/1, was on leaf-1-2 port 3"]
    assert lines(new, small()) == ["adapter new: gpu0003 mlx5_1/1, is on leaf-1-2 port 3"]


def test_a_cable_that_trained_short_is_one_line_with_both_rates_and_its_recovery_another() -> None:
    new = small()
    new.short("gpu0006 mlx5_0", "1xHDR")
    assert lines(small(), new) == [
        "newly short: gpu0006 mlx5_0/1 - leaf-1-3 port 2, 4xHDR to 1xHDR, its kind at 4xHDR"
    ]
    assert lines(new, small()) == [
        "recovered: gpu0006 mlx5_0/1 - leaf-1-3 port 2, 1xHDR to 4xHDR, its kind at 4xHDR"
    ]


def test_a_short_cable_that_got_worse_is_told_too() -> None:
    old, new = small(), small()
    old.short("gpu0006 mlx5_0", "2xHDR")
    new.short("gpu0006 mlx5_0", "1xHDR")
    assert lines(old, new) == [
        "rate changed: gpu0006 mlx5_0/1 - leaf-1-3 port 2, 2xHDR to 1xHDR, its kind at 4xHDR"
    ]


def test_a_cable_at_another_port_moved_and_neither_went_nor_came() -> None:
    old, new = small(), small()
    ends = new.cable("gpu0001 mlx5_0")
    (leaf, _), adapter = ends
    rate = new.cables.pop(ends)
    new.cables[(leaf, 30), adapter] = rate
    assert lines(old, new) == ["cable moved: gpu0001 mlx5_0/1 from leaf-1-1 port 1 to leaf-1-1 port 30"]


def test_a_cable_between_switches_moved_at_one_end() -> None:
    old, new = small(), small()
    ends = new.cable("leaf-1-1", "spine-1-1")
    (leaf, port), (spine, _) = sorted(ends, key=lambda end: "leaf" not in new.devices[end[0]].name)
    rate = new.cables.pop(ends)
    new.cables[(leaf, port), (spine, 31)] = rate
    assert lines(old, new) == ["cable moved: leaf-1-1 port 5 from spine-1-1 port 1 to spine-1-1 port 31"]


def test_swapped_rails_are_two_moves_that_say_so() -> None:
    new = small()
    new.swap("gpu0002 mlx5_0", "gpu0002 mlx5_1")
    assert lines(small(), new) == [
        "cable moved: gpu0002 mlx5_0/1 from leaf-1-1 port 2 to leaf-1-2 port 2; now off its rail",
        "cable moved: gpu0002 mlx5_1/1 from leaf-1-2 port 2 to leaf-1-1 port 2; now off its rail",
    ]


def test_a_switch_that_went_is_one_line_with_its_cables_and_adapters() -> None:
    without_spine, without_leaf = small(), small()
    without_spine.silence("spine-1-2")
    without_leaf.silence("leaf-1-4")
    assert lines(small(), without_spine) == ["switch gone: spine-1-2 with 8 cables"]
    assert lines(small(), without_leaf) == ["switch gone: leaf-1-4 with 8 cables and 4 adapters on it"]
    assert lines(without_leaf, small()) == ["switch new: leaf-1-4 with 8 cables and 4 adapters on it"]


def test_an_adapter_that_was_replaced_is_one_gone_and_one_new() -> None:
    old, new = small(), small()
    guid = new.named("gpu0005 mlx5_1")
    other = guid[:-2] + "77"
    new.devices = {key: value for key, value in new.devices.items() if key != guid}
    new.devices[other] = old.devices[guid]
    new.devices[other].guid = other
    new.cables = {
        tuple((other if end == guid else end, port) for end, port in ends): rate
        for ends, rate in new.cables.items()
    }  # type: ignore[misc]
    assert lines(small(), new) == [
        "adapter gone: gpu0005 mlx5_1/1, was on leaf-1-4 port 1",
        "adapter new: gpu0005 mlx5_1/1, is on leaf-1-4 port 1",
    ]


def test_devices_that_changed_their_name_are_told_by_guid() -> None:
    new = small()
    new.devices[new.named("gpu0001 mlx5_0")].name = "gpu0099 mlx5_0"
    new.devices[new.named("spine-1-1")].name = "MF0;spine-x:MQM9700/U1"
    guid, spine = small().named("gpu0001 mlx5_0"), small().named("spine-1-1")
    assert lines(small(), new) == [
        f"renamed: gpu0001 mlx5_0/1 is gpu0099 mlx5_0/1 now, {guid}",
        f"renamed: switch MF0;spine-1-1:MQM9700/U1 is MF0;spine-x:MQM9700/U1 now, {spine}",
    ]


def test_a_partial_scan_makes_nothing_gone_and_still_tells_what_it_saw() -> None:
    new = small()
    new.silence("leaf-1-4")
    new.short("gpu0001 mlx5_0", "2xHDR")
    new.swap("gpu0002 mlx5_0", "gpu0003 mlx5_0")
    lost = "query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,9 Attr 0x11:0) bad status 110; Connection timed out"
    assert lines(small(), new, lost) == [
        "cable moved: gpu0002 mlx5_0/1 from leaf-1-1 port 2 to leaf-1-1 port 3",
        "cable moved: gpu0003 mlx5_0/1 from leaf-1-1 port 3 to leaf-1-1 port 2",
        "newly short: gpu0001 mlx5_0/1 - leaf-1-1 port 1, 4xHDR to 2xHDR, its kind at 4xHDR",
    ]


def test_any_two_faults_together_are_both_told() -> None:
    faults = {
        "adapter gone: gpu0003 mlx5_1/1": lambda one: one.pull("gpu0003 mlx5_1"),
        "newly short: gpu0006 mlx5_0/1": lambda one: one.short("gpu0006 mlx5_0", "1xHDR"),
        "cable gone: spine-1-2 port 1": lambda one: one.pull("leaf-1-1", "spine-1-2"),
        "switch gone: leaf-1-4": lambda one: one.silence("leaf-1-4"),
    }
    for (first, one), (second, other) in itertools.combinations(faults.items(), 2):
        new = small()
        one(new)
        other(new)
        told = lines(small(), new)
        assert any(line.startswith(first) for line in told), (first, told)
        assert any(line.startswith(second) for line in told), (second, told)
        assert len(told) == 2, told


def test_the_document_can_be_read_again() -> None:
    new = small()
    new.short("gpu0006 mlx5_0", "1xHDR")
    changes = diff(map_of(small()), map_of(new))
    assert Changes.read(changes.text(), "x") == changes
    assert changes.changes[0].node == "gpu0006"
