"""Plans, the store, and applies that end in the middle: a row of the fault catalogue each, by its number.

Of the store itself (A5, A8, A9, A12) in test_store.py; A10's reader and A11 in test_router_guards.py.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest

from llmgw.base import LlmgwError
from llmgw.cli.wiring import StoreJournal
from llmgw.observed import NodeFacts
from llmgw.plan import Cordon, Plan, Rules
from llmgw.plan.progress import Step
from llmgw.remote.apply import apply
from llmgw.store import count_change, held, open_state, serial
from llmgw.store.journal import consume
from llmgw.store.nodes import save_facts, set_cordon
from tests.durable_site import DurableSite, Moments
from tests.fakes.actions import start, stop
from tests.fakes.durable_nodes import ran
from tests.fakes.nodes import Clock, FakeNodes
from tests.fakes.paper_site import ROOT, PaperSite
from tests.fakes.worlds import NOW, World


@pytest.fixture
def site(tmp_path: Path) -> Iterator[PaperSite]:
    made = PaperSite(tmp_path / "site")
    yield made
    made.close()


def test_a1_a_plan_is_refused_before_any_ssh_once_another_was_applied(site: PaperSite) -> None:
    file = site.saved()
    state = open_state(site.state)
    was = serial(state)
    now = count_change(state)
    done = site.llmgw("apply", str(file))
    assert (done.returncode, site.knocks) == (3, 0)
    assert f"the plan is of serial {was}, the store is at {now}" in done.stderr
    assert "llmgw plan --out FILE" in done.stderr


def test_a1_a_plan_that_was_applied_is_not_applied_again(site: PaperSite) -> None:
    file = site.saved()
    consume(open_state(site.state), Plan.read(file.read_text(), str(file)), by="mk@ops")
    done = site.llmgw("apply", str(file))
    assert (done.returncode, site.knocks) == (3, 0)
    assert "has been applied already" in done.stderr


def test_a2_a_plan_for_another_store_is_refused(site: PaperSite, tmp_path: Path) -> None:
    file, other = site.saved(), tmp_path / "other.db"
    state = open_state(other)
    save_facts(state, {"a1": NodeFacts(seen_at=NOW, supervisor="systemd")}, [], now=NOW)
    state.close()
    done = site.llmgw("apply", str(file), state=other)
    assert (done.returncode, site.knocks) == (3, 0)
    assert "it is a plan for another site" in done.stderr


def test_a3_a_plan_that_was_edited_is_refused(site: PaperSite) -> None:
    file = site.saved()
    document = json.loads(file.read_text())
    document["body"]["actions"][0]["launches"][0]["argv"].append("--evil")
    file.write_text(json.dumps(document))
    done = site.llmgw("apply", str(file))
    assert (done.returncode, site.knocks) == (1, 0)
    assert "the body was changed after planning" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda site: site.inventory(llmgw_labels=["new"]), "the inventory has changed: a1"),
        (lambda site: site.models(m={"replicas": 1, "priority": 90}), "has changed: model m"),
        (lambda site: site.models(m={"replicas": 1}, other={"replicas": 0}), "has changed: model other"),
    ],
    ids=["inventory", "catalogue", "another model"],
)
def test_a3_a_plan_is_refused_when_what_it_was_made_from_has_changed_and_that_is_named(
    site: PaperSite, change: Callable[[PaperSite], None], said: str
) -> None:
    file = site.saved()
    change(site)
    done = site.llmgw("apply", str(file))
    assert (done.returncode, site.knocks) == (3, 0)
    assert said in done.stderr


HOLD = """
import sys, time; from pathlib import Path
from llmgw.store import open_state, locked
with locked(open_state(Path(sys.argv[1])), "llmgw apply plan.json"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(site: PaperSite) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the site's lock."""
    argv = [sys.executable, "-c", HOLD, str(site.state)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "--yes"),
        ("apply", "--resume"),
        ("reconcile",),
        ("replicas", "stop", "m/0", "--yes"),
        ("replicas", "restart", "m/0", "--yes"),
    ],
    ids=" ".join,
)
def test_a4_a_second_change_waits_and_then_names_the_first(
    site: PaperSite, holder: "subprocess.Popen[str]", words: tuple[str, ...]
) -> None:
    done = site.llmgw(*words, "--lock-timeout", "1")
    assert (done.returncode, site.knocks) == (4, 0)
    for word in (f"pid {holder.pid}", "llmgw apply plan.json", "since 20", "@"):
        assert word in done.stderr


