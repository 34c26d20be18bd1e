"""Hard cases of what a scan means, by the numbers that docs/fabric.md gives them, on small fabrics of our own."""

from llmgw.fabric import (
    Fabric,
    InventoryPort,
    KnownPort,
    Severity,
    Standing,
    Tier,
    cabled_ports,
    change_lines,
    down_ports,
    known_ports,
    parse_linkinfo,
    read,
)
from llmgw.fabric.analyse import analyse
from llmgw.fabric.diff import diff
from llmgw.fabric.topology import topology
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.scans import NOW, adapter, from_adapter, guid, one_leaf, switch, text, to_adapter, to_switch


def fabric_of(cluster: Cluster, **words: object) -> Fabric:
    return analyse(read(cluster.text()), **words)  # type: ignore[arg-type]


def rails_of(fabric: Fabric, node: str) -> list[tuple[str, int | None]]:
    return [(one.device, one.rail) for one in fabric.nodes[node]]


def renamed(cluster: Cluster, change: dict[str, str]) -> Cluster:
    """The cluster with other descriptions."""
    for guid_, device in cluster.devices.items():
        cluster.devices[guid_].name = change.get(device.name, device.name)
    return cluster


def alarms(fabric: Fabric) -> list[str]:
    return [finding.text for finding in fabric.findings if finding.severity is not Severity.NOTE]


def test_02_two_ways_of_naming_devices_are_one_rail() -> None:
    cluster = fat_tree(nodes=8, rails=4, nodes_per_leaf=8, spines=2)
    numbers = {0: (1, 0), 1: (2, 1), 2: (5, 4), 3: (6, 5)}
    for device in cluster.devices.values():
        host, _, word = device.name.partition(" mlx5_")
        if word:
            old, new = numbers[int(word)]
            device.name = f"{host} HCA-{old}" if int(host[3:]) % 2 else f"{host} mlx5_{new}"
    fabric = fabric_of(cluster)
    assert rails_of(fabric, "gpu0001") == [("HCA-1", 1), ("HCA-2", 2), ("HCA-5", 3), ("HCA-6", 4)]
    assert rails_of(fabric, "gpu0002") == [("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_4", 3), ("mlx5_5", 4)]
    assert alarms(fabric) == []


def test_04_aggregation_nodes_are_no_adapters_and_make_no_leaf() -> None:
    fabric = fabric_of(fat_tree(nodes=8, rails=2, nodes_per_leaf=4, spines=2, aggregation=1))
    assert [switch.tier for switch in fabric.switches.values()] == [Tier.LEAF] * 4 + [Tier.SPINE] * 2
    assert len(fabric.adapters) == 16
    assert len(fabric.aggregation) == 6
    assert set(fabric.nodes) == {f"gpu{n:04d}" for n in range(1, 9)}


def test_05_a_spine_with_service_hosts_stays_a_spine() -> None:
    cluster = fat_tree(nodes=64, rails=1, nodes_per_leaf=16, spines=2, cables=4)
    spine = cluster.named("spine-1-1")
    for number in range(3):
        host = cluster.add("H", f"login{number} mlx5_0", ports=1, model=0x101B)
        cluster.join(spine, 50 + number, host, 1, "4xNDR")
    fabric = fabric_of(cluster)
    assert fabric.switches[spine].tier is Tier.SPINE
    assert [switch.tier for switch in fabric.switches.values()].count(Tier.LEAF) == 4
    notes = [finding.text for finding in fabric.findings if finding.kind == "hosts above the leaves"]
    assert notes == ["spine-1-1: 3 adapters on a spine switch"]


def test_06_a_leaf_without_hosts_is_no_proven_core() -> None:
    cluster = fat_tree(nodes=16, rails=1, nodes_per_leaf=4, spines=2, pods=2, cores=4)
    for name in ("gpu0013", "gpu0014", "gpu0015", "gpu0016"):
        cluster.silence(f"{name} mlx5_0")
    fabric = fabric_of(cluster)
    bare = [switch.label for switch in fabric.switches.values() if switch.hostless]
    assert bare == ["leaf-1-4"]
    assert [
        switch.label for switch in fabric.switches.values() if switch.tier is Tier.CORE and not switch.hostless
    ] == [
        "core-001",
        "core-002",
        "core-003",
        "core-004",
    ]
    document = topology(fabric, name="ib0", scanned_at=NOW)
    assert any("leaf-1-4: no live adapter below" in problem for problem in document.problems)


