"""The simulated fabrics, as the real tools on hosts see them over SSH, and the adapters that hosts' kernels show."""

import re

import pytest

from tests.lab.lab import Lab
from tests.lab.netfile import Bank, Layout, Plan, make_plan
from tests.lab.node import Node

PORT_LINE = re.compile(r'^\[\d+\].*?"[SH]-[0-9a-f]{16}"\[\d+\].* (\d+x[A-Z?]+)$', re.MULTILINE)


def scan(lab: Lab, node: Node, *options: str, user: str = "root") -> str:
    """What ibnetdiscover prints on a host, asked over SSH as that user."""
    sudo = "" if user == "root" else "sudo -n "
    done = lab.ssh(node, f"{sudo}ibnetdiscover {' '.join(options)}", user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_clock(text: str) -> str:
    """A scan without the lines that differ from one to the next."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def two_tiers(**words: object) -> Plan:
    hosts = tuple(f"n{number}" for number in range(1, 9))
    return make_plan(Layout("fabric", (Bank(hosts, ("mlx5_0", "mlx5_1")),), per_leaf=4, spines=2, **words))  # type: ignore[arg-type]


def test_with_rails_each_device_has_its_leaf_and_a_host_the_same_port_on_each() -> None:
    plan = two_tiers()
    cables = {cable.b.name: cable for cable in plan.cables[:16]}
    assert cables["n1 mlx5_0"].a.name == "leaf1"
    assert cables["n1 mlx5_1"].a.name == "leaf2"
    assert cables["n5 mlx5_0"].a.name == "leaf3"
    assert {cables[f"n3 mlx5_{n}"].a_port for n in (0, 1)} == {3}
    assert len(plan.switches) == 6
    assert len(plan.cables) == 16 + 4 * 2


def test_without_rails_all_devices_of_a_host_are_under_one_leaf() -> None:
    plan = two_tiers(rails=False, cables=3)
    assert {cable.a.name for cable in plan.cables[:16] if cable.b.name.startswith("n1 ")} == {"leaf1"}
    assert len(plan.cables) == 16 + 2 * 2 * 3


def test_pods_meet_at_the_cores() -> None:
    plan = two_tiers(groups_per_pod=1, cores=2)
    names = [switch.name for switch in plan.switches]
    assert names.count("spine4") == names.count("core2") == 1
    between = {(cable.a.name, cable.b.name) for cable in plan.cables if cable.b.name.startswith(("spine", "core"))}
    assert ("leaf1", "spine1") in between
    assert ("leaf1", "spine3") not in between
    assert {("spine1", "core1"), ("spine4", "core2")} <= between


def test_no_two_parts_of_two_fabrics_share_a_guid() -> None:
    plans = [make_plan(Layout(name, (Bank(("n1", "n2"), ("mlx5_0",)),))) for name in ("a", "b")]
    guids = [part.guid for plan in plans for part in (*plan.switches, *plan.adapters)]
    assert len(set(guids)) == len(guids)


def test_a_leaf_with_too_few_ports_is_refused() -> None:
    with pytest.raises(ValueError, match="leaf1 has too few ports"):
        make_plan(Layout("f", (Bank(tuple(f"n{n}" for n in range(40)), ("mlx5_0",)),), per_leaf=40))


def test_a_rate_that_cannot_be_had_is_refused() -> None:
    assert two_tiers().native("4xHDR") == ("4", "EDR")
    with pytest.raises(ValueError, match="can run at 1x, 2x or 4x NDR, HDR, EDR"):
        two_tiers().native("4xXDR")


@pytest.mark.lab
def test_every_part_is_seen_from_every_host(lab: Lab) -> None:
    plan = lab.fabrics["compute"].plan
    texts = {without_clock(scan(lab, lab.nodes[name])) for name in ("n1", "l1")}
    for text in texts:
        assert sorted(re.findall(r'^(?:Switch|Ca)\s+\d+ "([SH]-[0-9a-f]+)"', text, re.MULTILINE)) == sorted(
            part.id for part in (*plan.switches, *plan.adapters)
        )
        assert PORT_LINE.findall(text) == ["4xNDR"] * (2 * len(plan.cables))


@pytest.mark.lab
def test_device_and_port_lead_to_their_fabric_and_an_unknown_one_to_the_tools_own_error(lab: Lab) -> None:
    node = lab.nodes["n1"]
    assert "storage-leaf1" in scan(lab, node, "-C", "mlx5_2", "-P", "1", user="ops")
    assert "compute-leaf1" in scan(lab, node, "-C", "mlx5_1", user="ops")
    assert scan(lab, node, "--Ca=mlx5_2", "-l").count("storage-leaf1") == 1
    wrong = lab.ssh(node, "ibnetdiscover -C mlx5_7 -P 1")
    assert wrong.returncode != 0
    assert "can't open UMAD port (mlx5_7:1)" in wrong.stderr


@pytest.mark.lab
def test_the_kernel_shows_the_adapters_that_the_fabric_has(lab: Lab) -> None:
    node = lab.nodes["n3"]
    text = scan(lab, node, "-C", "mlx5_0")
    for adapter in lab.fabrics["compute"].plan.adapters:
        if adapter.host != node.name:
            continue
        port = f"/sys/class/infiniband/{adapter.device}/ports/1"
        said = lab.ssh(
            node, f"cd {port} && cat state rate link_layer lid gids/0 ../../node_guid", user="plain"
        ).stdout
        state, rate, layer, lid, gid, guid = said.splitlines()
        assert (state, rate, layer) == ("4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand")
        assert guid.replace(":", "") == adapter.guid
        assert gid.replace(":", "").endswith(adapter.port_guid)
        assert f'"{adapter.id}"[1]({adapter.port_guid}) \t\t# "{adapter.name}" lid {int(lid, 16)} 4xNDR' in text
    slots = node.sh("for d in /sys/class/infiniband/*; do basename $(readlink -f $d/device); done").split()
    assert slots == ["0000:18:00.0", "0000:40:00.0", "0000:4f:00.0"]
    assert node.sh("ls /sys/class/net").split() == ["eth0", "lo"]


@pytest.mark.lab
def test_a_pulled_cable_is_gone_from_the_scan_and_down_for_the_kernel(whole_lab: Lab) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["compute"]
    before = without_clock(scan(lab, lab.nodes["n1"]))
    cable = fabric.plan.cable("n2 mlx5_0")
    fabric.pull(cable)
    text = scan(lab, lab.nodes["n1"])
    assert "n2 mlx5_0" not in text
    assert "n2 mlx5_1" in text
    port = lab.nodes["n2"].sh("cd /sys/class/infiniband/mlx5_0/ports/1 && cat state rate phys_state")
    assert port.splitlines() == ["1: DOWN", "10 Gb/sec (4X SDR)", "2: Polling"]
    links = lab.ssh(lab.nodes["n1"], "iblinkinfo -l").stdout
    assert re.search(rf"0x{cable.a.guid} .* {cable.a_port}\[  \] ==\( +Down/ Polling\)==>", links)
    own = scan(lab, lab.nodes["n2"], "-C", "mlx5_0")
    assert own.count("Ca\t") == 1
    assert "Switch" not in own
    fabric.plug(cable)
    assert sorted(without_clock(scan(lab, lab.nodes["n1"])).splitlines()) == sorted(before.splitlines())


@pytest.mark.lab
@pytest.mark.parametrize(("rate", "kernel"), [("4xHDR", "200 Gb/sec (4X HDR)"), ("1xNDR", "100 Gb/sec (1X NDR)")])
def test_a_cable_that_trained_short_shows_its_rate_at_both_ends(whole_lab: Lab, rate: str, kernel: str) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["compute"]
    cable = fabric.plan.cable("n2 mlx5_1")
    fabric.train(cable, rate)
    rates = PORT_LINE.findall(scan(lab, lab.nodes["n1"]))
    assert rates.count(rate) == 2
    assert set(rates) == {rate, "4xNDR"}
    assert lab.nodes["n2"].sh("cat /sys/class/infiniband/mlx5_1/ports/1/rate").strip() == kernel
    could_be = lab.ssh(lab.nodes["n1"], "iblinkinfo -l | grep -c 'Could be'").stdout.strip()
    assert could_be == ("2" if rate == "4xHDR" else "0")
    fabric.train(cable, "4xNDR")
    assert set(PORT_LINE.findall(scan(lab, lab.nodes["n1"]))) == {"4xNDR"}


@pytest.mark.lab
def test_a_cable_between_switches_stays_short_when_another_is_plugged_in(whole_lab: Lab) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["storage"]
    fabric.train(fabric.plan.cable("n3 mlx5_2"), "4xEDR")
    fabric.pull(fabric.plan.cable("n2 mlx5_2"))
    fabric.plug(fabric.plan.cable("n2 mlx5_2"))
    rates = PORT_LINE.findall(scan(lab, lab.nodes["n1"], "-C", "mlx5_2"))
    assert (rates.count("4xEDR"), rates.count("4xHDR")) == (2, 8)


@pytest.mark.lab
def test_a_silent_part_is_missing_with_a_warning_and_exit_code_0(whole_lab: Lab) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["compute"]
    spine = fabric.plan.by_name["spine1"]
    fabric.silence(spine)
    done = lab.ssh(lab.nodes["n1"], "ibnetdiscover")
    assert done.returncode == 0
    assert "bad status 110" in done.stderr
    assert f'Switch\t64 "{spine.id}"' not in done.stdout
    assert fabric.faults().silent == {"spine1"}
    fabric.hear(spine)
    assert spine.id in scan(lab, lab.nodes["n1"])


@pytest.mark.lab
def test_a_fabric_that_hangs_lets_its_tools_wait_and_the_other_fabric_go_on(whole_lab: Lab) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["compute"]
    fabric.hang()
    assert lab.ssh(lab.nodes["n1"], "timeout 2 ibnetdiscover -C mlx5_0").returncode == 124
    assert "storage-leaf1" in scan(lab, lab.nodes["n1"], "-C", "mlx5_2")
    fabric.go_on()
    fabric.forget_clients()
    assert "compute-leaf1" in scan(lab, lab.nodes["n1"])


@pytest.mark.lab
def test_clients_that_were_killed_are_forgotten_before_they_block_the_fabric(whole_lab: Lab) -> None:
    lab, fabric = whole_lab, whole_lab.fabrics["compute"]
    fabric.hang()
    for _ in range(2):
        lab.ssh(lab.nodes["n1"], "for i in 1 2 3 4 5 6; do timeout -s KILL 0.3 ibnetdiscover & done; wait")
    fabric.go_on()
    assert fabric.say("Attached").count("Client ") >= 1
    fabric.forget_clients()
    assert "Client " not in fabric.say("Attached")
    assert "compute-leaf1" in scan(lab, lab.nodes["n1"])