def test_a5_the_run_that_was_killed_with_the_lock_is_reported(
    site: PaperSite, holder: "subprocess.Popen[str]"
) -> None:
    file = site.saved()
    consume(open_state(site.state), Plan.read(file.read_text(), str(file)), by="mk@ops")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    done = site.llmgw("apply", "--yes")
    assert "took over the lock" in done.stderr
    assert f"its process {holder.pid} is gone" in done.stderr
    assert "of mk@ops was not finished" in done.stderr
    assert held(open_state(site.state)) is None


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("fault", ["max_page_count", "query_only"], ids=["full", "read-only"])
def test_a7_a_disk_that_takes_no_more_ends_the_apply_before_the_next_action(
    tmp_path: Path, fault: str, after: int
) -> None:
    state = open_state(tmp_path / "state.db")
    actions = [stop("a1", "m/0", "n1"), start("a2", "m/0", "n1", after=("a1",))]
    nodes = FakeNodes.of(actions, Clock())
    journal = Failing(StoreJournal(state, "p1", Event()), fault, after)
    with pytest.raises(LlmgwError) as caught:
        for _ in apply(actions, nodes, journal, Rules(), clock=nodes.clock):
            pass
    assert "state.db" in caught.value.message
    assert "not written down, of plan p1:" in caught.value.message
    assert caught.value.hint
    state.close()
    kept = open_state(tmp_path / "state.db")
    assert kept.one("PRAGMA integrity_check") == ("ok",)
    begun = set(kept.rows("SELECT action, phase FROM journal WHERE plan = 'p1'"))
    assert {(ask.action, ask.phase.value) for ask in nodes.taken} <= begun


