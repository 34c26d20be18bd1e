"""Hard cases of ibnetdiscover's text, by the numbers that docs/fabric.md gives them, on small texts of our own."""

from llmgw.fabric import Severity, Standing, Trouble, gbps, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.parse import parse
from llmgw.fabric.scan import Kind
from tests.fakes.scans import (
    adapter,
    from_adapter,
    guid,
    header,
    one_leaf,
    switch,
    text,
    to_adapter,
    to_switch,
)

BAD_STATUS = (
    "src/query_smp.c:199; umad (DR path slid 0; dlid 0; 0,1,3 Attr 0x11:0) bad status 110; Connection timed out"
)


def adapters(written: str) -> list[tuple[str | None, str]]:
    """Node and device of every adapter."""
    return [(one.node, one.device) for one in analyse(read(written)).adapters.values()]


def test_01_a_trailing_blank_belongs_to_no_device() -> None:
    assert adapters(one_leaf("selene-cache-02 mlx5_1 ")) == [("selene-cache-02", "mlx5_1")]


def test_03_factory_descriptions_are_adapters_of_no_node() -> None:
    fabric = analyse(read(one_leaf(*["MT4129 ConnectX7   Mellanox Technologies"] * 3, "gpu01 mlx5_0")))
    assert set(fabric.nodes) == {"gpu01"}
    assert len(fabric.adapters) == 4
    assert len(fabric.cables) == 4
    assert [one.standing for one in fabric.adapters.values()].count(Standing.UNNAMED) == 3


def test_16_two_lanes_are_short_on_a_switch_of_41_ports_and_usual_on_a_split_one_of_81() -> None:
    def short_of(size: int, rates: list[str]) -> int:
        names = [f"n{n} mlx5_0" for n in range(1, 5)]
        ports = [
            to_adapter(n, n, name, rate=rate) for n, (name, rate) in enumerate(zip(names, rates, strict=True), 1)
        ]
        cards = [
            adapter(n, name, from_adapter(n, 1, "sw", n, rate=rate))
            for n, (name, rate) in enumerate(zip(names, rates, strict=True), 1)
        ]
        fabric = analyse(read(text(switch(1, "sw", *ports, size=size), *cards)))
        return sum(cable.degraded for cable in fabric.cables)

    assert short_of(41, ["4xHDR", "4xHDR", "4xHDR", "2xHDR"]) == 1
    assert short_of(81, ["2xHDR", "2xHDR", "2xHDR", "2xHDR"]) == 0


def test_17_the_slower_end_counts() -> None:
    fabric = analyse(
        read(
            text(
                switch(
                    1,
                    "a",
                    to_adapter(1, 1, "n1 mlx5_0", rate="4xSDR"),
                    to_switch(2, 2, "b", 1, rate="4xSDR"),
                    model=0x5A06,
                ),
                switch(2, "b", to_switch(1, 1, "a", 2, rate="1xSDR"), model=0x5A05),
                adapter(1, "n1 mlx5_0", from_adapter(1, 1, "a", 1, rate="4xSDR"), model=0x5A44),
            )
        )
    )
    between = next(cable for cable in fabric.cables if cable.a == guid(1, "S") and cable.b == guid(2, "S"))
    assert (between.rate, between.expected, between.degraded) == ("1xSDR", "4xSDR", True)
    assert fabric.verdict.state == "complete"


def test_18_a_rate_that_timed_out_is_that_of_the_other_end_and_the_scan_partial() -> None:
    whole = one_leaf("n1 mlx5_0", "n2 mlx5_0", "n3 mlx5_0")
    own = f"[1]({int(guid(2), 16):x})"
    written = whole.replace(
        f'{own} \t"S-{guid(1, "S")}"[2]\t\t# lid 102 lmc 0 "leaf" lid 1 4xHDR',
        f'{own} \t"S-{guid(1, "S")}"[2]\t\t# lid 102 lmc 0 "leaf" lid 1 ?????',
    )
    assert written != whole
    reading = read(written)
    assert reading.verdict.state == "partial"
    assert [(cable.rate, cable.degraded) for cable in analyse(reading).cables] == [("4xHDR", False)] * 3


def test_20_an_adapter_alone_is_a_port_that_is_down_and_rejected() -> None:
    verdict = read(text(adapter(1, "dgx-gb200-n01-c1 HCA-1"))).verdict
    assert verdict.state == "rejected"
    assert "port is down" in verdict.reason
    assert verdict.line == 10


def test_21_a_text_that_is_cut_off_is_rejected_though_its_switches_look_fine() -> None:
    written = one_leaf(*[f"n{n} mlx5_0" for n in range(1, 9)])
    cut = written[: written.index("vendid=0x2c9\ndevid=0x101b")]
    assert "Switch" in cut
    verdict = read(cut).verdict
    assert verdict.state == "rejected"
    assert "cut off: after line" in verdict.reason


