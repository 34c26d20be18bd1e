"""What admins write, right and wrong."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from llmgw.base import DocumentError
from llmgw.site import (
    Catalogue,
    HostVariables,
    SiteSettings,
    address,
    kept_listing,
    make_site,
    parse_catalogue,
    parse_hosts,
    parse_settings,
    unknown_scanners,
    wanted_replicas,
)
from llmgw.site.source import load

EXAMPLE = Path(__file__).parent.parent / "inventories" / "example"
SETTINGS = "name: s\nengines: {vllm: {'1': {path: /opt/vllm}}}\n"
MODELS = """\
models:
  m:
    source: {path: /models/m}
    profiles:
      p: {engine: vllm, version: '1', shapes: [1x1]}
"""


def settings() -> SiteSettings:
    return parse_settings(SETTINGS, "llmgw.yml")


def catalogue(text: str = MODELS) -> Catalogue:
    return parse_catalogue(text, "models.yml", settings())


def keys_of(kind: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key that a document can have, whatever its depth."""
    found: set[str] = set()
    for name, field in kind.model_fields.items():
        found.add(name)
        waiting: list[Any] = [field.annotation]
        while waiting:
            note = waiting.pop()
            waiting.extend(getattr(note, "__args__", ()))
            if isinstance(note, type) and issubclass(note, BaseModel):
                found |= keys_of(note)
    return found


@pytest.mark.parametrize(("file", "kind"), [("llmgw.yml", SiteSettings), ("models.yml", Catalogue)])
def test_the_example_has_every_key(file: str, kind: type[BaseModel]) -> None:
    text = (EXAMPLE / file).read_text()
    missing = {key for key in keys_of(kind) if f"{key}:" not in text}
    assert not missing


def test_the_example_inventory_has_every_host_variable() -> None:
    text = (EXAMPLE / "hosts.yml").read_text()
    assert not {name for name in HostVariables.model_fields if f"llmgw_{name}:" not in text}


def test_the_example_is_valid() -> None:
    site = parse_settings((EXAMPLE / "llmgw.yml").read_text(), "llmgw.yml")
    models = parse_catalogue((EXAMPLE / "models.yml").read_text(), "models.yml", site)
    assert [replica.name for replica in wanted_replicas(models)] == [
        "qwen2.5-72b/0",
        "qwen2.5-72b/1",
        "qwen2.5-72b:tp4/0",
        "smollm2-135m/0",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models: {m: {sorce: 1}}", "models.yml:1: models/m/sorce: unknown key, did you mean source?"),
        (MODELS.replace("1x1", "0x1"), 'models.yml:5: models/m/profiles/p/shapes/0: should be NODESxGPUS, like "2x8"'),
        (
            MODELS.replace("1x1", "2x8"),
            "models.yml:5: models/m/profiles/p: shape 2x8 has 16 GPUs, but tensor_parallel x pipeline_parallel is 1",
        ),
        (
            MODELS.replace("'1'", "'2'"),
            "models.yml:5: models/m/profiles/p/version: llmgw.yml has no vllm 2 under engines",
        ),
        ("models:\n  m: {}\n  m: {}\n", "models.yml:3: models/m: stands twice in one mapping"),
        ("models: [\n", "models.yml:2: is not YAML: did not find expected node content"),
        (
            "models: !!python/object:os.system {}",
            "models.yml:1: models: has the tag tag:yaml.org,2002:python/object:os.system; only plain YAML is read",
        ),
        ("- a\n", "models.yml:1: should be a mapping of keys to values"),
        (
            MODELS.replace("/models/m", "models/m"),
            "models.yml:3: models/m/source/path: string should match pattern '^/[^\\x00-\\x1f]*$'",
        ),
        (
            MODELS + MODELS.removeprefix("models:\n").replace("  m:", "  other:\n    aliases: [m]"),
            "models.yml:1: 'm' names both m and other",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line_and_path(text: str, complaint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        catalogue(text)
    assert caught.value.message == complaint


@pytest.mark.parametrize("scalar", ["yes", "1e3", "012", "2026-01-01", "null", "~", "0x10"])
def test_c2_a_quoted_name_stays_what_it_is(scalar: str) -> None:
    assert load(f"a: '{scalar}'", "f").values == {"a": scalar}
    assert load(f"{scalar}: 1", "f").values == {scalar: 1}


def test_c2_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="aliases counted each time"):
        load("\n".join(lines), "f")


def test_c2_a_value_that_holds_itself_is_refused() -> None:
    with pytest.raises(DocumentError, match="contains itself"):
        load("a: &a [*a]", "f")


def listing(**variables: Any) -> dict[str, Any]:
    return {"gpu_nodes": {"hosts": ["n1"]}, "_meta": {"hostvars": {"n1": variables}}}


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"llmgw_adress": "x"}, "hosts.yml: n1/llmgw_adress: unknown key, did you mean address?"),
        (
            {"llmgw_ports": "9-1"},
            "hosts.yml: n1/llmgw_ports: should be FIRST-LAST, two rising ports from 1024 to 65535",
        ),
        ({"ansible_host": "-oProxyCommand=id"}, "hosts.yml: n1/ansible_host: is no host: '-oProxyCommand=id'"),
        ({"ansible_host": "`id`"}, "hosts.yml: n1/ansible_host: is no host: '`id`'"),
        ({"ansible_user": "-oX"}, "hosts.yml: n1/ansible_user: is no user: '-oX'"),
    ],
)  # fmt: skip
def test_b5_a_host_with_a_hostile_or_unknown_variable_is_refused(
    variables: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_hosts(listing(**variables), "gpu_nodes", "hosts.yml")
    assert caught.value.message == complaint


@pytest.mark.parametrize("name", ["h4;touch x", "a b", "..", "x" * 300, "nöde"])
def test_b6_a_hostile_inventory_name_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match="no host name by RFC 1123"):
        parse_hosts({"gpu_nodes": {"hosts": [name]}}, "gpu_nodes", "hosts.yml")