class Failing:
    """A journal whose disk fills up, or becomes read-only, after so many writes."""

    def __init__(self, journal: StoreJournal, fault: str, after: int) -> None:
        self.journal, self.fault, self.left = journal, fault, after

    def write(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        if not self.left:
            self._break(self.journal.state.connection)
        self.left -= 1
        self.journal.write(steps)

    def _break(self, connection: sqlite3.Connection) -> None:
        if self.fault == "query_only":
            connection.execute("PRAGMA query_only = ON")
            return
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            while True:  # what room there is left in the journal's own pages
                connection.execute("INSERT INTO journal (plan, action, phase, begun_at) VALUES ('x', '', '', '')")


RANKS = {"well/0": 1, "m/0": 2, "m/1": 2, "away/0": 1, "fresh/0": 1}


def changed_site(folder: Path) -> DurableSite:
    """A site on which four models run, and whose catalogue and nodes have changed since: a replica to start, two of a
    model to replace, one to move away, one to stop, one that is well."""
    world = World.of({"leaf-a": ["a1", "a2", "a3"], "leaf-b": ["b1"]})
    for name in ("well", "gone", "away"):
        world.model(name, shapes=["1x4"])
    world.model("m", shapes=["2x2"], replicas=2)
    site = DurableSite(folder, world)
    site.apply()
    away = next(run["node"] for run in ran(site.runs).values() if run["replica"] == "away/0")
    del world.models["gone"]
    world.models["m"]["profiles"]["main"]["args"] = ["--max-num-seqs", "64"]
    world.model("fresh", shapes=["1x2"])
    state = site.state()
    set_cordon(state, Cordon(away, "drain", "psu", "mk@ops", NOW))
    state.close()
    return site


def test_a6_the_site_of_the_next_tests_has_every_kind_of_action(tmp_path: Path) -> None:
    site = changed_site(tmp_path)
    ops = sorted(action.op for action in site.next_plan().actions)
    assert [op for op in ops if op != "move"] == ["replace", "replace", "start", "stop"]
    assert "move" in ops


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plan again", "resume"])
def test_a6_an_apply_killed_at_any_moment_leaves_a_plan_of_what_is_undone_and_starts_nothing_twice(
    tmp_path: Path, how: str
) -> None:
    moments, first = Moments(), changed_site(tmp_path / "first")
    before, body = len(first.starts()), first.next_plan()
    first.copied(tmp_path / "whole").apply(moments)
    assert len(moments.seen) > 60
    for number, moment in enumerate(moments.seen):
        site = first.copied(tmp_path / str(number))
        assert site.killed_at(number)
        assert site.is_intact()
        assert {action.replica for action in site.next_plan().actions} == site.undone(body), moment
        begun = Counter(site.starts()[before:])
        site.resume() if how == "resume" else site.apply()
        assert site.next_plan().actions == (), moment
        assert Counter(run["replica"] for run in ran(site.runs).values()) == RANKS
        expected = Counter({name: RANKS[name] for name in ("m/0", "m/1", "away/0", "fresh/0")})
        if how == "plan again":  # what was started in part is ended and started whole: no rank is started alone
            expected.update({name: ranks for name, ranks in begun.items() if ranks < RANKS[name]})
        assert (Counter(site.starts()[before:]), site.doubled()) == (expected, []), moment


LOAD = """
import json, sys
from importlib.machinery import SourceFileLoader
library = sys.argv[-1]
name = "ansible.module_utils.llmgw_quiet"  # as Ansible packs it with the module
sys.modules[name] = SourceFileLoader(name, library + "/../module_utils/llmgw_quiet.py").load_module()
sys.path.insert(0, library)
from llmgw_publish import publish
"""
PUBLISH = """
folder, first = sys.argv[1], int(sys.argv[2])
for generation in range(first, first + 100000):
    text = json.dumps({"format": "llmgw-endpoints/1", "generation": generation, "written": "2026-12-01T00:00:00Z",
                       "endpoints": [], "models": [], "pad": "x" * 20000})
    publish(folder, {"name": "endpoints.json", "text": text, "mode": "0644"}, False)
    print(generation, flush=True)
"""


def test_a10_what_the_publishing_module_writes_is_never_seen_in_parts_nor_older(tmp_path: Path) -> None:
    """Some hundred rewrites by the module of the playbook, killed at any moment; each read is whole and no older."""
    path, last, written = tmp_path / "endpoints.json", 0, 0
    for round_ in range(6):
        argv = [
            sys.executable,
            "-c",
            LOAD + PUBLISH,
            str(tmp_path),
            str(last),
            str(ROOT / "playbooks" / "library"),
        ]
        writer = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        for _ in range(20 + 7 * round_):
            written += bool(writer.stdout.readline())
            found = json.loads(path.read_text())["generation"]
            assert found >= last
            last = found
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        found = json.loads(path.read_text())["generation"]
        assert found >= last
        last = found
    assert min(last, written) > 150


def test_a10_the_publishing_module_gives_an_older_generation_no_place(tmp_path: Path) -> None:
    code = (
        'texts = [\'{"format":"llmgw-endpoints/1","generation":%d}\' % n for n in (7, 6, 7, 8)]\n'
        'wanted = [{"name": "endpoints.json", "text": text, "mode": "0644"} for text in texts]\n'
        "print([publish(sys.argv[1], one, False) for one in wanted])"
    )
    argv = [sys.executable, "-c", LOAD + code, str(tmp_path), str(ROOT / "playbooks" / "library")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "['changed', 'older', 'same', 'changed']\n", done.stderr


@pytest.mark.parametrize(
    "words", [["status"], ["status", "-v"], ["replicas", "list", "-vv"], ["apply", "no-plan.json"]]
)
def test_a_command_that_has_ended_leaves_the_store_in_one_file(site: PaperSite, words: list[str]) -> None:
    argv = [sys.executable, "-m", "llmgw", "--site", str(site.folder), "--state", str(site.state), *words]
    subprocess.run(argv, cwd=ROOT, capture_output=True, check=False)
    assert [path.name for path in site.state.parent.glob("state.db*")] == ["state.db"]