def test_23_two_ports_of_one_device_are_two_adapters_in_any_order() -> None:
    fabric = analyse(
        read(
            text(
                switch(1, "ISR9024 Voltaire", to_adapter(8, 1, "n1 HCA-1", rate="4xSDR", peer_port=2, lid=14),
                       to_adapter(12, 1, "n1 HCA-1", rate="4xSDR", lid=10), model=0x5A06),
                adapter(1, "n1 HCA-1", from_adapter(1, 1, "ISR9024 Voltaire", 8, rate="4xSDR", port=2, lid=14),
                        from_adapter(1, 1, "ISR9024 Voltaire", 12, rate="1xSDR", lid=10), size=2, model=0x5A44),
            )
        )
    )  # fmt: skip
    assert sorted(fabric.adapters) == [(guid(1), 1), (guid(1), 2)]
    assert {(one.node, one.port, one.rate) for one in fabric.adapters.values()} == {
        ("n1", 1, "1xSDR"),
        ("n1", 2, "4xSDR"),
    }
    assert sum(cable.degraded for cable in fabric.cables) == 1


def test_24_a_cable_from_a_switch_to_itself_is_one_cable_and_makes_no_neighbour() -> None:
    own = [to_adapter(1, 1, "n1 mlx5_0"), to_switch(25, 1, "sw", 26), to_switch(26, 1, "sw", 25)]
    fabric = analyse(read(text(switch(1, "sw", *own), adapter(1, "n1 mlx5_0", from_adapter(1, 1, "sw", 1)))))
    loops = [cable for cable in fabric.cables if cable.a == cable.b]
    assert [(cable.a_port, cable.b_port) for cable in loops] == [(25, 26)]
    assert [switch.distance for switch in fabric.switches.values()] == [1]
    assert "self cable" in {finding.kind for finding in fabric.findings if finding.severity is Severity.NOTE}


def test_25_tabs_may_be_lost_and_a_banner_and_a_prompt_may_be_there() -> None:
    written = one_leaf("n1 mlx5_0", "n2 mlx5_0")
    lost = "=~=~=~= PuTTY log 2021.06.15 12:06:05 =~=~=~=\r\n" + written.replace("\t", "").replace("\n", "\r\n")
    reading = read(lost + "\r\nadmin [ mgmt-ha-active ] (config) # ")
    assert reading.verdict.state == "complete"
    assert reading.scan.devices == {guid: moved(one, 1) for guid, one in parse(written).devices.items()}


def moved(device: object, lines: int) -> object:
    """A device as it is some lines further down."""
    from msgspec.structs import replace

    cables = {port: replace(one, line=one.line + lines) for port, one in device.cables.items()}  # type: ignore[attr-defined]
    return replace(device, line=device.line + lines, cables=cables)  # type: ignore[type-var, attr-defined]


def test_25_a_lid_of_65535_is_a_port_that_nobody_gave_one() -> None:
    written = one_leaf("n1 mlx5_0").replace("lid 101", "lid 65535")
    reading = read(written)
    assert reading.verdict.state == "complete"
    assert [line.lid for line in reading.scan.devices[guid(1, "S")].cables.values()] == [65535]


def test_26_a_byte_order_mark_a_prompt_and_foreign_line_ends_are_no_part_of_a_scan() -> None:
    written = "\ufeff[root@mgmt ~]# ibnetdiscover\r\n" + one_leaf("n1 mlx5_0").replace("\n", "\r\n")
    reading = read(written + "[root@mgmt ~]# \r\n")
    assert reading.verdict.state == "complete"
    assert {problem.kind for problem in reading.verdict.problems} == {Trouble.NOISE, Trouble.UNKNOWN_LINE}


def test_27_in_ibdiagnets_dump_the_quoted_id_counts() -> None:
    chassis = f"{int(guid(99, 'S'), 16):x}"
    blocks = [
        (
            f"vendid=0x000002c9\ndevid=0xd2f0\nsysimgguid=0x{chassis}\nswitchguid=0x{chassis}({guid(1, 'S')[1:]})\n"
            f'Switch\t41 "S-{guid(1, "S")}"\t\t# "MF0;dir1:MCS8500/L01/U1" enhanced port 0 lid 1 lmc 0\n'
            f'[1](1) "H-{guid(1)}"[1]({guid(1)}) \t\t# "n1 mlx5_0" lid 101 4xHDR\n'
        ),
        (
            f"vendid=0x000002c9\ndevid=0x101b\nsysimgguid=0x{guid(1)}\ncaguid=0x{guid(1)}\n"
            f'Ca\t1 "H-{guid(1)}"\t\t# "n1 mlx5_0"\n'
            f'[1]({guid(1)}) "S-{guid(1, "S")}"[1](1) \t\t# lid 101 lmc 0 "MF0;dir1:MCS8500/L01/U1" lid 1 4xHDR\n'
        ),
    ]
    head = "# This database file was automatically generated by IBDIAG\n"
    blocks[0] = blocks[0].replace(f"({guid(1, 'S')[1:]})", f"({int(guid(1, 'S'), 16):x})")
    scan = parse(head + "\n\n".join(blocks))
    assert list(scan.devices) == [guid(1, "S"), guid(1)]
    assert scan.devices[guid(1, "S")].stated == (guid(99, "S"), guid(1, "S"))
    assert len(scan.devices[guid(1, "S")].cables) == 1


