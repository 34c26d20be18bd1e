"""Pictures: the text that Graphviz gets, what it makes of it, and that no name in a fabric is more than a name."""

import json
import re
import shutil
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from llmgw.base import LlmgwError, UsageError
from llmgw.cli.drawing import IRREGULAR, PLACED, Engine, render
from llmgw.fabric import Fabric, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.diff import diff
from llmgw.fabric.drawing import (
    Ask,
    Look,
    change_marks,
    dot,
    fault_marks,
    hint,
    lay_out,
    limited,
    mesh_dot,
    quoted,
    replica_groups,
)
from llmgw.fabric.topology import topology
from tests.captures import capture
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.scans import NOW, one_leaf

HOSTILE = (
    'quote " quote',
    "trailing \\",
    "\\N \\G \\L \\n",
    "<b>bold</b>",
    "<",
    "<IMG SRC=/etc/passwd>",
    'a"]; evil [label="x',
    "HREF=javascript:alert(1)",
    "</svg><script>alert(1)</script>",
    "&lt;script&gt; &amp; &#60;",
    "\u202egnp.exe",
    "\x1b[2J\x07",
    "x" * 20_000,
    "\ud800",
    "\x00nul",
    "a\nb\rc",
)

needs_graphviz = pytest.mark.skipif(not shutil.which("neato"), reason="Graphviz is not installed")


def small() -> Cluster:
    made = fat_tree(nodes=8, rails=2, nodes_per_leaf=4, spines=2, cables=2, rate="4xHDR")
    made.short("gpu0002 mlx5_1", "1xHDR")
    made.short("leaf-1-3", "2xHDR", "spine-1-2")
    return made


def tall() -> Cluster:
    made = fat_tree(nodes=128, rails=8, nodes_per_leaf=32, spines=4, cables=1, pods=2, cores=4)
    made.short("gpu0071 mlx5_1", "2xNDR")
    made.short("spine-1-2", "2xNDR", "core-003")
    made.pull("leaf-2-5", "spine-2-1")
    return made


def fabric_of(made: Cluster) -> Fabric:
    return analyse(read(made.text()))


def asked(fabric: Fabric, **words: object) -> Ask:
    return replace(Ask(title="fabric ib0", marks=fault_marks(fabric)), **words)  # type: ignore[arg-type]


def drawn(fabric: Fabric, **words: object) -> str:
    layout = lay_out(fabric, asked(fabric, **words))
    assert layout
    return dot(layout)


def test_the_faults_of_a_small_fabric(check_case: Callable[[str, str], None]) -> None:
    check_case("fabric/faults.dot", drawn(fabric_of(small())))


def test_every_cable_of_a_small_fabric_by_rate(check_case: Callable[[str, str], None]) -> None:
    check_case("fabric/every_cable.dot", drawn(fabric_of(small()), every_cable=True, colouring="rate"))


def test_one_leaf_of_a_fabric(check_case: Callable[[str, str], None]) -> None:
    fabric = fabric_of(small())
    part = limited(fabric, "leaf=leaf-1-2")
    check_case("fabric/one_leaf.dot", drawn(fabric, switches=part.switches))


def test_what_changed_since_an_older_map(check_case: Callable[[str, str], None]) -> None:
    old, new = small(), small()
    new.pull("gpu0003 mlx5_0")
    new.pull("leaf-1-3", "spine-1-1")
    new.swap("gpu0005 mlx5_0", "gpu0005 mlx5_1")
    new.cables[new.cable("gpu0002 mlx5_1")] = "4xHDR"
    before, after = (topology(fabric_of(one), name="ib0", scanned_at=NOW) for one in (old, new))
    fabric = fabric_of(new)
    check_case("fabric/changes.dot", drawn(fabric, marks=change_marks(fabric, before, diff(before, after))))


def test_where_a_plan_puts_its_replicas(check_case: Callable[[str, str], None]) -> None:
    fabric = fabric_of(small())
    plan = {"deepseek-v3/0": ["gpu0001", "gpu0002"], "qwen2.5-72b/0": ["gpu0007"]}
    check_case("fabric/plan.dot", drawn(fabric, marks=replica_groups(fault_marks(fabric), plan), colouring="plan"))


