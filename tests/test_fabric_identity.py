"""Which fabric is it, what has not been scanned yet, and where to scan from next."""

from llmgw.fabric import (
    Identity,
    InventoryPort,
    KnownPort,
    Part,
    Paths,
    ScanSource,
    Severity,
    Standing,
    candidates,
    claims,
    identify,
    known_ports,
    parse_source,
    parts,
    read,
    uncovered,
    unseen_hosts,
)
from llmgw.fabric.analyse import analyse
from llmgw.fabric.node_paths import paths
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.scans import guid, one_leaf


def compute() -> object:
    return analyse(read(fat_tree(nodes=4, rails=2, nodes_per_leaf=4, spines=2).text()))


COMPUTE = analyse(read(fat_tree(nodes=4, rails=2, nodes_per_leaf=4, spines=2).text()))
SWITCHES = set(COMPUTE.switches)


def ports_of(node: int, *devices: str, state: str = "ACTIVE") -> list[InventoryPort]:
    return [
        InventoryPort(f"n{node}", device, 1, f"{node:08x}{number:08x}", state)
        for number, device in enumerate(devices, 1)
    ]


def test_a_fabric_is_the_known_one_that_shares_most_switches() -> None:
    lowest = min(SWITCHES)
    known = {"old": {lowest, "f" * 16}, "ib0": SWITCHES - {lowest}, "other": {"e" * 16}}
    assert identify(COMPUTE, known) == Identity("ib0", is_new=False, others=("old",))


def test_a_new_fabric_has_the_name_of_the_settings_that_scan_from_there() -> None:
    settings = {"compute": ("n1:mlx5_0/1", "n2"), "storage": ("n1:mlx5_2/1",)}
    for source, name in (
        (ScanSource("n1", "mlx5_0", 1), "compute"),
        (ScanSource("n2", "mlx5_7", 1), "compute"),
        (ScanSource("n1", "mlx5_2", 1), "storage"),
    ):
        assert identify(COMPUTE, {}, source=source, settings=settings) == Identity(name, is_new=True)


def test_the_only_name_of_the_settings_needs_no_source() -> None:
    assert identify(COMPUTE, {}, settings={"ib0": ()}).name == "ib0"


def test_a_name_that_other_switches_have_is_never_given_again() -> None:
    known = {"ib0": {"e" * 16}}
    assert identify(COMPUTE, known, settings={"ib0": ()}).name == f"ib-{min(SWITCHES)[-6:]}"


def test_a_made_up_name_is_that_of_the_lowest_switch_and_stays_the_same() -> None:
    name = identify(COMPUTE, {}).name
    assert name == f"ib-{min(SWITCHES)[-6:]}"
    assert identify(COMPUTE, {name: {"e" * 16}}).name == f"ib-{min(SWITCHES)[-7:]}"


def test_sources_are_written_as_in_the_settings() -> None:
    assert parse_source("n1") == ScanSource("n1")
    assert parse_source("n1:mlx5_0") == ScanSource("n1", "mlx5_0", 1)
    assert parse_source("n1:mlx5_0/2") == ScanSource("n1", "mlx5_0", 2)
    assert str(ScanSource("n1", "mlx5_0", 2)) == "n1:mlx5_0/2"


def test_ports_that_no_scan_saw_are_left_active_ones_first() -> None:
    seen = next(iter(COMPUTE.adapters.values()))
    ports = [
        InventoryPort("n10", "mlx5_0", 1, "1" * 16),
        InventoryPort("n2", "mlx5_0", 1, "2" * 16, state="DOWN"),
        InventoryPort("n9", "mlx5_1", 1, "3" * 16, state="4: ACTIVE"),
        InventoryPort("n3", "mlx5_0", 1, seen.port_guid),
        InventoryPort("n3", "mlx5_4", 1, "4" * 16, link_layer="Ethernet"),
    ]
    assert [port.node for port in uncovered(ports, [COMPUTE])] == ["n9", "n10", "n2"]