def test_a_group_that_is_not_there_is_named_with_its_nearest() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_hosts({"gpu_node": {"hosts": []}}, "gpu_nodes", "hosts.yml")
    assert "did you mean gpu_node?" in caught.value.hint


def test_hosts_of_groups_below_count_and_are_in_natural_order() -> None:
    found = parse_hosts(
        {"gpu_nodes": {"children": ["a", "b"]}, "a": {"hosts": ["n10", "n9"]}, "b": {"hosts": ["n1"]}},
        "gpu_nodes",
        "hosts.yml",
    )
    assert [host.name for host in found] == ["n1", "n9", "n10"]


def test_no_secret_of_the_inventory_is_kept() -> None:
    raw = listing(ansible_become_password="pw", vaulted="s", llmgw_labels=["x"], ansible_host="10.0.0.1")
    kept = kept_listing(raw)
    assert kept["_meta"]["hostvars"] == {"n1": {"llmgw_labels": ["x"], "ansible_host": "10.0.0.1"}}
    site = make_site(settings(), raw, catalogue(), inventory_name="hosts.yml")
    assert "pw" not in repr(site)
    assert address(site.nodes[0]) == "10.0.0.1"


def test_a_digest_changes_with_values_and_not_with_comments() -> None:
    site = make_site(settings(), listing(), catalogue(), inventory_name="hosts.yml")
    same = make_site(settings(), listing(), catalogue("# more words\n" + MODELS), inventory_name="hosts.yml")
    other = make_site(settings(), listing(llmgw_labels=["x"]), catalogue(), inventory_name="hosts.yml")
    assert site.catalogue_digest() == same.catalogue_digest()
    assert site.inventory_digest() != other.inventory_digest()


@pytest.mark.parametrize("written", ["gpu01:", "gpu01:mlx5_0/0", "-C", "gpu01 mlx5_0", "gpu01:mlx5_0/1/2", ""])
def test_where_to_scan_from_is_a_node_or_a_port_of_it(written: str) -> None:
    with pytest.raises(DocumentError, match="should be NODE or NODE:DEVICE/PORT, like gpu01:mlx5_0/1"):
        parse_settings(f"{SETTINGS}fabrics: {{ib0: {{scan_from: [{written!r}]}}}}\n", "llmgw.yml")


def test_a_node_to_scan_from_that_is_not_in_the_inventory_is_named_with_its_nearest() -> None:
    known = parse_settings(f"{SETTINGS}fabrics: {{ib0: {{scan_from: [gpu01, 'gpu1:mlx5_0/1']}}}}\n", "llmgw.yml")
    listing = {"gpu_nodes": {"hosts": ["gpu01"]}, "_meta": {"hostvars": {"gpu01": {}}}}
    site = make_site(known, listing, catalogue(), inventory_name="hosts.yml")
    assert unknown_scanners(site) == [
        "fabrics/ib0/scan_from: there is no node gpu1 in the inventory; did you mean gpu01?"
    ]
