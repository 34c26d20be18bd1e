"""llmgw fabric on the command line, with saved texts and no site: what is remembered, compared, checked, exported."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmgw.base import LockedError
from llmgw.cli.main import run
from llmgw.plan import Plan
from llmgw.store.scan_lock import scanning
from tests.fabric_command import LLMGW
from tests.fakes.fabrics import Cluster, fat_tree
from tests.fakes.worlds import NOW, World

ROOT = Path(__file__).resolve().parent.parent
LOST = "query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,9 Attr 0x11:0) bad status 110; Connection timed out\n"
PULLED = "adapter gone: gpu0003 mlx5_1/1, was on leaf-1-2 port 3"
SHORT = "newly short: gpu0006 mlx5_0/1 - leaf-1-3 port 2, 4xHDR to 1xHDR, its kind at 4xHDR"


def small() -> Cluster:
    return fat_tree(nodes=8, rails=2, nodes_per_leaf=4, spines=2, cables=2, rate="4xHDR")


def faulty() -> Cluster:
    made = small()
    made.pull("gpu0003 mlx5_1")
    made.short("gpu0006 mlx5_0", "1xHDR")
    return made


def blind() -> str:
    """A partial scan: a leaf did not answer, and the tool says so."""
    made = small()
    made.silence("leaf-1-4")
    return LOST + made.text()


@pytest.fixture
def scan(llmgw: LLMGW, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Scans a text as fabric ib0."""

    def command(text: Cluster | str | bytes, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "scan.txt"
        text = text.text() if isinstance(text, Cluster) else text
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return llmgw("scan", "ib0", "--from", file, *options)

    return command


def test_a_scan_says_its_figures_and_what_changed_and_exits_10_where_asked(scan: LLMGW) -> None:
    figures = "6 switches (4 leaves, 2 spines, 0 cores), 16 adapters, 8 nodes, 32 cables, 0 short, 0 off rail"
    assert scan(small(), "--detailed-exitcode") == (0, f"ib0: {figures}; complete\n", "")
    code, out, _ = scan(faulty(), "--detailed-exitcode")
    assert code == 10
    assert out.splitlines()[1:] == [f"  {PULLED}", f"  {SHORT}"]
    assert scan(faulty(), "--detailed-exitcode")[0] == 0
    assert scan(small())[0] == 0


def test_cron_is_silent_when_all_is_well_and_one_line_else(scan: LLMGW) -> None:
    assert scan(small(), "--cron") == (0, "", "")
    assert scan(faulty(), "--cron", "--detailed-exitcode") == (10, "", "")
    code, out, err = scan(small().text()[:3000], "--cron")
    assert (code, out) == (1, "")
    assert err.splitlines()[0].endswith("scan.txt:57: rejected: cut off: the text ends inside a line")


def test_scans_that_say_the_same_are_one_line_of_the_history(scan: LLMGW, llmgw: LLMGW) -> None:
    for text in (small(), small(), faulty(), faulty(), faulty(), small()):
        scan(text)
    rows = json.loads(llmgw("history", "-o", "json")[1])["scans"]
    assert [(one["name"], one["times"], one["count"]) for one in rows] == [("3", 1, 2), ("2", 3, 2), ("1", 2, 0)]
    assert rows[1]["what"] == f"{PULLED}, and 1 more"
    _, out, _ = llmgw("history", "--scan", "2")
    assert out.splitlines()[1:] == [f"  {PULLED}", f"  {SHORT}"]
    assert llmgw("history", "--scan", "9")[0] == 2


def test_diff_takes_the_last_change_numbers_times_and_files(scan: LLMGW, llmgw: LLMGW, tmp_path: Path) -> None:
    scan(small())
    assert llmgw("diff")[0] == 1
    assert "nothing to compare" in llmgw("diff")[2]
    scan(faulty())
    told = f"{PULLED}\n{SHORT}\n"
    assert llmgw("diff") == (0, told, "")
    assert llmgw("diff", "--detailed-exitcode") == (10, told, "")
    assert llmgw("diff", "ib0", 1, 2) == llmgw("diff", 1) == (0, told, "")
    assert llmgw("diff", "--since", "1h") == (0, told, "")
    assert llmgw("diff", 2, 2)[2].startswith("Nothing changed between")
    for name, cluster in (("old", small()), ("new", faulty())):
        (tmp_path / name).write_text(cluster.text())
    (tmp_path / "old.json").write_text(llmgw("show", "--scan", 1, "-o", "json")[1])
    assert llmgw("diff", tmp_path / "old", tmp_path / "new") == (0, told, "")
    assert llmgw("diff", tmp_path / "old.json", tmp_path / "new") == (0, told, "")
    document = json.loads(llmgw("diff", "-o", "json")[1])
    assert [one["kind"] for one in document["changes"]] == ["adapter gone", "newly short"]
    for words in (("nope",), (1, 2, 3), ("ib0", "x"), (tmp_path / "old",), (1, 99)):
        assert llmgw("diff", *words)[0] == 2, words


def test_a_rejected_scan_changes_nothing_and_is_kept_to_be_looked_at(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    before = llmgw("show", "-o", "json")[1]
    for bad in (small().text()[:3000], "garbage\n", b"\xff\xfe\x00 \xf0\x9f", b"", small().text() * 2):
        code, out, err = scan(bad)
        assert (code, out) == (1, "")
        assert "the map stays as it was" in err
    assert llmgw("show", "-o", "json")[1] == before
    assert "complete, the last scan was rejected" in llmgw("list")[1]
    states = [one["state"] for one in json.loads(llmgw("history", "-o", "json")[1])["scans"]]
    assert (states[-1], set(states[:-1])) == ("complete", {"rejected"})
    assert "warning: last scan rejected" in llmgw("verify")[1]
    scan(small())
    assert llmgw("verify")[0] == 0


def test_a_partial_scan_stands_beside_the_map_and_calls_nothing_gone(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    code, out, _ = scan(blind())
    assert code == 0
    assert "; partial: " in out
    assert "gone" not in out
    row = json.loads(llmgw("list", "-o", "json")[1])["fabrics"][0]
    assert (row["state"], row["switches"]) == ("complete, a partial scan since", 6)
    assert llmgw("diff", "ib0", 1, 2)[1] == ""
    code, out, _ = llmgw("verify")
    assert code == 1
    assert [line.split(":")[1].strip() for line in out.splitlines()[1:]] == ["last scan partial"]
    made = small()
    made.silence("leaf-1-4")
    assert "switch gone: leaf-1-4 with 8 cables and 4 adapters on it" in scan(made)[1]


def test_a_partial_scan_that_stays_is_news_once(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    scan(blind())
    scan(blind())
    rows = json.loads(llmgw("history", "-o", "json")[1])["scans"]
    assert [(one["state"], one["times"]) for one in rows] == [("partial", 2), ("complete", 1)]
    assert scan(small())[1].endswith("complete\n")
    assert "partial" not in llmgw("list")[1]


def test_a_first_scan_that_is_partial_is_the_map_until_a_whole_one_comes(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(blind())
    assert json.loads(llmgw("show", "-o", "json")[1])["complete"] is False
    out = scan(small())[1]
    assert "switch new: leaf-1-4" in out
    assert json.loads(llmgw("show", "-o", "json")[1])["complete"] is True


def test_verify_remembers_what_is_missed_until_it_is_back_or_forgotten(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    assert llmgw("verify") == (0, "ib0: nothing is wrong\n", "")
    scan(faulty())
    changed = faulty()
    changed.pull("leaf-1-1", "spine-1-2")
    scan(changed)
    code, out, _ = llmgw("verify")
    assert code == 1
    assert [line.split(",")[0].strip() for line in out.splitlines()[1:4]] == [
        "error: cable gone: gpu0003 mlx5_1/1 - leaf-1-2 port 3",
        "error: cable gone: spine-1-2 port 1 - leaf-1-1 port 7",
        "error: short cable: gpu0006 mlx5_0/1 - leaf-1-3 port 2 runs at 1xHDR",
    ]
    document = json.loads(llmgw("verify", "-o", "json")[1])
    assert (document["healthy"], document["fabrics"][0]["fabric"]) == (False, "ib0")
    assert llmgw("forget", "ib0", "--missed") == (0, "", "ib0: 2 cables no longer missed\n")
    assert "cable gone" not in llmgw("verify")[1]
    scan(small())
    assert llmgw("verify")[0] == 0


def test_verify_says_when_no_scan_has_confirmed_the_map(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    assert llmgw("verify", "--max-age", "1h")[0] == 0
    code, out, _ = llmgw("verify", "--max-age", "0s")
    assert (code, "error: map old: no scan has confirmed the map for" in out) == (1, True)
    assert llmgw("verify", "nope")[0] == 2


def test_what_is_exported_is_what_the_map_says(scan: LLMGW, llmgw: LLMGW, tmp_path: Path) -> None:
    scan(small(), "--textfile", str(tmp_path / "llmgw.prom"))
    assert "SwitchName=leaf-1-1 Nodes=gpu[0001-0004]\n" in llmgw("export")[1]
    assert "nodes: gpu[0005-0008]\n" in llmgw("export", "ib0", "-f", "slurm-yaml")[1]
    assert json.loads(llmgw("export", "-f", "topology")[1]) == json.loads(llmgw("show", "-o", "json")[1])
    file = tmp_path / "topology.conf"
    assert llmgw("export", "-O", file) == (0, "", f"wrote {file}\n")
    assert file.read_text() == llmgw("export")[1]
    assert file.stat().st_mode & 0o777 == 0o644
    written = (tmp_path / "llmgw.prom").read_text()
    families = {one.name for one in text_string_to_metric_families(written)}
    assert "llmgw_fabric_run_timestamp_seconds" in families
    assert families - {"llmgw_fabric_run_timestamp_seconds"} == {
        one.name for one in text_string_to_metric_families(llmgw("export", "-f", "prometheus")[1])
    }


def test_figures_of_all_fabrics_are_one_text(llmgw: LLMGW, tmp_path: Path) -> None:
    for name, cluster in (("ib0", small()), ("ib1", faulty())):
        (tmp_path / name).write_text(cluster.text())
        llmgw("scan", name, "--from", tmp_path / name)
    families = {one.name: one for one in text_string_to_metric_families(llmgw("export", "-f", "prometheus")[1])}
    cables = {one.labels["fabric"]: one.value for one in families["llmgw_fabric_cables"].samples}
    assert cables == {"ib0": 32, "ib1": 31}
    assert llmgw("show")[0] == 2
    assert "name one of the fabrics" in llmgw("show")[2]


def test_a_fabric_can_be_forgotten(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    assert llmgw("forget", "ib0")[0] == 2
    assert llmgw("forget", "ib0", "--yes")[0] == 0
    assert llmgw("list")[1] == ""
    assert llmgw("list")[2] == "No fabric was ever scanned. Next: llmgw fabric scan\n"


def test_where_the_cables_of_a_node_or_a_switch_go(scan: LLMGW, llmgw: LLMGW) -> None:
    made = faulty()
    made.swap("gpu0001 mlx5_0", "gpu0001 mlx5_1")
    scan(made)
    assert llmgw("show", "--of", "gpu0006", "--no-headers")[1].splitlines() == [
        "gpu0006 mlx5_0/1  leaf-1-3 port 2  1xHDR  1  short: its kind runs at 4xHDR",
        "gpu0006 mlx5_1/1  leaf-1-4 port 2  4xHDR  2  -",
    ]
    rows = json.loads(llmgw("show", "--of", "leaf-1-1", "-o", "json")[1])["cables"]
    assert [one["to"] for one in rows][:3] == ["gpu0001 mlx5_1/1", "gpu0002 mlx5_0/1", "gpu0003 mlx5_0/1"]
    assert [one["note"] for one in rows][:2] == ["off its rail", ""]
    by_guid = llmgw("show", "--of", f"0x{int(made.named('leaf-1-1'), 16):x}", "-o", "json")[1]
    assert json.loads(by_guid)["cables"] == rows
    code, _, err = llmgw("show", "--of", "gpu006")
    assert (code, "did you mean gpu0006" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "leaf-1-1"),
        (("--full",), "spine-1-2"),
        (("--limit", "leaf=leaf-1-3"), "gpu0006"),
        (("--limit", "node=gpu0002"), "gpu0002"),
        (("--limit", "pod=1"), "spine-1-1"),
        (("--color", "rate"), "1xHDR"),
        (("--color", "state"), "leaf-1-1"),
        (("--diff", "1"), "gone"),
    ],
)
def test_a_map_is_drawn_with_every_option(scan: LLMGW, llmgw: LLMGW, options: tuple[str, ...], words: str) -> None:
    scan(small())
    scan(faulty())
    code, out, _ = llmgw("draw", "-o", "dot", *options)
    assert code == 0
    assert words in out


def test_a_part_is_drawn_with_its_own_faults_and_changes_alone(scan: LLMGW, llmgw: LLMGW) -> None:
    scan(small())
    scan(faulty())
    for limit, told in (("node=gpu0006", True), ("leaf=leaf-1-3", True), ("leaf=leaf-1-1", False)):
        assert ("short cable: gpu0006" in llmgw("draw", "-o", "dot", "--limit", limit)[1]) is told
        assert ("newly short" in llmgw("draw", "-o", "dot", "--limit", limit, "--diff", 1)[1]) is told
    assert "adapter gone: gpu0003" in llmgw("draw", "-o", "dot", "--limit", "node=gpu0003", "--diff", 1)[1]


def test_a_plans_replicas_are_marked_on_the_map(scan: LLMGW, llmgw: LLMGW, tmp_path: Path) -> None:
    scan(small())
    world = World.read(
        {
            "leaves": {"leaf-1-1": ["gpu0001", "gpu0002", "gpu0003", "gpu0004"]},
            "models": {"chat": {"shapes": ["2x8"], "replicas": 2}},
        }
    )
    plan = tmp_path / "plan.json"
    plan.write_text(Plan.of(world.plan(), created=NOW, by="test").text())
    code, out, _ = llmgw("draw", "--plan", plan, "-o", "dot")
    assert code == 0
    assert "chat/0" in out
    assert "chat/1" in out
    assert llmgw("draw", "--plan", tmp_path / "nope", "-o", "dot")[0] == 1


def test_a_picture_goes_to_a_file_of_the_kind_that_its_name_says(
    scan: LLMGW, llmgw: LLMGW, tmp_path: Path
) -> None:
    scan(small())
    for kind, begin in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("dot", b"graph")):
        file = tmp_path / f"map.{kind}"
        assert llmgw("draw", "-O", file) == (0, "", f"wrote {file}\n")
        assert begin in file.read_bytes()[:200]
    assert llmgw("draw", "-O", tmp_path / "map.gif")[0] == 2
    assert llmgw("draw", "--limit", "leaf=nope")[0] in (1, 2)


def test_one_scan_at_a_time_and_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    code = (
        "import sys, pathlib\nfrom llmgw.store.scan_lock import scanning\n"
        "with scanning(pathlib.Path(sys.argv[1])):\n print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(store)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match=f"another scan is under way: process {other.pid}"), scanning(store):
        pass
    other.kill()
    other.wait()
    with scanning(store):
        assert (tmp_path / "state.db.scan-lock").read_text() == f"{os.getpid()}\n"


def test_a_scan_that_finds_another_under_way_says_so_or_leaves_it_to_it(
    scan: LLMGW, llmgw: LLMGW, tmp_path: Path
) -> None:
    scan(small())
    with scanning(tmp_path / "state.db"):
        assert scan(faulty(), "--cron", "--if-free") == (0, "", "")
        code, out, err = scan(faulty(), "--cron")
        assert (code, out) == (4, "")
        assert err == f"llmgw: another scan is under way: process {os.getpid()}\n"
    assert len(json.loads(llmgw("history", "-o", "json")[1])["scans"]) == 1


def test_a_crontab_line_and_systemd_units_have_the_sites_own_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "a site 100%"
    assert run(["init", str(site), "--name", "mysite"]) == 0
    capsys.readouterr()
    begin = ["--site", str(site), "fabric", "schedule"]
    assert run([*begin, "crontab", "--every", "10"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("*/10 * * * * ")
    assert f"--site '{str(site).replace('%', chr(92) + '%')}' fabric scan --cron --jitter 60\n" in line
    units = tmp_path / "units"
    units.mkdir()
    assert (
        run([*begin, "systemd", "-O", str(units), "--user", "root", "--textfile", str(tmp_path / "x.prom")]) == 0
    )
    service = (units / "llmgw-fabric-scan.service").read_text()
    assert f'--site "{str(site).replace("%", "%%")}" fabric scan --cron --textfile' in service
    assert "OnCalendar=*:0/5\nRandomizedDelaySec=60\n" in (units / "llmgw-fabric-scan.timer").read_text()
    assert run([*begin, "crontab", "--every", "7"]) == 2
    if shutil.which("systemd-analyze"):
        files = [str(file) for file in sorted(units.iterdir())]
        done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
        assert [line for line in done.stderr.splitlines() if "llmgw" in line] == []