def test_scans_start_where_the_settings_say_then_on_one_node_after_another() -> None:
    ports = [
        *ports_of(10, "mlx5_0", "mlx5_1"),
        *ports_of(2, "mlx5_10", "mlx5_2"),
        *ports_of(3, "mlx5_0", state="DOWN"),
    ]
    order = candidates(
        ports,
        preferred=["n10:mlx5_1/1", "n2"],
        unknown_nodes=["n20", "n11"],
        tried=[ScanSource("n2", "mlx5_2", 1)],
    )
    assert [str(source) for source in order] == ["n10:mlx5_1/1", "n2:mlx5_10/1", "n10:mlx5_0/1", "n11", "n20"]


def test_without_facts_every_node_may_be_tried_and_the_tool_chooses_its_port() -> None:
    assert candidates([], unknown_nodes=["n2", "n1"]) == [ScanSource("n1"), ScanSource("n2")]


def test_hosts_that_no_fabric_has_are_named() -> None:
    assert unseen_hosts(["gpu0010", "gpu0002", "gpu0009"], {"ib0": COMPUTE}) == ["gpu0009", "gpu0010"]


def test_a_port_guid_that_two_nodes_report_is_nobodys() -> None:
    ports = [*ports_of(1, "mlx5_0"), InventoryPort("n2", "mlx5_0", 1, "1".rjust(8, "0") + "1".rjust(8, "0"))]
    assert known_ports(ports) == {}
    assert known_ports([InventoryPort("n1", "mlx5_0", 1, "0" * 16)]) == {}


def facts(**nodes: int) -> dict[str, KnownPort]:
    return {guid(number): KnownPort(node, "mlx5_0", "0000:1b:00.0") for node, number in nodes.items()}


def test_a_node_that_calls_itself_another_is_still_itself() -> None:
    fabric = analyse(read(one_leaf("n1 mlx5_0", "n1 mlx5_0")), hosts=["n1", "n2"], ports=facts(n1=1, n2=2))
    assert {one.guid: one.node for one in fabric.adapters.values()} == {guid(1): "n1", guid(2): "n2"}
    wrong = [finding for finding in fabric.findings if finding.kind == "wrong name"]
    assert [finding.text for finding in wrong] == [f"{guid(2)} calls itself n1, but is mlx5_0 of n2"]


def test_an_impostor_is_reported_and_is_nobodys_adapter() -> None:
    fabric = analyse(read(one_leaf("n1 mlx5_0", "n1 mlx5_1")), hosts=["n1"], ports=facts(n1=1))
    assert {one.guid: (one.node, one.standing) for one in fabric.adapters.values()} == {
        guid(1): ("n1", Standing.FACTS),
        guid(2): (None, Standing.IMPOSTOR),
    }
    found = [finding for finding in fabric.findings if finding.kind == "impostor"]
    assert [finding.severity for finding in found] == [Severity.ERROR]
    assert guid(2) in found[0].text
    assert "n1 mlx5_1" in found[0].text


def test_inventory_names_are_found_in_any_case_with_and_without_their_domain() -> None:
    hosts = ["gpu01.hpc.example", "gpu02"]
    fabric = analyse(read(one_leaf("GPU01 mlx5_0", "gpu02.hpc.example mlx5_0", "gpu03 mlx5_0")), hosts=hosts)
    assert set(fabric.nodes) == {"gpu01.hpc.example", "gpu02", "gpu03"}


def test_a_host_of_another_domain_is_another_host() -> None:
    fabric = analyse(read(one_leaf("gpu01.lab.example mlx5_0")), hosts=["gpu01.hpc.example"])
    assert set(fabric.nodes) == {"gpu01.lab.example"}


def test_descriptions_with_the_host_last_or_alone_name_it_too() -> None:
    fabric = analyse(read(one_leaf("HCA-1 n1", "n2", "rack 4 n3 slot 9")), hosts=["n3"])
    assert {one.node: one.device for one in fabric.adapters.values()} == {"n1": "HCA-1", "n2": "", "n3": ""}