def test_a_ring_is_no_fat_tree_and_is_left_to_graphviz(check_case: Callable[[str, str], None]) -> None:
    made = Cluster()
    ring = [made.add("S", f"MF0;ring-{n}:MQM8700/U1", ports=41, model=0xD2F0) for n in range(5)]
    for n, guid in enumerate(ring):
        made.join(guid, 40, ring[(n + 1) % 5], 39, "4xHDR")
        made.join(guid, 1, made.add("H", f"n{n} mlx5_0", ports=1, model=0x101B), 1, "4xHDR")
    made.short("ring-0", "2xHDR", "ring-1")
    fabric = fabric_of(made)
    assert lay_out(fabric, asked(fabric)) is None
    check_case("fabric/ring.dot", mesh_dot(fabric, asked(fabric)))


def test_equal_fabrics_are_drawn_equal_whatever_the_order_of_the_text() -> None:
    head, *blocks = small().text().split("\n\n")
    turned = "\n\n".join([head, *(block.strip("\n") for block in reversed(blocks))]) + "\n"
    assert drawn(analyse(read(turned))) == drawn(fabric_of(small()))


def test_every_adapter_has_a_cell_that_no_other_cell_touches() -> None:
    for made in (small(), tall()):
        fabric = fabric_of(made)
        layout = lay_out(fabric, asked(fabric))
        assert layout
        assert {(cell.guid, cell.port) for cell in layout.cells} == set(fabric.adapters)
        assert {chip.guid for chip in layout.chips} == set(fabric.switches)
        corners = {(round(cell.x, 1), round(cell.y, 1)) for cell in layout.cells}
        assert len(corners) == len(layout.cells)
        assert all(0 <= cell.x <= layout.width and 0 <= cell.y <= layout.height for cell in layout.cells)


def test_a_node_stands_in_one_line_across_its_leaves() -> None:
    fabric = fabric_of(tall())
    layout = lay_out(fabric, asked(fabric))
    assert layout
    of_node = {adapter.guid: adapter.node for adapter in fabric.adapters.values()}
    rows = {of_node[cell.guid]: set() for cell in layout.cells}
    for cell in layout.cells:
        rows[of_node[cell.guid]].add(round(cell.y, 1))
    assert {len(found) for found in rows.values()} == {1}


def test_marks_have_numbers_that_the_list_explains() -> None:
    fabric = fabric_of(tall())
    layout = lay_out(fabric, asked(fabric))
    assert layout
    listed = [note.text for note in layout.notes if note.text[:3] in ("1  ", "2  ")]
    assert listed == [
        "1  short cable: gpu0071 mlx5_1/1 - leaf-1-18 port 7 runs at 2xNDR, its kind at 4xNDR",
        "2  short cable: core-003 port 2 - spine-1-2 port 35 runs at 2xNDR, its kind at 4xNDR",
    ]
    assert [(cell.number, cell.look) for cell in layout.cells if cell.look is not Look.PLAIN] == [(1, Look.SHORT)]
    assert [wire.number for wire in layout.wires if wire.look is Look.SHORT] == [2]
    fewer = [wire.hint for wire in layout.wires if wire.look is Look.FEWER]
    assert fewer == ["no cable from leaf-2-5 to spine-2-1, others have 1"]