def test_07_distance_counts_from_all_adapters_also_those_of_unknown_hosts() -> None:
    cluster = fat_tree(nodes=8, rails=1, nodes_per_leaf=4, spines=2)
    for device in cluster.devices.values():
        if device.name in {f"gpu000{n} mlx5_0" for n in range(5, 9)}:
            device.name = "MT4129 ConnectX7   Mellanox Technologies"
    tiers = {one.label: one.tier for one in fabric_of(cluster, hosts=["gpu0001"]).switches.values()}
    assert tiers == {
        "leaf-1-1": Tier.LEAF,
        "leaf-1-2": Tier.LEAF,
        "spine-1-1": Tier.SPINE,
        "spine-1-2": Tier.SPINE,
    }


def test_08_two_swapped_cables_are_two_adapters_off_their_rail_and_move_no_leaf() -> None:
    cluster = fat_tree(nodes=8, rails=4, nodes_per_leaf=8, spines=2)
    cluster.swap("gpu0007 mlx5_1", "gpu0007 mlx5_2")
    fabric = fabric_of(cluster)
    off = [(one.label, one.rail) for one in fabric.adapters.values() if one.off_rail]
    assert off == [("gpu0007 mlx5_1/1", 2), ("gpu0007 mlx5_2/1", 3)]
    assert [switch.rail for switch in fabric.switches.values() if switch.tier is Tier.LEAF] == [1, 2, 3, 4]
    assert [len(domain.nodes) for domain in fabric.domains.values()] == [8]


