"""Whatever happens to a scan's text on its way: reading never fails, and a damaged text is never a complete map."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.fabric import Reading, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.judge import judge
from llmgw.fabric.parse import parse
from llmgw.fabric.scan import LIMIT_BYTES, Trouble
from tests.captures import capture
from tests.fakes.fabrics import fat_tree

CAPTURES = (
    "topograph-ndr-example.out",
    "ufm-small-mixed.txt",
    "man-example-voltaire-sdr.topo",
    "sim/chassis-g.ibnetdiscover",
    "sim/node-name-map.ibnetdiscover",
)


def small() -> str:
    cluster = fat_tree(nodes=4, rails=2, nodes_per_leaf=2, spines=2, cables=2, rate="4xHDR", aggregation=1)
    cluster.short("gpu0001 mlx5_1", "2xHDR")
    return cluster.text()


SMALL = small()


def graph(reading: Reading) -> object:
    """What must not differ between two texts that both pass for complete."""
    fabric = analyse(reading)
    return (
        {(one.guid, one.name, one.tier) for one in fabric.switches.values()},
        {(one.guid, one.port, one.node, one.device, one.leaf, one.rate) for one in fabric.adapters.values()},
        {(one.a, one.a_port, one.b, one.b_port, one.rate) for one in fabric.cables},
    )


def assert_not_taken_for_whole(written: str, damaged: str) -> None:
    reading = read(damaged)
    if reading.verdict.state == "complete":
        assert graph(reading) == graph(read(written))


def assert_cables_not_taken_for_whole(written: str, damaged: str) -> None:
    """The cables alone: a longer change of an adapter's name looks like the work of a node-name map, and digits that
    are gone from a devid leave another one. Of both a cable's kind is made, so that its expected rate may differ."""
    reading = read(damaged)
    if reading.verdict.state == "complete":
        assert ends_and_rates(reading) == ends_and_rates(read(written))


def ends_and_rates(reading: Reading) -> list[tuple[str, int, str, int, str]]:
    return [(one.a, one.a_port, one.b, one.b_port, one.rate) for one in analyse(reading).cables]


def blocks(written: str) -> tuple[str, list[str]]:
    """The header of a text, and its blocks."""
    head, *rest = written.replace("\r\n", "\n").split("\n\n")
    return head, [block.strip("\n") for block in rest]


@given(st.permutations(range(len(blocks(SMALL)[1]))))
def test_the_order_of_blocks_is_of_no_meaning(order: list[int]) -> None:
    head, parts = blocks(SMALL)
    shuffled = "\n\n".join([head, *(parts[place] for place in order)]) + "\n"
    assert read(shuffled).verdict.state == "complete"
    assert graph(read(shuffled)) == graph(read(SMALL))


@given(st.integers(0, len(SMALL) - 1), st.characters())
@settings(max_examples=400, deadline=None)
def test_one_changed_character_leaves_the_map_as_it_was_or_incomplete(place: int, char: str) -> None:
    assert_not_taken_for_whole(SMALL, SMALL[:place] + char + SMALL[place + 1 :])


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 200))
@settings(max_examples=200, deadline=None)
def test_a_hole_leaves_the_map_as_it_was_or_incomplete(place: int, length: int) -> None:
    assert_cables_not_taken_for_whole(SMALL, SMALL[:place] + SMALL[place + length :])


@given(st.integers(0, SMALL.count("\n")))
@settings(max_examples=200, deadline=None)
def test_a_line_that_stands_twice_leaves_the_map_as_it_was_or_incomplete(place: int) -> None:
    lines = SMALL.split("\n")
    assert_not_taken_for_whole(SMALL, "\n".join([*lines[: place + 1], *lines[place:]]))


def test_c10_every_cut_is_found() -> None:
    whole = SMALL.rstrip("\n")
    for length in range(len(whole)):
        assert read(whole[:length]).verdict.state != "complete", f"cut after {length} of {len(whole)} characters"


@given(st.text(max_size=400))
def test_any_text_can_be_read(written: str) -> None:
    assert read(written).verdict.state == "rejected"