def test_a_layout_is_plain_data_that_a_page_can_be_sent() -> None:
    fabric = fabric_of(small())
    sent = json.loads(msgspec.json.encode(lay_out(fabric, asked(fabric))))
    assert {"frames", "ribbons", "wires", "chips", "cells", "notes", "legend", "width", "height"} <= set(sent)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("pod=7", "no pod 7"),
        ("leaf=leaf-1-9", "did you mean leaf-1-"),
        ("node=gpu9", "no node gpu9"),
        ("rack=3", "no limit"),
    ],
)
def test_a_limit_that_is_not_there_is_refused_with_what_is(limit: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        limited(fabric_of(small()), limit)


def test_limits_take_pods_by_number_leaves_by_label_or_guid_and_nodes() -> None:
    fabric = fabric_of(tall())
    leaf = next(guid for guid, switch in fabric.switches.items() if switch.label == "leaf-2-5")
    assert limited(fabric, "leaf=leaf-2-5") == limited(fabric, f"leaf=0x{leaf}")
    assert len(limited(fabric, "pod=2").switches) == len(limited(fabric, "pod=pod-2").switches) == 36
    node = limited(fabric, "node=gpu0001")
    assert node.nodes == {"gpu0001"}
    assert len(node.switches) == 8 + 4


def svg_of(text: str, command: Engine = PLACED) -> ET.Element:
    return ET.fromstring(render(text, command, "svg"))


def shown(name: str) -> str:
    """A hostile name as it is to be seen: what is no visible character spelled out, 128 characters at most."""
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    spelled = "".join(
        char
        if unicodedata.category(char) not in hidden
        else f"\\x{ord(char):02x}"
        if ord(char) < 256
        else f"\\u{ord(char):04x}"
        for char in name
    )
    return spelled[:128]


def assert_harmless(svg: ET.Element) -> None:
    for element in svg.iter():
        tag = element.tag.rpartition("}")[2]
        assert tag in {"svg", "g", "a", "title", "polygon", "polyline", "path", "ellipse", "text"}, tag
        for key, value in element.attrib.items():
            name = key.rpartition("}")[2]
            assert not name.startswith("on"), name
            assert name not in {"href", "src", "style"} or not value.strip(), (key, value)


@needs_graphviz
@pytest.mark.parametrize("name", HOSTILE)
def test_c4_c5_graphviz_shows_any_text_as_it_is(name: str) -> None:
    svg = svg_of(f"graph g {{ a [label={quoted(name)}, tooltip={hint(name)}]; b; }}", Engine("dot"))
    assert_harmless(svg)
    texts = ["".join(element.itertext()) for element in svg.iter() if element.tag.endswith("}text")]
    assert texts == [shown(name), "b"]
    hints = [value for element in svg.iter() for key, value in element.attrib.items() if key.endswith("}title")]
    assert hints == [shown(name)]


@needs_graphviz
@pytest.mark.parametrize("name", [name for name in HOSTILE if "\n" not in name])
def test_c4_c5_hostile_names_of_switches_and_adapters_are_drawn_as_text_and_change_nothing_else(name: str) -> None:
    fabric = analyse(read(one_leaf(f"{name} mlx5_0", name, switch_name=name)))
    for text, command in ((drawn(fabric, title=name), PLACED), (mesh_dot(fabric, asked(fabric)), IRREGULAR)):
        svg = svg_of(text, command)
        nodes = sum(element.get("class") == "node" for element in svg.iter())
        assert nodes == len(re.findall(r"^[ns][0-9]+ \[", text, re.MULTILINE))
        assert_harmless(svg)


@needs_graphviz
@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_every_format_can_be_made(kind: str) -> None:
    data = render(drawn(fabric_of(small())), PLACED, kind)
    assert data[:8].startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind])
    assert b"<!DOCTYPE" not in data


@needs_graphviz
def test_a_layout_that_takes_too_long_is_given_up() -> None:
    edges = "; ".join(f"n{a} -- n{b}" for a in range(60) for b in range(a))
    with pytest.raises(LlmgwError, match="took more than"):
        render(f"graph g {{ {edges} }}", Engine("dot"), "svg", limit_s=0.05)


def test_a_missing_graphviz_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LlmgwError, match="not installed") as caught:
        render("graph g {}", PLACED, "svg")
    assert "apt-get install graphviz" in caught.value.hint


@needs_graphviz
@pytest.mark.parametrize(
    "name", ["selene-compute-hdr.txt", "topograph-ndr-example.out", "ufm-director-cs8500-putty.txt"]
)
def test_captures_are_drawn_with_all_their_adapters_and_no_name_is_more_than_a_name(name: str) -> None:
    fabric = analyse(read(capture(name)))
    layout = lay_out(fabric, asked(fabric))
    assert layout
    assert len(layout.cells) == len(fabric.adapters)
    assert 0.8 < layout.width / layout.height < 3
    assert_harmless(svg_of(dot(layout)))
