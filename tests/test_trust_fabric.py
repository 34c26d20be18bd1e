"""Text that comes from the fabric is whatever somebody wants it to be: one test for each way it could do harm.

Where a way is covered elsewhere the test stands there, under the same kind of name: c1 of marking texts in test_remote,
c2 of site files in test_site, c4 and c5 in test_fabric_drawing, c8 of visible() in test_base, c9 of labels in
test_fabric_documents, c10 of damaged texts in test_fabric_damage. c7 is about pages in browsers; llmgw serves none yet.
"""

import csv
import io
import json
import re
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from llmgw.fabric import KnownPort, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.node_paths import paths
from llmgw.remote.playbook import Play, Session, open_session, run_play
from llmgw.remote.steps import FabricScanPort, PublishDocuments, PublishedText, StartRank, plain
from tests.fabric_command import LLMGW
from tests.fakes.scans import guid, one_leaf
from tests.test_fabric_drawing import HOSTILE, assert_harmless, needs_graphviz

CANARY = "canary"
TEMPLATES = (
    "{{{{ lookup('pipe', 'touch {0}') }}}}",
    "{{% for x in lookup('pipe', 'touch {0}').splitlines() %}}x{{% endfor %}}",
    "{{{{ ''.__class__.__mro__[1].__subclasses__() }}}} {{# {0} #}}",
    "$(touch {0}) `touch {0}` ; touch {0} && touch {0} | touch {0}",
    "!!python/object/apply:os.system ['touch {0}']",
    "!unsafe *alias &anchor {0}",
)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that no text may have made."""
    yield tmp_path / CANARY
    assert not (tmp_path / CANARY).exists()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """This machine as an inventory of one host, by real Ansible."""
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"gpu_nodes": {"hosts": {"n1": host}}}))
    with open_session(tmp_path / "hosts.yml") as made:
        yield made


def test_a_site_folder_may_be_named_from_here(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_session(Path("hosts.yml")) as from_here:
        (answer,) = run_play(from_here, Play("engine_probe", "probes_by_host", {"n1": []}, deadline_s=60))
    assert answer.outcome == "ok", answer.why


def play(session: Session, name: str, variable: str, step: Any) -> Any:
    (answer,) = run_play(session, Play(name, variable, {"n1": step}, deadline_s=60))
    assert answer.outcome == "ok", answer.why
    return answer.result


def tool(folder: Path, text: str) -> Path:
    """A program in ibnetdiscover's place: writes down its arguments and prints a text."""
    program = folder / "ibnetdiscover"
    (folder / "printed").write_text(text)
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"json.dump(sys.argv[1:], open({str(folder / 'argv.json')!r}, 'w'))\n"
        f"sys.stdout.write(open({str(folder / 'printed')!r}).read())\n"
    )
    program.chmod(0o755)
    return program


def scan_step(program: Path, *options: str, device: str = "mlx5_0") -> dict[str, Any]:
    return plain(FabricScanPort(device, 1, str(program), "", options, False, 20))


def test_c1_no_text_of_a_fabric_or_a_node_is_ever_a_template(
    session: Session, canary: Path, tmp_path: Path
) -> None:
    hostile = [template.format(canary) for template in TEMPLATES]
    text = one_leaf(*(f"{words} mlx5_0" for words in hostile), switch_name=hostile[0])
    result = play(
        session, "fabric_scan", "scans_by_host", scan_step(tool(tmp_path, text), *hostile, device=hostile[0])
    )
    assert json.loads((tmp_path / "argv.json").read_text()) == ["-C", hostile[0], "-P", "1", *hostile]
    documents = [PublishedText(name=f"{number}.json", text=words) for number, words in enumerate(hostile)]
    folder = tmp_path / "published"
    folder.mkdir()
    step = plain(PublishDocuments(str(folder), tuple(one.model_dump() for one in documents)))
    play(session, "publish", "documents_by_host", step)
    assert [(folder / one.name).read_text() for one in documents] == hostile
    assert set(result["scan"]) >= {"out", "err", "rc"}


NAMES = ("yes", "no", "null", "~", "1e3", "012", "0x1f", "1_000", "2026-12-01", "=", "<<", "12:30:45")


