"""The words that all packages use."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.base import (
    MEANING,
    ExitCode,
    UsageError,
    Value,
    canonical,
    canonical_of,
    duration,
    hosts_of,
    is_host_name,
    natural,
    near,
    replica_name,
    replica_parts,
    size,
    unit_name,
    visible,
)


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("n1", ["n1"]),
        ("gpu[01-03,7],login1", ["gpu01", "gpu02", "gpu03", "gpu7", "login1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1-2]-ib", ["a1-ib", "a2-ib"]),
    ],
)
def test_a_hostlist_names_its_hosts(pattern: str, hosts: list[str]) -> None:
    assert hosts_of(pattern) == hosts


@pytest.mark.parametrize("pattern", ["a[1-", "a1]", "a[3-1]", "a[x]", "a[1-999999999]"])
def test_a_broken_hostlist_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError):
        hosts_of(pattern)


@pytest.mark.parametrize("name", ["h4;touch x", "a b", "..", "a" * 300, "-x", "nöde", "", "a..b", "x\n", "$(id)"])
def test_b6_what_is_no_host_name_by_rfc_1123_is_none(name: str) -> None:
    assert not is_host_name(name)


def test_names_sort_as_people_count() -> None:
    assert natural(["n10", "n2", "n1", "n01", "a"]) == ["a", "n01", "n1", "n2", "n10"]


def test_a_near_name_is_found() -> None:
    assert near("replcas", ["replicas", "args", "env"]) == ["replicas"]


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,20}[a-z0-9]", fullmatch=True), st.integers(0, 99999))
def test_a_replica_is_named_and_read_back(model: str, ordinal: int) -> None:
    assert replica_parts(replica_name(model, None, ordinal)) == (model, None, ordinal)
    assert replica_parts(replica_name(model, "long", ordinal)) == (model, "long", ordinal)
    assert unit_name(replica_name(model, "long", ordinal)) == f"llmgw-{model}:long-{ordinal}"


@given(st.text(st.characters(exclude_categories=[])))
def test_c8_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown
    if text.isprintable():
        assert shown == text


def test_canonical_bytes_do_not_depend_on_the_order_of_keys_and_refuse_floats() -> None:
    assert (
        canonical({"b": [1, "é"], "a": None})
        == canonical({"a": None, "b": [1, "é"]})
        == b'{"a":null,"b":[1,"\xc3\xa9"]}\n'
    )
    with pytest.raises(TypeError):
        canonical({"a": [{"b": 1.0}]})


class Leaf(Value):
    text: str
    more: dict[str, Any] = {}


class Tree(Value):
    name: str
    leaves: tuple[Leaf, ...] = ()
    numbers: tuple[int, ...] = ()
    at: datetime | None = None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
LEAVES = st.builds(Leaf, text=st.text(), more=st.dictionaries(st.text(), PLAIN, max_size=4))
TREES = st.builds(
    Tree,
    name=st.text(),
    leaves=st.lists(LEAVES, max_size=4).map(tuple),
    numbers=st.lists(st.integers(0, 9)).map(tuple),
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(TREES)
def test_the_canonical_bytes_of_a_model_are_those_of_its_values(tree: Tree) -> None:
    assert canonical_of(tree) == canonical(tree.model_dump(mode="json"))


def test_the_canonical_bytes_of_a_model_refuse_floats_too() -> None:
    for tree in (Tree(name="t", leaves=(Leaf(text="", more={"x": 1.5}),)), Leaf(text="", more={"x": [2.0]})):
        with pytest.raises(TypeError, match="float"):
            canonical_of(tree)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (109, "1m49s"), (7500, "2h05m"), (2e5, "2d07h")]
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (284256, "284 kB"), (1500, "1.5 kB"), (2**40, "1.1 TB")]
)
def test_sizes_have_two_or_three_digits(count: int, text: str) -> None:
    assert size(count) == text


def test_every_exit_code_has_a_meaning_and_the_manual_has_them_all() -> None:
    assert set(MEANING) == set(ExitCode)
    manual = (Path(__file__).parent.parent / "docs" / "exit-codes.md").read_text()
    for code, meaning in MEANING.items():
        assert f"| {int(code)} | {meaning} |" in manual