def test_28_chassis_headings_change_nothing() -> None:
    plain = one_leaf("n1 mlx5_0", switch_name="MF0;dir1:IS5200/L01/U1")
    headings = "Chassis 1 (guid 0x2c9020043c000)\n\n# Spine Nodes\n"
    others = "# Chassis Switches\n# Chassis CAs\nNon-Chassis Nodes\n\n"
    grouped = (
        plain.replace(f'[1]\t"H-{guid(1)}"', f'[1][ext 1]\t"H-{guid(1)}"')
        .replace(f'"S-{guid(1, "S")}"[1]\t', f'"S-{guid(1, "S")}"[1][ext 1]\t')
        .replace("\nvendid=0x2c9\ndevid=0xd2f0", f"\n{headings}vendid=0x2c9\ndevid=0xd2f0")
        .replace(f"({int(guid(1, 'S'), 16):x})\n", f"({int(guid(1, 'S'), 16):x})\t# IS5200 Line 1 Chip 1\n")
        .replace("\nvendid=0x2c9\ndevid=0x101b", f"\n{others}vendid=0x2c9\ndevid=0x101b")
    )
    assert read(grouped).verdict.problems == ()
    assert analyse(read(grouped)).cables == analyse(read(plain)).cables
    assert parse(grouped).devices[guid(1, "S")].slot == "IS5200 Line 1 Chip 1"
    assert parse(grouped).devices[guid(1, "S")].cables[1].ext == 1


def test_29_with_a_node_name_map_the_node_is_what_the_adapter_itself_says() -> None:
    mapped = one_leaf("n1 HCA-1").replace('# "n1 HCA-1" lid', '# "NODE-ONE (rack 1) x" lid')
    reading = read(mapped)
    assert reading.verdict.state == "complete"
    assert [problem.kind for problem in reading.verdict.problems] == [Trouble.MAPPED_NAME]
    assert adapters(mapped) == [("n1", "HCA-1")]


def test_30_a_description_ends_at_the_last_quotation_mark_of_its_line() -> None:
    name = 'n1 "lab" lid 9 mlx5_0'
    scan = parse(one_leaf(name))
    assert scan.devices[guid(1)].name == name
    assert scan.devices[guid(1, "S")].cables[1].name == name
    assert adapters(one_leaf(name)) == [("n1", "mlx5_0")]


def test_31_guids_are_equal_with_and_without_leading_zeros() -> None:
    written = one_leaf("n1 mlx5_0")
    short = f"{int(guid(1), 16):x}"
    assert f"caguid=0x{short}\n" in written
    assert len(short) == 15
    line = parse(written).devices[guid(1)].cables[1]
    assert line.port_guid == guid(1)
    assert parse(written).devices[guid(1, "S")].cables[1].peer_guid == guid(1)


def test_32_blocks_need_no_blank_lines_and_the_last_no_line_end() -> None:
    written = one_leaf("n1 mlx5_0", "n2 mlx5_0")
    tight = written.replace("\n\n", "\n").rstrip("\n")
    spaced = written.replace("\n\n", "\n \n\n\n")
    for one in (tight, spaced):
        assert read(one).verdict.state == "complete"
        assert list(parse(one).devices) == list(parse(written).devices)
        assert len(read(one).pairs) == 2


def test_33_an_empty_description_is_an_adapter_of_no_node() -> None:
    reading = read(one_leaf("", "n2 mlx5_0"))
    fabric = analyse(reading)
    assert reading.verdict.state == "partial"
    assert set(fabric.nodes) == {"n2"}
    assert [one.node for one in fabric.adapters.values()] == ["n2", None]


