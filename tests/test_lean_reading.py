"""Facts and maps as a plan reads them: as the whole documents have them, and no less strictly."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.base import DocumentError
from llmgw.fabric import Paths, lean_paths
from llmgw.observed import NodeFacts, lean_facts
from llmgw.plan import Options, make_plan
from tests.fakes.worlds import NOW, World

CASES = Path(__file__).parent / "cases" / "plan"
NAMES = (
    "c09_gpu_blocks_are_aligned", "c20_lost_node_and_its_other_half", "c25_foreign_processes_and_orphans",
    "s03_short_cables_last_for_two_nodes", "s20_off_rail_last_for_two_nodes",
)  # fmt: skip


def case(name: str) -> World:
    return World.read(yaml.safe_load((CASES / f"{name}.yml").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_from_what_is_left_is_the_plan_from_the_whole(name: str) -> None:
    world = case(name)
    site, facts, paths = world.site(), world.facts(), world.paths()
    less = lean_facts(
        ((node, known.model_dump_json()) for node, known in facts.nodes.items()),
        asked_at=facts.asked_at,
        silent=facts.silent,
    )
    lean = {fabric: lean_paths(known.text(), fabric) for fabric, known in paths.items()}
    whole = make_plan(site, paths, facts, world.standing(), options=Options(), now=NOW)
    assert make_plan(site, lean, less, world.standing(), options=Options(), now=NOW) == whole


def test_equal_nodes_share_their_gpus_and_their_rails() -> None:
    world = World.of({"leaf-a": ["n1", "n2"]})
    texts = [(name, node.model_dump_json()) for name, node in world.facts().nodes.items()]
    facts = lean_facts(texts, asked_at=NOW, silent={})
    paths = lean_paths(world.paths()["ib0"].text(), "ib0")
    assert facts.nodes["n1"].gpus is facts.nodes["n2"].gpus
    assert paths.nodes["n1"].rails is paths.nodes["n2"].rails


# What is wrong in a document is wrong for both readers.

WRONG = st.sampled_from([None, -1, 2**70, 1.5, True, "", "x" * 300, "a b", [], [1], {}, {"a": 1}, [["x"]]])


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """The values with one of them replaced, dropped, or joined by another."""
    values = copy.deepcopy(whole)
    here: Any = values
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return values
        key = draw(st.sampled_from(keys))
        below = here[key]
        if not (isinstance(below, dict | list) and below and draw(st.integers(0, 4))):
            break
        here = below
    what = draw(st.sampled_from(("replace", "drop", "add")))
    if what == "replace":
        here[key] = draw(WRONG)
    elif what == "drop":
        del here[key]
    elif isinstance(here, dict):
        here[draw(st.sampled_from(["colour", "a b", "", "Größe"]))] = draw(WRONG)
    return values


def refuses(read: Callable[[], Any]) -> bool:
    try:
        read()
    except DocumentError:
        return True
    return False


PATHS = json.loads(case("s03_short_cables_last_for_two_nodes").paths()["ib0"].text())
FACTS = json.loads(case("c25_foreign_processes_and_orphans").facts().text())["nodes"]
NODE = max(FACTS.values(), key=lambda node: len(json.dumps(node)))
UNUSED_OF_RAILS, UNUSED_OF_GPUS = ("guid", "pci"), ("uuid", "pci")
UNUSED_OF_NODES = ("adapters", "disks", "rights", "hostname", "boot_id", "python")


def restored_paths(values: Any) -> str:
    """The document with what the lean reader does not look at as it should be."""
    values = copy.deepcopy(values)
    for node in _dicts(values, "nodes"):
        for rail in _list(node, "rails"):
            rail.update(guid="0" * 16, pci="")
    return json.dumps(values)


def restored_facts(values: Any) -> str:
    values = copy.deepcopy(values)
    for gpu in _list(values, "gpus"):
        gpu.update(uuid="", pci="")
    return json.dumps({key: value for key, value in values.items() if key not in UNUSED_OF_NODES})


def _dicts(values: Any, key: str) -> list[Any]:
    found = values.get(key)
    return [one for one in found.values() if isinstance(one, dict)] if isinstance(found, dict) else []


def _list(values: Any, key: str) -> list[Any]:
    found = values.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


@given(damaged(PATHS))
@settings(max_examples=150, deadline=None)
def test_a_damaged_map_is_refused_by_the_lean_reader_where_the_whole_one_refuses_it(values: Any) -> None:
    whole = refuses(lambda: Paths.read(restored_paths(values), "map"))
    assert refuses(lambda: lean_paths(json.dumps(values), "map")) == whole


@given(damaged(NODE))
@settings(max_examples=150, deadline=None)
def test_damaged_facts_are_refused_by_the_lean_reader_where_the_whole_one_refuses_them(values: Any) -> None:
    def lean() -> None:
        lean_facts([("n1", json.dumps(values))], asked_at=datetime.now(UTC), silent={})

    def whole() -> None:
        try:
            NodeFacts.model_validate_json(restored_facts(values))
        except ValueError:
            raise DocumentError.__new__(DocumentError) from None

    assert refuses(lean) == refuses(whole)


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b'"x"', b"{", b"\xff\xfe", b"null", b'{"nodes": []}', b"NaN"])
def test_what_is_no_document_at_all_is_refused(text: bytes) -> None:
    with pytest.raises(DocumentError, match="map"):
        lean_paths(text, "map")
    with pytest.raises(DocumentError, match="n1"):
        lean_facts([("n1", text)], asked_at=NOW, silent={})
