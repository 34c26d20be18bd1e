"""Captures of real fabrics, with the figures that were counted in them by hand and by other tools."""

from collections import Counter
from dataclasses import dataclass

import pytest

from llmgw.fabric import Fabric, Severity, Tier, read, summary
from llmgw.fabric.analyse import analyse
from llmgw.fabric.scan import Kind
from tests.captures import FABRICS, capture


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a capture. `tiers` are switches by distance from the adapters."""

    switches: int
    cas: int
    port_lines: int
    tiers: tuple[int, ...]
    aggregation: int
    nodes: int
    short: int = 0
    off_rail: int = 0
    unnamed: int = 0
    rails: int = 0
    bare: int = 0
    state: str = "complete"


KNOWN = {
    "selene-compute-hdr.txt": Known(666, 4341, 25704, (203, 321, 140, 1, 1), 666, 469, rails=8, bare=2),
    "selene-storage-hdr.txt": Known(160, 1247, 6572, (60, 64, 36), 0, 628, unnamed=1, rails=2, bare=4),
    "ufm-director-cs8500-putty.txt": Known(
        400, 2328, 17446, (154, 160, 86), 0, 280, unnamed=103, bare=6, state="partial"
    ),
    "topograph-ndr-example.out": Known(40, 582, 2228, (31, 9), 40, 122, off_rail=2, unnamed=69, rails=4),
    "ufm-small-mixed.txt": Known(2, 13, 32, (2,), 1, 5, short=1),
    "nvidia-kb-edr-fdr-stderr.topo": Known(2, 6, 20, (2,), 0, 5, short=1, state="partial"),
    "man-example-voltaire-sdr.topo": Known(2, 4, 14, (2,), 0, 0, short=2, unnamed=5),
    "ibm-infiniscale-sdr.topo": Known(1, 2, 4, (1,), 0, 2),
    "oracle-sun-qdr.topo": Known(1, 1, 2, (1,), 0, 1),
}


def found(name: str) -> tuple[Known, Fabric]:
    reading = read(capture(name))
    fabric = analyse(reading)
    figures = summary(fabric)
    kinds = Counter(device.kind for device in reading.scan.devices.values())
    tiers = Counter(switch.distance for switch in fabric.switches.values())
    own = Known(
        switches=kinds[Kind.SWITCH],
        cas=kinds[Kind.ADAPTER],
        port_lines=sum(len(device.cables) for device in reading.scan.devices.values()),
        tiers=tuple(tiers[distance] for distance in range(1, max(tiers) + 1)),
        aggregation=len(fabric.aggregation),
        nodes=figures.nodes,
        short=figures.degraded,
        off_rail=figures.off_rail,
        unnamed=figures.unnamed_adapters,
        rails=fabric.rails,
        bare=sum(switch.hostless for switch in fabric.switches.values()),
        state=fabric.verdict.state,
    )
    return own, fabric


@pytest.mark.parametrize("name", KNOWN)
def test_a_capture_has_the_figures_that_were_counted_in_it(name: str) -> None:
    own, _ = found(name)
    assert own == KNOWN[name]


def test_the_swapped_cables_of_the_ndr_fabric_are_the_two_of_one_host() -> None:
    _, fabric = found("topograph-ndr-example.out")
    assert [one.label for one in fabric.adapters.values() if one.off_rail] == [
        "b08-p1-dgx-08-c01 HCA-5/1",
        "b08-p1-dgx-08-c01 HCA-6/1",
    ]
    lacking = [finding.text for finding in fabric.findings if finding.kind == "adapter missing"]
    assert len(lacking) == 1
    assert lacking[0].startswith("11 nodes without HCA-5 (rail 3): a05-p1-dgx-01-c01, ")
    assert "MT4129" not in fabric.nodes


def test_every_host_of_the_superpod_is_on_eight_leaves_of_its_scalable_unit() -> None:
    _, fabric = found("selene-compute-hdr.txt")
    compute = [domain for domain in fabric.domains.values() if domain.nodes[0].startswith("luna")]
    assert {len(domain.leaves) for domain in compute} == {8}
    assert sum(len(domain.nodes) for domain in compute) == 458
    assert [len({domain.id for domain in compute if domain.pod == f"pod-{n}"}) for n in (1, 2, 3, 4)] == [
        7,
        7,
        4,
        7,
    ]
    assert [finding for finding in fabric.findings if finding.severity is not Severity.NOTE] == []
    assert Counter(switch.rail for switch in fabric.switches.values() if switch.rail) == dict.fromkeys(
        range(1, 9), 25
    )


def test_the_directors_chips_are_of_four_chassis_each() -> None:
    _, fabric = found("ufm-director-cs8500-putty.txt")
    chips = Counter(switch.chassis for switch in fabric.switches.values() if switch.chassis)
    assert chips == {f"sat11-0101-090{n}-01ib1-A": 60 for n in (1, 3, 5, 6)}
    assert [switch.tier for switch in fabric.switches.values() if switch.chassis].count(Tier.SPINE) == 160


def test_a_host_of_the_directors_fabric_that_lacks_one_has_the_rails_of_the_others() -> None:
    _, fabric = found("ufm-director-cs8500-putty.txt")
    rails = {one.device: one.rail for one in fabric.nodes["SAT111090609037"]}
    assert "ibp203s0f0" not in rails
    assert rails["ibp213s0f0"] == 8


def test_storage_servers_with_slower_cables_are_no_alarm() -> None:
    _, fabric = found("selene-storage-hdr.txt")
    assert Counter(one.rate for one in fabric.adapters.values())["4xEDR"] == 320


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("fault-nodeinfo", "partial", "the device behind MF0;leaf01:MQM8700/U1 port 2 is unknown"),
        ("fault-nodedesc", "partial", "did not tell its name"),
        ("fault-portinfo-hca", "partial", "node2 mlx5_0 port 1 did not tell its state"),
        ("fault-portinfo-spine", "partial", "MF0;spine01:MQM8700/U1 port 0 did not tell its state"),
        ("fault-nodeinfo-firsthop", "rejected", "no switch"),
        ("local-port-down", "rejected", "no switch"),
        ("cable-down", "complete", ""),
    ],
)
def test_what_the_real_tool_says_of_real_faults(name: str, state: str, words: str) -> None:
    verdict = read(capture(f"sim/{name}.out"), stderr=capture(f"sim/{name}.err")).verdict
    assert verdict.state == state
    assert words in verdict.reason


def test_options_change_the_text_and_not_the_map() -> None:
    plain = analyse(read(capture("sim/ok.ibnetdiscover")))
    for option in ("sim/ok-m-f.ibnetdiscover", "sim/ok-s.ibnetdiscover"):
        assert analyse(read(capture(option))).cables == plain.cables
    named = analyse(read(capture("sim/node-name-map.ibnetdiscover")))
    grouped = analyse(read(capture("sim/chassis-g.ibnetdiscover")))
    assert named.cables == grouped.cables
    assert set(named.nodes) == set(grouped.nodes) == {"n1"}


@pytest.mark.parametrize(
    "name",
    ["topograph-ndr-bad.out", "ports-report-edr.out", "ports-report-hdr.out", "ports-report-bad.out",
     "perfquery-x-1port.out", "perfquery-rcv-error.out", "sim/ok.iblinkinfo", "sim/ok.iblinkinfo-l", "sim/ok.ports",
     "sim/opensm-subnet.lst", "sim/map.txt", "sim/ok.ibstat"],
)  # fmt: skip
def test_what_is_no_scan_is_rejected_with_a_reason(name: str) -> None:
    verdict = read(capture(name)).verdict
    assert verdict.state == "rejected"
    assert verdict.reason


def test_no_capture_that_is_there_is_left_out() -> None:
    if not FABRICS.exists():
        pytest.skip(f"no captures: {FABRICS} is not on this machine")
    scans = {
        path.name for path in FABRICS.glob("*.*") if "Topology file" in path.read_text(errors="replace")[:400]
    }
    assert scans <= set(KNOWN) | {"topograph-ndr-bad.out"}