def test_34_routers_and_rates_of_the_future_are_read_and_kept() -> None:
    router = f"{int(guid(7), 16):x}"
    ports = [
        to_adapter(1, 1, "n1 mlx5_0", rate="1xXDR"),
        to_adapter(2, 2, "n2 mlx5_0", rate="4xZDR"),
        f'[149]\t"R-{guid(7)}"[1]({router}) \t\t# "MF0;mamba-2132:Q3400_RA/U2/RT" lid 20 1xXDR\n',
    ]
    reading = read(
        text(
            switch(1, "MF0;mamba-2132:Q3400_RA/U2", *ports, size=160),
            adapter(1, "n1 mlx5_0", from_adapter(1, 1, "MF0;mamba-2132:Q3400_RA/U2", 1, rate="1xXDR")),
            adapter(2, "n2 mlx5_0", from_adapter(2, 1, "MF0;mamba-2132:Q3400_RA/U2", 2, rate="4xZDR")),
            f"vendid=0x2c9\ndevid=0xc839\nrtguid=0x{router}\n"
            f'Rt\t8 "R-{guid(7)}"\t\t# "MF0;mamba-2132:Q3400_RA/U2/RT"\n'
            f'[1]({router}) \t"S-{guid(1, "S")}"[149]\t\t# lid 20 lmc 0 "MF0;mamba-2132:Q3400_RA/U2" lid 1 1xXDR\n',
        )
    )
    fabric = analyse(reading)
    assert reading.verdict.state == "complete"
    assert [problem.line for problem in reading.verdict.problems if problem.kind is Trouble.UNKNOWN_RATE] == [
        12,
        27,
    ]
    assert fabric.routers == (guid(7),)
    assert len(fabric.adapters) == 2
    assert {(cable.rate, cable.degraded) for cable in fabric.cables} == {("1xXDR", False), ("4xZDR", False)}
    assert (gbps("1xXDR"), gbps("4xZDR")) == (200.0, None)


def test_a_port_line_of_the_future_is_kept_reported_and_costs_no_more_than_itself() -> None:
    written = one_leaf("n1 mlx5_0", "n2 mlx5_0").replace('[1]\t"H-', '[1]{plane 2}\t"H-')
    reading = read(written)
    assert reading.verdict.state == "partial"
    unread = [problem for problem in reading.verdict.problems if problem.kind is Trouble.UNREAD_PORT]
    assert [problem.line for problem in unread] == [11]
    assert unread[0].shown.startswith("[1]{plane 2}")
    assert len(analyse(reading).cables) == 1


def test_fields_and_comments_of_the_future_are_kept_and_reported() -> None:
    written = (
        one_leaf("n1 mlx5_0")
        .replace("devid=0xd2f0\n", "devid=0xd2f0\nplaneguid=0x17\n")
        .replace("# Initiated", "# Planes: 4\n# Initiated")
    )
    reading = read(written)
    assert reading.verdict.state == "complete"
    assert [(problem.line, problem.shown) for problem in reading.verdict.problems] == [
        (4, "# Planes: 4"),
        (9, "planeguid=0x17"),
    ]


def test_ids_that_are_no_guids_keep_their_devices_under_made_up_ones() -> None:
    written = one_leaf("n1 mlx5_0", "n2 mlx5_0").replace(guid(1), "11111111111host1")
    reading = read(written)
    fabric = analyse(reading)
    assert reading.verdict.state == "partial"
    assert len(fabric.adapters) == 2
    made_up = next(iter(one.guid for one in fabric.adapters.values() if one.guid != guid(2)))
    assert made_up.startswith("ffff")
    assert len(made_up) == 16
    assert Trouble.BAD_GUID in {problem.kind for problem in reading.verdict.problems}


def test_full_rates_and_hop_counts_of_options_f_and_m_are_read() -> None:
    written = (
        one_leaf("n1 mlx5_0")
        .replace("4xHDR\n", "4xHDR s=4 w=2 v=4\n")
        .replace("# Initiated", "# Reported max hops discovered: 3\n# Total MADs used: 96\n# Initiated")
    )
    reading = read(written)
    assert reading.verdict.problems == ()
    assert [cable.rate for cable in analyse(reading).cables] == ["4xHDR"]


def test_progress_lines_of_option_s_are_passed_over() -> None:
    progress = 'DR path slid 0; dlid 0; 0,1 -> new Switch {b8cef60300aa0000} portnum 0 lid 0-0 ""\n'
    assert read(progress + one_leaf("n1 mlx5_0")).verdict.problems == ()


def test_an_unknown_type_of_device_is_kept() -> None:
    odd = 'vendid=0x2c9\ndevid=0x1\n???guid=0x9\n???\t2 "?-0000000000000009"\t\t# "what"\n'
    reading = read(one_leaf("n1 mlx5_0") + "\n" + odd)
    assert reading.scan.devices["0" * 15 + "9"].kind is Kind.UNKNOWN
    assert reading.verdict.state == "complete"


def test_stderr_in_the_text_is_judged_where_it_stands() -> None:
    reading = read(BAD_STATUS + "\n" + one_leaf("n1 mlx5_0", "n2 mlx5_0"))
    assert reading.verdict.state == "partial"
    assert reading.verdict.line == 1
    assert "the device behind leaf port 3 is unknown" in reading.verdict.reason


def test_header_alone_is_no_scan() -> None:
    assert read(header()).verdict.state == "rejected"