def test_c2_names_that_yaml_would_read_as_something_else_stay_names(llmgw: "LLMGW", tmp_path: Path) -> None:
    (tmp_path / "scan").write_text(one_leaf(*(f"{name} mlx5_0" for name in NAMES)))
    assert llmgw("scan", "ib0", "--from", tmp_path / "scan")[0] == 0
    document = json.loads(llmgw("show", "-o", "json")[1])
    assert {one["node"] for one in document["adapters"]} >= {"yes", "1e3", "012", "null"}
    assert yaml.safe_load(llmgw("show", "-o", "yaml")[1]) == document
    (tree,) = yaml.safe_load(llmgw("export", "-f", "slurm-yaml")[1])
    assert all(isinstance(value, str) for one in tree["tree"]["switches"] for value in one.values())


def test_c3_an_engine_is_started_with_its_arguments_byte_for_byte(
    session: Session, canary: Path, tmp_path: Path
) -> None:
    words = [template.format(canary) for template in TEMPLATES]
    words += [
        "",
        " ",
        "'",
        '"',
        "a'b\"c",
        "back\\slash",
        "new\nline",
        "tab\t",
        "*",
        "~",
        "-x",
        "é\u202e",
        "%h",
        "%%",
    ]
    program, run_dir = tmp_path / "engine", tmp_path / "runs"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys, time\n"
        f"file = {str(tmp_path / 'seen')!r}\n"
        "json.dump([sys.argv[1:], os.environ['HOSTILE']], open(file + '.new', 'w')); os.rename(file + '.new', file)\n"
        "time.sleep(3)\n"
    )
    program.chmod(0o755)
    run_dir.mkdir()
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    rank = StartRank(
        unit="llmgw-c3.0-0",
        replica="c3/0",
        rank=0,
        plan="p",
        action="a",
        spec="sha256:0",
        nodes=("n1",),
        gpus=(),
        port=18973,
        ports=1,
        argv=(str(program), *words),
        env={"HOSTILE": "\n".join(words)},
        stop_s=1,
        run_dir=str(run_dir),
        account="root",
        supervisor="process",
        nvidia_smi="nvidia-smi",
    )
    play(session, "engine_start", "starts_by_host", [plain(rank)])
    for _ in range(100):
        if (tmp_path / "seen").exists():
            break
        time.sleep(0.1)
    assert json.loads((tmp_path / "seen").read_text()) == [words, "\n".join(words)]


LINES = [name.replace("\n", " ").replace("\r", " ") for name in HOSTILE]


def hostile_scan(file: Path, *, without: int = 0) -> Path:
    """A scan in which every name is hostile, in one text."""
    names = [name[:200] for name in LINES]
    text = one_leaf(*(f"{name} mlx5_0" for name in names[without:]), switch_name="".join(names)[:900])
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return file


@pytest.fixture
def hostile(llmgw: LLMGW, tmp_path: Path) -> LLMGW:
    """llmgw with two scans of a fabric in which every name is hostile."""
    assert llmgw("scan", "ib0", "--from", hostile_scan(tmp_path / "new"))[0] == 0
    assert llmgw("scan", "ib0", "--from", hostile_scan(tmp_path / "newer", without=3))[0] == 0
    return llmgw


@needs_graphviz
@pytest.mark.parametrize("options", [(), ("--full",), ("--diff", "1"), ("--color", "state")])
def test_c6_a_picture_of_hostile_names_has_no_script_no_link_and_nothing_from_elsewhere(
    hostile: LLMGW, options: tuple[str, ...]
) -> None:
    code, out, _ = hostile("draw", "-o", "svg", *options)
    assert code == 0
    assert_harmless(ET.fromstring(out))
    markup = re.sub(r">[^<]*<", "><", re.sub(r'"[^"]*"', '""', out))
    assert "script" not in markup
    assert "<!DOCTYPE" not in out
    assert 'xlink:href="http' not in out