def test_a_port_that_the_settings_name_names_the_fabric_wherever_it_was_scanned_from() -> None:
    settings = {"compute": ("n1",), "storage": ("n3:mlx5_2/1",)}
    storage = ScanSource("n3", "mlx5_2", 1)
    found = identify(COMPUTE, {}, source=ScanSource("n1", "mlx5_2", 1), settings=settings, inside={storage})
    assert found == Identity("storage", is_new=True)


def test_a_fabric_with_a_made_up_name_gets_that_of_the_settings_when_one_of_its_ports_is_named() -> None:
    port = ScanSource("n1", "mlx5_0", 1)
    settings = {"compute": ("n1:mlx5_0/1",)}
    found = identify(COMPUTE, {"ib-000001": SWITCHES}, source=port, settings=settings, inside={port})
    assert found == Identity("compute", is_new=False, was="ib-000001")
    both = {"ib-000001": SWITCHES, "compute": {"e" * 16}}
    assert identify(COMPUTE, both, source=port, settings=settings, inside={port}).name == "ib-000001"
    assert identify(COMPUTE, {"storage": SWITCHES}, source=port, settings={**settings, "storage": ()}).was == ""


def test_a_node_without_a_device_means_the_fabric_of_most_of_its_ports() -> None:
    two, one = ports_of(1, "mlx5_0", "mlx5_1"), ports_of(1, "mlx5_2")
    down = ports_of(1, "mlx5_0", state="DOWN")
    assert claims(["n1"], [*two, *one], two) == ("n1",)
    assert claims(["n1"], [*two, *one], one) == ("",)
    assert claims(["n1"], [*two[:1], *one], one) == ("n1",)
    assert claims(["n1"], [*down, *one], one) == ("",)
    assert claims(["n1:mlx5_2/1"], [*two, *one], one) == ("n1:mlx5_2/1",)
    assert claims(["n1"], [], []) == ("n1",)
    assert claims([], two, one) == ()


def way(cluster: Cluster, name: str) -> Paths:
    return paths(analyse(read(cluster.text())), name=name)


def rails(number: int, rate: str = "4xHDR") -> Cluster:
    return fat_tree(nodes=4, rails=number, nodes_per_leaf=4, spines=1, rate=rate)


def test_a_fabric_alone_is_for_compute_and_one_that_is_named_is_what_its_settings_say() -> None:
    assert parts({"ib-1": way(rails(2), "ib-1")}, {}) == {"ib-1": Part("compute")}
    assert parts({"s": way(rails(2), "s")}, {"s": "storage"}) == {"s": Part("storage")}


def test_beside_a_named_compute_fabric_no_replica_is_placed_by_another() -> None:
    found = parts({"ib0": way(rails(1), "ib0"), "ib-1": way(rails(4), "ib-1")}, {"ib0": "compute"})
    assert found["ib-1"] == Part("storage", "the settings name ib0 for compute, and not this one")


def test_of_fabrics_that_nobody_named_the_one_with_most_bandwidth_is_for_compute() -> None:
    found = parts({"ib-1": way(rails(1, "4xNDR"), "ib-1"), "ib-2": way(rails(4), "ib-2")}, {})
    assert {name: one.role for name, one in found.items()} == {"ib-1": "storage", "ib-2": "compute"}
    assert "more bandwidth in ib-2" in found["ib-1"].why
    assert found["ib-2"].why


def test_of_two_alike_neither_is_for_compute_until_somebody_says_which() -> None:
    found = parts({"ib-1": way(rails(1), "ib-1"), "ib-2": way(rails(1), "ib-2")}, {})
    assert {one.role for one in found.values()} == {"storage"}
    named = parts({"ib-1": way(rails(1), "ib-1"), "ib-2": way(rails(1), "ib-2")}, {"ib-2": "storage"})
    assert named == {"ib-1": Part("compute"), "ib-2": Part("storage")}


def test_fabrics_of_different_nodes_are_all_for_compute() -> None:
    other = rails(1)
    for device in other.devices.values():
        device.name = device.name.replace("gpu", "cpu")
    found = parts({"ib-1": way(rails(4), "ib-1"), "ib-2": way(other, "ib-2")}, {})
    assert found == {"ib-1": Part("compute"), "ib-2": Part("compute")}