def test_09_all_adapters_of_a_host_on_one_leaf_is_a_layout_without_rails_and_no_alarm() -> None:
    cluster = Cluster()
    leaves = [cluster.add("S", f"MF0;leaf{n}:MQM8700/U1", ports=41, model=0xD2F0) for n in (1, 2)]
    for number in range(6):
        for device in range(4):
            own = cluster.add("H", f"sat{number} ibp{(11, 21, 139, 203)[device]}s0f0", ports=1, model=0x101B)
            cluster.join(leaves[number // 3], 4 * (number % 3) + device + 1, own, 1, "4xHDR")
    spine = cluster.add("S", "MF0;spine:MQM8700/U1", ports=41, model=0xD2F0)
    for number, leaf in enumerate(leaves):
        cluster.join(leaf, 40, spine, number + 1, "4xHDR")
    fabric = fabric_of(cluster)
    assert fabric.rails == 0
    assert alarms(fabric) == []
    assert any("not a rail-aligned layout" in finding.text for finding in fabric.findings)
    assert sorted(domain.nodes for domain in fabric.domains.values()) == [
        ("sat0", "sat1", "sat2"),
        ("sat3", "sat4", "sat5"),
    ]


def test_10_a_missing_adapter_shifts_no_rail_and_names_sort_by_their_numbers() -> None:
    numbers = (11, 21, 75, 85, 139, 149, 203, 213)
    cluster = fat_tree(nodes=6, rails=8, nodes_per_leaf=6, spines=2)
    for device in cluster.devices.values():
        host, _, word = device.name.partition(" mlx5_")
        device.name = f"{host} ibp{numbers[int(word)]}s0f0" if word else device.name
    cluster.pull("gpu0003 ibp203s0f0")
    fabric = fabric_of(cluster)
    assert rails_of(fabric, "gpu0001") == [(f"ibp{number}s0f0", rail) for rail, number in enumerate(numbers, 1)]
    assert [rail for _, rail in rails_of(fabric, "gpu0003")] == [1, 2, 3, 4, 5, 6, 8]
    assert fabric.missing == {"gpu0003": (("ibp203s0f0", 7),)}
    assert alarms(fabric) == ["1 node without ibp203s0f0 (rail 7): gpu0003"]


def test_11_numbers_with_holes_are_rails_without() -> None:
    numbers = (0, 1, 2, 3, 6, 7, 8, 9)
    cluster = fat_tree(nodes=4, rails=8, nodes_per_leaf=4, spines=2)
    for device in cluster.devices.values():
        host, _, word = device.name.partition(" mlx5_")
        device.name = f"{host} mlx5_{numbers[int(word)]}" if word else device.name
    assert rails_of(fabric_of(cluster), "gpu0004") == [
        (f"mlx5_{number}", rail) for rail, number in enumerate(numbers, 1)
    ]


def test_12_a_leaf_that_is_missing_as_a_whole_is_one_rail_that_its_nodes_lack() -> None:
    cluster = fat_tree(nodes=12, rails=4, nodes_per_leaf=6, spines=2)
    cluster.silence("leaf-1-3")
    fabric = fabric_of(cluster)
    assert rails_of(fabric, "gpu0001") == [("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_3", 4)]
    assert rails_of(fabric, "gpu0012")[2] == ("mlx5_2", 3)
    assert alarms(fabric) == ["6 nodes without mlx5_2 (rail 3): " + ", ".join(f"gpu000{n}" for n in range(1, 7))]


def test_13_a_service_host_on_a_rails_leaf_is_off_no_rail_and_moves_none() -> None:
    cluster = fat_tree(nodes=8, rails=4, nodes_per_leaf=8, spines=2)
    for port, device in ((20, 0), (21, 1)):
        host = cluster.add("H", f"ubuntu mlx5_{device}", ports=1, model=0x1021)
        cluster.join(cluster.named(f"leaf-1-{device + 3}"), port, host, 1, "4xNDR")
    fabric = fabric_of(cluster)
    assert alarms(fabric) == []
    assert [one.rail for one in fabric.nodes["ubuntu"]] == [3, 4]
    assert [switch.rail for switch in fabric.switches.values() if switch.tier is Tier.LEAF] == [1, 2, 3, 4]


def test_13_two_machines_of_one_name_are_never_merged() -> None:
    fabric = analyse(read(one_leaf("localhost mlx5_0", "localhost mlx5_0", "gpu01 mlx5_0")))
    assert set(fabric.nodes) == {"gpu01"}
    assert len(fabric.adapters) == 3
    assert [one.standing for one in fabric.adapters.values()].count(Standing.AMBIGUOUS) == 2
    assert any("call themselves localhost" in text for text in alarms(fabric))


def test_14_a_short_cable_between_switches_is_told_once_with_what_its_kind_runs_at() -> None:
    cluster = fat_tree(nodes=8, rails=1, nodes_per_leaf=4, spines=2, cables=2, rate="4xEDR")
    cluster.short("leaf-1-1", "4xDDR", "spine-1-2")
    fabric = fabric_of(cluster)
    short = [cable for cable in fabric.cables if cable.degraded]
    assert [(cable.rate, cable.expected) for cable in short] == [("4xDDR", "4xEDR")]
    assert len(alarms(fabric)) == 1


def test_15_slower_adapters_by_design_are_a_kind_of_their_own() -> None:
    compute = [f"luna-{n:04d} mlx5_4" for n in range(1, 7)]
    storage = [f"ai400x-{n:03d} HCA-1" for n in range(1, 5)]
    rates = ["4xHDR"] * 6 + ["4xEDR"] * 4
    names = [*compute, *storage]
    ports = [to_adapter(n, n, name, rate=rate) for n, (name, rate) in enumerate(zip(names, rates, strict=True), 1)]
    cards = [
        adapter(n, name, from_adapter(n, 1, "leaf", n, rate=rate))
        for n, (name, rate) in enumerate(zip(names, rates, strict=True), 1)
    ]
    fabric = analyse(read(text(switch(1, "leaf", *ports), *cards)))
    assert sum(cable.degraded for cable in fabric.cables) == 0


def test_19_what_a_partial_scan_did_not_see_is_unknown_and_never_gone() -> None:
    cluster = fat_tree(nodes=4, rails=1, nodes_per_leaf=4, spines=1)
    old = topology(fabric_of(cluster), name="ib0", scanned_at=NOW)
    cluster.silence("gpu0003 mlx5_0")
    lost = "umad (DR path slid 0; dlid 0; 0,1,3 Attr 0x11:0) bad status 110; Connection timed out"
    reading = read(cluster.text(), stderr=f"./libibnetdisc/query_smp.c:186; {lost}")
    assert reading.verdict.state == "partial"
    assert "behind MF0;leaf-1-1:MQM9700/U1 port 3 is unknown" in reading.verdict.reason
    new = topology(analyse(reading), name="ib0", scanned_at=NOW)
    assert change_lines(diff(old, new).changes) == []
    whole = topology(fabric_of(cluster), name="ib0", scanned_at=NOW)
    assert change_lines(diff(old, whole).changes) == ["adapter gone: gpu0003 mlx5_0/1, was on leaf-1-1 port 3"]


def test_22_one_device_in_two_fabrics_is_two_adapters_of_one_node() -> None:
    def scan(port: int, leaf: int) -> Fabric:
        name = "gpu01 mlx5_0"
        port_guid = f"{int(guid(1), 16) + port:x}"
        near = to_adapter(1, 1, name, peer_port=port).replace(f"({int(guid(1), 16):x})", f"({port_guid})")
        far = from_adapter(1, leaf, "leaf", 1, port=port).replace(f"({int(guid(1), 16):x})", f"({port_guid})")
        known = [InventoryPort("gpu01", "mlx5_0", n, f"{int(guid(1), 16) + n:016x}") for n in (1, 2)]
        written = text(switch(leaf, "leaf", near), adapter(1, name, far, size=2))
        return analyse(read(written), ports=known_ports(known))

    compute, storage = scan(1, 1), scan(2, 2)
    assert list(compute.adapters) == [(guid(1), 1)]
    assert list(storage.adapters) == [(guid(1), 2)]
    assert compute.adapters[guid(1), 1].node == storage.adapters[guid(1), 2].node == "gpu01"


def test_35_a_port_is_down_by_its_state_and_the_memory_of_a_peer_alone() -> None:
    cluster = fat_tree(nodes=2, rails=1, nodes_per_leaf=2, spines=1)
    earlier = topology(fabric_of(cluster), name="ib0", scanned_at=NOW)
    cluster.pull("gpu0002 mlx5_0")
    now = topology(fabric_of(cluster), name="ib0", scanned_at=NOW)
    leaf = cluster.named("leaf-1-1")
    down = "( )"
    states, problems = parse_linkinfo(
        f"Switch: 0x{leaf} MF0;leaf-1-1:MQM9700/U1:\n"
        '           4    1[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>       1    1[  ] "gpu0001 mlx5_0" ( )\n'
        f'           4    2[  ] ==(                Down/ Polling)==>             [  ] "" {down}\n'
        f'           4    9[  ] ==(                Down/ Polling)==>             [  ] "" {down}\n'
    )
    assert problems == []
    assert [(one.port, one.phys) for one in down_ports(states, cabled_ports([], [earlier]), now=now)] == [
        (2, "Polling")
    ]
    assert down_ports(states, {}, now=now) == []


def test_a_switch_between_switches_is_a_leaf_where_no_switch_has_more_adapters() -> None:
    written = text(
        switch(1, "a", to_adapter(1, 1, "n1 mlx5_0"), to_switch(2, 2, "b", 2), to_switch(3, 3, "c", 3)),
        switch(2, "b", to_switch(2, 1, "a", 2), to_switch(3, 3, "c", 2), to_adapter(1, 2, "n2 mlx5_0")),
        switch(3, "c", to_switch(2, 2, "b", 3), to_switch(3, 1, "a", 3), to_adapter(1, 3, "n3 mlx5_0")),
        *(adapter(n, f"n{n} mlx5_0", from_adapter(n, n, "abc"[n - 1], 1)) for n in (1, 2, 3)),
    )
    assert {switch.tier for switch in analyse(read(written)).switches.values()} == {Tier.LEAF}


def test_facts_win_over_descriptions_and_rails_follow_pci_addresses() -> None:
    cluster = fat_tree(nodes=4, rails=3, nodes_per_leaf=4, spines=1)
    ports = {
        device.guid: KnownPort(
            device.name.split()[0], device.name.split()[1], f"0000:{0x1B + 0x20 * int(device.name[-1]):02x}:00.0"
        )
        for device in cluster.devices.values()
        if device.kind == "H"
    }
    shifted = {f"gpu0002 mlx5_{n}": f"gpu0002 mlx5_{(n + 2) % 3}" for n in range(3)}
    by_names = fabric_of(renamed(cluster, shifted))
    assert sum(one.off_rail for one in by_names.adapters.values()) == 3
    by_facts = fabric_of(cluster, ports=ports)
    assert sum(one.off_rail for one in by_facts.adapters.values()) == 0
    assert rails_of(by_facts, "gpu0002") == [("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_2", 3)]