def test_c8_no_table_line_or_message_steers_a_terminal_and_json_keeps_the_name(
    hostile: LLMGW, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("\x1b]0;owned\x07\x1b[2J\u202e garbage\n")
    for words in (
        ("list", "-o", "wide"),
        ("show",),
        ("history", "-o", "wide"),
        ("history", "--scan", 2),
        ("diff",),
        ("verify",),
        ("export",),
        ("scan", "ib0", "--from", bad),
        ("show", "\x1b[2Jnope"),
    ):
        _, out, err = hostile(*words)
        assert (out + err).replace("\n", "").isprintable(), words
    names = {one["description"] for one in json.loads(hostile("show", "--scan", 1, "-o", "json")[1])["adapters"]}
    assert any("\x1b[2J\x07" in name for name in names)
    assert any("\u202e" in name for name in names)
    assert hostile("show", "-o", "json")[1].isascii()


def test_c9_figures_of_hostile_names_parse_and_a_record_is_a_line(hostile: LLMGW, tmp_path: Path) -> None:
    text = one_leaf("=cmd()|'/c calc'!A0 mlx5_0", 'x"} 1 mlx5_0', "n3 mlx5_0", "n4 mlx5_0", "n5 mlx5_0")
    short = text.replace('1[" ', "1").replace("4xHDR", "1xHDR", 1)
    (tmp_path / "short").write_text(short)
    for name in ('ib"} 9\nevil 1', "../../x", "", "-x", "a/b", "=cmd()"):
        assert hostile("scan", "--from", tmp_path / "short", "--", name)[0] == 2
    assert hostile("scan", "short", "--from", tmp_path / "short")[0] == 0
    families = list(text_string_to_metric_families(hostile("export", "-f", "prometheus")[1]))
    assert all(family.name.startswith("llmgw_fabric_") for family in families)
    values = [value for family in families for sample in family.samples for value in sample.labels.values()]
    assert max(map(len, values)) <= 128
    assert all(value.isprintable() for value in values)
    table = hostile("list", "--no-headers")[1]
    assert len(table.splitlines()) == 2
    assert len(list(csv.reader(io.StringIO(table)))) == 2


BAD = {
    "truncated": lambda text: text[: len(text) // 2],
    "garbage": lambda _: "\x00\xff" * 5000,
    "empty": lambda _: "",
    "twice": lambda text: text + text,
    "a GUID twice": lambda text: text + text[text.index("\nvendid") :],
    "one end of a cable": lambda text: re.sub(r"\n\[2\].*", "", text, count=1),
}


@pytest.mark.parametrize("how", BAD)
def test_c10_a_damaged_scan_leaves_the_map_and_its_age_as_they_were(
    llmgw: LLMGW, tmp_path: Path, how: str
) -> None:
    good = one_leaf("n1 mlx5_0", "n2 mlx5_0", "n3 mlx5_0")
    (tmp_path / "good").write_text(good)
    (tmp_path / "bad").write_text(BAD[how](good))
    llmgw("scan", "ib0", "--from", tmp_path / "good")
    before = llmgw("show", "-o", "json")[1]
    assert llmgw("scan", "ib0", "--from", tmp_path / "bad")[0] == 1
    assert llmgw("show", "-o", "json")[1] == before
    assert json.loads(before)["scanned_at"] == json.loads(llmgw("list", "-o", "json")[1])["fabrics"][0]["at"]


def test_c10_who_a_node_is_its_guids_say_and_an_impostor_is_placed_nowhere() -> None:
    known = {guid(number): KnownPort(f"n{number}", "mlx5_0", "0000:1b:00.0") for number in (1, 2)}
    text = one_leaf("n2 mlx5_0", "n1 mlx5_0", "n1 mlx5_0", "n2 mlx5_1")
    fabric = analyse(read(text), hosts=["n1", "n2"], ports=known)
    way = paths(fabric, name="ib0", hosts=["n1", "n2"])
    assert {name: [rail.guid for rail in node.rails] for name, node in way.nodes.items()} == {
        "n1": [guid(1)],
        "n2": [guid(2)],
    }
    assert sorted(one.kind for one in fabric.findings if one.kind in ("impostor", "wrong name")) == [
        "impostor",
        "impostor",
        "wrong name",
        "wrong name",
    ]