@given(st.lists(st.sampled_from(SMALL.split("\n")), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_lines_in_any_order_can_be_read_and_analysed(lines: list[str]) -> None:
    analyse(read("\n".join(lines)))


@given(st.binary(max_size=400))
def test_c10_any_bytes_can_be_read(data: bytes) -> None:
    read(SMALL + data.decode("utf-8", "surrogateescape") + SMALL)


def variants(written: str) -> Iterator[tuple[str, str]]:
    """The same scan as it may have come: through terminals, mails and editors."""
    plain = written.replace("\r\n", "\n")
    yield "tabs lost", plain.replace("\t", "")
    yield "tabs made blanks", plain.replace("\t", "        ")
    yield "foreign line ends", plain.replace("\n", "\r\n")
    yield "blanks in blank lines", plain.replace("\n\n", "\n \n")
    yield "no blank lines", plain.replace("\n\n", "\n")
    yield "no last line end", plain.rstrip("\n")
    yield "byte order mark", "\ufeff" + plain
    head, parts = blocks(plain)
    random.Random(1).shuffle(parts)
    yield "shuffled", "\n\n".join([head, *parts]) + "\n"


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_mean_the_same_however_they_came(name: str) -> None:
    written = capture(name)
    first = read(written)
    for way, other in variants(written):
        assert read(other).verdict.state == first.verdict.state, way
        assert graph(read(other)) == graph(first), way


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_cut_at_any_twentieth_are_rejected(name: str) -> None:
    written = capture(name)
    for part in range(1, 20):
        verdict = read(written[: len(written) * part // 20]).verdict
        assert verdict.state == "rejected", f"cut at {part}/20: {verdict}"
        assert verdict.reason


@pytest.mark.parametrize("name", [name for name in CAPTURES if "map" not in name])
def test_captures_with_one_changed_character_are_the_same_map_or_incomplete(name: str) -> None:
    """Where a node-name map renamed adapters, their own names stand on one line only, and no other can vouch."""
    written, chance = capture(name), random.Random(7)
    for _ in range(12 if len(written) > 100_000 else 100):
        place = chance.randrange(len(written))
        char = chance.choice([chr(chance.randrange(32, 127)), "\n", chr(ord(written[place]) ^ 1)])
        assert_not_taken_for_whole(written, written[:place] + char + written[place + 1 :])


def test_blocks_read_whole_and_line_by_line_are_equal() -> None:
    for written in (SMALL, small().replace("4xHDR", "4xNDR s=4 w=2 v=4")):
        by_lines = written.replace("\n\n", "\n \n")
        assert parse(written).devices == parse(by_lines).devices


def test_two_scans_in_one_text_are_no_scan() -> None:
    verdict = read(SMALL + SMALL).verdict
    assert verdict.state == "rejected"
    assert verdict.reason.startswith(str(Trouble.TWO_SCANS))


def test_c10_a_device_that_is_listed_twice_is_no_scan() -> None:
    head, parts = blocks(SMALL)
    assert read("\n\n".join([head, *parts, parts[2]]) + "\n").verdict.state == "rejected"


class Huge(str):
    """Text that only says that it is long, so that the test needs no memory."""

    def __len__(self) -> int:
        return 1 << 30


def test_c10_a_gigabyte_is_refused_before_it_is_read() -> None:
    verdict = judge(parse(Huge("x"))).verdict
    assert verdict.state == "rejected"
    assert f"larger than {LIMIT_BYTES >> 20} MiB" in verdict.reason


def test_a_long_text_of_something_else_is_given_up_early() -> None:
    reading = read("lorem ipsum dolor sit amet\n" * 200_000)
    assert reading.verdict.state == "rejected"
    assert len(reading.verdict.problems) <= 1001


def test_a_device_that_lost_its_devid_makes_a_scan_partial() -> None:
    lines = SMALL.split("\n")
    devids = [number for number, line in enumerate(lines) if line.startswith("devid=")]
    for number in devids:
        reading = read("\n".join([*lines[:number], "v" + lines[number], *lines[number + 1 :]]))
        assert reading.verdict.state == "partial"
        assert reading.verdict.reason.startswith("device without devid: ")
    without = read("\n".join(line for line in lines if not line.startswith("devid=")))
    assert without.verdict.state == "complete"


def test_a_scan_without_its_header_is_partial() -> None:
    head, parts = blocks(SMALL)
    assert head.startswith("#")
    assert read("\n\n".join(parts) + "\n").verdict.state == "partial"


def test_what_the_tool_gave_up_on_is_rejected() -> None:
    verdict = read(SMALL, stderr="ibpanic: [4711] main: discover failed: Invalid argument\n").verdict
    assert verdict.state == "rejected"


def test_a_warning_of_the_tool_makes_a_scan_partial_and_a_shells_chatter_does_not() -> None:
    simulator = 'ibwarn: [31918] sim_connect: attached as client 0 at node "H-0c42a10300000700"\n'
    assert read(SMALL, stderr=simulator).verdict.state == "complete"
    assert read(SMALL, stderr="ibwarn: [4711] mad_rpc: _do_madrpc failed\n").verdict.state == "partial"
    assert (
        read(SMALL, stderr="Warning: Permanently added 'n1' to the list of known hosts.\n").verdict.state
        == "complete"
    )
    assert read(SMALL, stderr="WARNING failed to parse node name map '/etc/x'\n").verdict.state == "complete"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o1 HCA-1' - 'ib1' )",
            "without -p",
        ),
        ('Switch\t : 0x0002c9020043c001 ports 36 devid 0xbd36 vendid 0x2c9 "edge"', "list of devices"),
        ("Switch: 0xb8cef60300bb0000 MF0;spine01:MQM8700/U1:", "iblinkinfo"),
        ("< vendid=0x2c9", "--diff"),
        ("{ SW Ports:28 SystemGUID:b8cef60300aa0000 NodeGUID:b8cef60300aa0000", "opensm"),
        ("START_NODES", "ibdiagnet"),
    ],
)
def test_another_output_is_called_by_its_name_with_what_to_run(line: str, hint: str) -> None:
    verdict = read(line + "\n").verdict
    assert verdict.state == "rejected"
    assert hint in verdict.reason
    assert verdict.line == 1


def test_a_scan_of_nothing_but_noise_is_rejected_with_its_own_reason() -> None:
    verdict = read("".join(f"noise {number} {{\n" for number in range(60_000))).verdict
    assert (verdict.state, verdict.reason) == ("rejected", "not a scan: 10000 lines without a device")
