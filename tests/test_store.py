"""The store: one SQLite file that nothing is lost from."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlite_utils import Database

from llmgw.base import LlmgwError, LockedError, RefusedError
from llmgw.observed import NodeFacts
from llmgw.plan import Cordon
from llmgw.plan.judge import Condition, Health
from llmgw.plan.repair import Retry
from llmgw.serving import Endpoint
from llmgw.store import State, backup, break_lock, count_change, held, lineage, locked, open_state, serial
from llmgw.store.database import VERSION
from llmgw.store.files import write_whole
from llmgw.store.filesystem import NETWORK, filesystem_of
from llmgw.store.health import conditions, retries, save_conditions, save_retries
from llmgw.store.history import events, record
from llmgw.store.maps import NewScan, current_paths, drop_old_scans, fabrics, save_scan, scan_texts, scans
from llmgw.store.nodes import cordons, load_facts, remove_cordon, save_facts, set_cordon
from llmgw.store.published import endpoints, engine_key, engine_keys, next_generation
from llmgw.store.schema import STEPS, bring_up

NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def python(code: str, *words: str) -> "subprocess.Popen[str]":
    """Another process of ours."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )


def test_a_new_store_has_an_identity_that_stays(tmp_path: Path) -> None:
    first = open_state(tmp_path / "a" / "state.db")
    name = lineage(first)
    assert serial(first) == 0
    assert count_change(first) == 1
    first.close()
    again = open_state(tmp_path / "a" / "state.db")
    assert (lineage(again), serial(again)) == (name, 1)
    assert lineage(open_state(tmp_path / "b.db")) != name


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a9_the_file_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        state = open_state(tmp_path / "state.db")
        record(state, "test", "x", "y", by="z")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}


def test_a9_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    open_state(path).close()
    path.chmod(0o644)
    open_state(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_a9_a_network_file_system_is_known_by_its_mount(kind: str) -> None:
    mounts = f"""\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:40 / /home rw,relatime - {kind} server:/home rw
41 40 0:41 / /home/local rw - tmpfs tmpfs rw
42 22 0:42 / /mnt/with\\040blank rw - {kind} x rw
"""
    assert filesystem_of(mounts, "/home/mk/.local/state") == kind
    assert filesystem_of(mounts, "/home/local/x") == "tmpfs"
    assert filesystem_of(mounts, "/homes") == "ext4"
    assert filesystem_of(mounts, "/mnt/with blank/x") == kind


def test_a12_a_store_of_a_newer_llmgw_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    state = open_state(path)
    state.connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    state.close()
    before = path.read_bytes()
    with pytest.raises(RefusedError, match="newer llmgw"):
        open_state(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_store_of_every_earlier_version_is_brought_up_and_keeps_what_it_holds(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path, isolation_level=None) as old:
        for step in STEPS[:version]:
            step(Database(old, execute_plugins=False))
        old.execute(f"PRAGMA user_version = {version}")
        old.execute("INSERT INTO meta VALUES ('lineage', 'abc'), ('serial', '7')")
        old.execute("INSERT INTO cordons VALUES ('n1', 'cordon', 'psu', 'mk', '2026-12-01T00:00:00Z')")
    old.close()
    state = open_state(path)
    assert (lineage(state), serial(state)) == ("abc", 7)
    assert set(cordons(state)) == {"n1"}
    fresh = open_state(tmp_path / "fresh.db")
    columns = "SELECT m.name, c.name, c.type, c.pk FROM sqlite_master m, pragma_table_info(m.name) c ORDER BY 1, 2"
    assert state.rows(columns) == fresh.rows(columns)


def test_a_step_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db", isolation_level=None) as old:
        old.execute("CREATE TABLE client_keys (id TEXT)")  # the last step finds its place taken
        old.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            bring_up(old, 0)
        old.rollback()
        assert [row[0] for row in old.execute("SELECT name FROM sqlite_master")] == ["client_keys"]
    old.close()


def test_the_schemas_version_counts_its_steps() -> None:
    assert len(STEPS) == VERSION


def test_what_is_no_store_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("this is no database, but long enough to be looked at as one" * 20)
    with pytest.raises(LlmgwError, match="is not a store of llmgw"):
        open_state(path)


def test_a12_a_backup_made_while_others_write_is_whole(state: State, tmp_path: Path) -> None:
    writer = python(
        """
        import sys; from pathlib import Path
        from llmgw.store import open_state
        from llmgw.store.history import record
        state = open_state(Path(sys.argv[1]))
        for n in range(200): record(state, "test", str(n), "message", by="writer")
        """,
        str(state.path),
    )
    while not events(state, limit=1):
        time.sleep(0.01)
    copies = [tmp_path / f"copy{n}.db" for n in range(3)]
    for copy in copies:
        backup(state, copy)
    assert writer.wait(60) == 0, writer.stderr.read() if writer.stderr else ""
    for copy in copies:
        kept = open_state(copy)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert [event.subject for event in events(kept, limit=1000)] == [
            str(n) for n in range(len(events(kept, limit=1000)))
        ]
    with pytest.raises(LlmgwError, match="exists already"):
        backup(state, copies[0])


def test_a8_four_processes_change_the_store_and_nothing_is_lost(state: State) -> None:
    code = """
        import sys; from pathlib import Path
        from llmgw.store import open_state, count_change
        state = open_state(Path(sys.argv[1]))
        for _ in range(300): count_change(state)
        """
    began = time.monotonic()
    workers = [python(code, str(state.path)) for _ in range(4)]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert (worker.returncode, errors) == (0, "")
    assert serial(state) == 1200
    print(f"4 x 300 read-modify-writes: {time.monotonic() - began:.1f} s, starts of Python included")


# -- the lock -------------------------------------------------------------------------------------------------------
HOLD = """
    import sys, time; from pathlib import Path
    from llmgw.store import open_state, locked
    with locked(open_state(Path(sys.argv[1])), "llmgw apply plan.json"):
        print("held", flush=True)
        time.sleep(60)
    """


def test_a4_a_second_change_is_told_who_holds_the_lock(state: State) -> None:
    holder = python(HOLD, str(state.path))
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "held\n"
        told: list[str] = []
        began = time.monotonic()
        with pytest.raises(LockedError) as caught, locked(state, "llmgw apply", wait_s=1, tell=told.append):
            pytest.fail("two hold the lock")
        assert time.monotonic() - began >= 1
        for word in (f"pid {holder.pid}", "llmgw apply plan.json", "since 20", "@"):
            assert word in caught.value.message
        assert told[0].startswith("waiting for the lock of ")
    finally:
        holder.terminate()
        holder.wait()


def test_a4_a_second_change_waits_for_the_first(state: State) -> None:
    holder = python(HOLD.replace("sleep(60)", "sleep(1)"), str(state.path))
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with locked(state, "llmgw apply", wait_s=30):
        assert holder.wait(10) == 0


def test_a5_the_lock_of_a_killed_process_is_taken_over_at_once(state: State) -> None:
    holder = python(HOLD, str(state.path))
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    told: list[str] = []
    with locked(state, "llmgw apply", tell=told.append):
        pass
    assert "took over the lock" in told[0]
    assert f"its process {holder.pid} is gone" in told[0]
    assert held(state) is None


def test_a_lock_of_another_host_is_taken_over_when_its_heart_has_stopped(state: State) -> None:
    with locked(state, "llmgw apply"):
        pass
    holder = '{"token":"t","user":"mk","host":"elsewhere","pid":1,"born":1,"command":"llmgw apply","since":"2026"}'
    state.connection.execute("INSERT INTO lock VALUES (1, ?, 0, ?)", (holder, time.time() + 30))
    with pytest.raises(LockedError, match="mk@elsewhere"), locked(state, "llmgw apply"):
        pass
    state.connection.execute("UPDATE lock SET expires = ?", (time.time() - 1,))
    told: list[str] = []
    with locked(state, "llmgw apply", tell=told.append):
        assert "sign of life" in told[0]


def test_a_broken_lock_can_be_taken_and_its_owner_is_named(state: State) -> None:
    with locked(state, "llmgw apply") as lock:
        assert break_lock(state) == lock.holder
        with locked(state, "llmgw reconcile"):
            pass


# -- what it remembers ----------------------------------------------------------------------------------------------
def node_facts(**more: object) -> NodeFacts:
    return NodeFacts(seen_at=NOW, supervisor="systemd", **more)  # type: ignore[arg-type]


def test_facts_of_a_silent_node_stay_and_its_silence_counts_from_when_it_was_last_seen(state: State) -> None:
    save_facts(state, {"n1": node_facts(hostname="n1"), "n2": node_facts()}, ["n3"], now=NOW)
    save_facts(state, {"n2": node_facts()}, ["n1", "n3"], now=NOW + timedelta(minutes=5))
    found = load_facts(state, ["n1", "n2", "n3", "n4"])
    assert sorted(found.nodes) == ["n1", "n2"]
    assert found.silent == {"n1": NOW, "n3": None, "n4": None}
    save_facts(state, {"n1": node_facts()}, [], now=NOW)
    assert "n1" not in load_facts(state, ["n1"]).silent


def test_a_cordon_is_remembered_until_it_is_lifted(state: State) -> None:
    cordon = Cordon("n1", "drain", "psu; {{ 7*7 }}", "mk@ops", NOW)
    set_cordon(state, cordon)
    assert cordons(state) == {"n1": cordon}
    assert remove_cordon(state, "n1")
    assert not remove_cordon(state, "n1")
    assert cordons(state) == {}


PATHS = '{"format":"llmgw-paths/1","fabric":"ib0","complete":true,"rail_aligned":true,"domains":{},"nodes":{}}'


def scan(verdict: str, at: datetime = NOW, raw: str = "text") -> NewScan:
    made = verdict != "rejected"
    return NewScan(
        "ib0",
        at,
        "n1:mlx5_0/1",
        verdict,
        "[]",
        raw,
        "",
        topology="{}" if made else None,
        paths=PATHS if made else None,
    )


def test_a_partial_scan_stands_beside_the_map_and_a_rejected_one_changes_nothing(state: State) -> None:
    first = save_scan(state, scan("partial"))
    assert fabrics(state)[0].best == first
    whole = save_scan(state, scan("complete"))
    assert (fabrics(state)[0].map, fabrics(state)[0].partial) == (whole, None)
    part = save_scan(state, scan("partial"))
    save_scan(state, scan("rejected"))
    found = fabrics(state)[0]
    assert (found.map, found.partial, found.best) == (whole, part, whole)
    assert current_paths(state)["ib0"].scan == whole


def test_the_raw_text_of_a_scan_comes_back_byte_for_byte(state: State) -> None:
    raw = 'Switch\t8 "S-1"\udcff\x00\r\n' * 1000
    number = save_scan(state, scan("complete", raw=raw))
    assert scan_texts(state, number) == (raw, "", "")


def test_old_scans_go_but_never_the_map_nor_the_last_two(state: State) -> None:
    old = NOW - timedelta(days=100)
    whole = save_scan(state, scan("complete", at=old))
    for _ in range(4):
        save_scan(state, scan("rejected", at=old))
    assert drop_old_scans(state, keep=10, keep_days=90, now=NOW) == 2
    numbers = [one.number for one in scans(state, "ib0")]
    assert numbers == [5, 4, whole]


def endpoint(name: str) -> Endpoint:
    return Endpoint(
        id=f"{name}/0",
        model=name,
        profile="p",
        url=f"http://{name}:1",
        state="ready",
        node="n1",
        spec="sha256:x",
    )


def test_the_generation_only_grows_and_is_remembered_before_it_is_given(state: State) -> None:
    first = next_generation(state, lambda _: [endpoint("a")], lambda _: [], now=NOW)
    second = next_generation(state, lambda before: [*before, endpoint("b")], lambda _: [], now=NOW)
    assert (first.generation, second.generation) == (1, 2)
    assert endpoints(state) == second
    with pytest.raises(ZeroDivisionError):
        next_generation(state, lambda _: [endpoint(str(1 // 0))], lambda _: [], now=NOW)
    assert endpoints(state) == second


def test_a_replica_keeps_its_key(state: State) -> None:
    key = engine_key(state, "m/0")
    assert len(key) >= 40
    assert engine_key(state, "m/0") == key != engine_key(state, "m/1")
    assert engine_keys(state, ["m/0", "none/0"]).keys == {"m/0": key}


def test_conditions_and_failures_come_back_as_they_were(state: State) -> None:
    found = {("m/0", "p1", "a1"): Condition(Health.STALLED, NOW, "no token", 17, 2)}
    save_conditions(state, found)
    assert conditions(state) == found
    failed = {"m/0": Retry(3, NOW, NOW + timedelta(seconds=40))}
    save_retries(state, failed)
    assert retries(state) == failed
    save_retries(state, {})
    save_conditions(state, {})
    assert (retries(state), conditions(state)) == ({}, {})


def test_a7_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state.db")
    count_change(state)
    pages = state.one("PRAGMA page_count")
    assert pages
    state.connection.execute(f"PRAGMA max_page_count = {pages[0]}")
    with pytest.raises(LlmgwError, match="full") as caught:
        for n in range(10_000):
            record(state, "test", "x" * 1000, str(n), by="y")
    assert caught.value.hint.startswith("make room")
    state.close()
    again = open_state(tmp_path / "state.db")
    assert serial(again) == 1
    assert again.one("PRAGMA integrity_check") == ("ok",)


def test_what_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    text, foreign, pipe = tmp_path / "text", tmp_path / "foreign.db", tmp_path / "pipe"
    text.write_text("something else")
    text.chmod(0o644)
    Database(foreign)["theirs"].insert({"a": 1})
    foreign.chmod(0o644)
    os.mkfifo(pipe, 0o644)
    before = {path: path.stat().st_mode for path in (text, foreign, pipe)}
    for path in before:
        with pytest.raises(LlmgwError, match=r"is not a store of llmgw|is another program's database"):
            open_state(path)
    assert Database(foreign).table_names() == ["theirs"]
    assert {path: path.stat().st_mode for path in (text, pipe)} == {path: before[path] for path in (text, pipe)}


def test_a_file_is_replaced_behind_its_link_and_a_pipe_is_written_into(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "one")
    assert (tmp_path / "file").read_text() == "one"
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "two")
    assert os.read(reader, 10) == b"two"
    assert (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_second_connection_of_a_process_leaves_the_first_its_locks(tmp_path: Path) -> None:
    """Else another process that ends deletes the log from under both, and what they write is lost."""
    path = tmp_path / "state.db"
    first = open_state(path)
    open_state(path).close()
    for number in range(3):
        record(first, "test", "m/0", f"event {number}", by="me")
        ending = python("import sys; from pathlib import Path; from llmgw.store import open_state\n"
                        "open_state(Path(sys.argv[1])).close()", str(path))  # fmt: skip
        assert ending.wait() == 0
        assert path.with_name("state.db-wal").exists()
    first.close()
    assert [event.message for event in events(open_state(path), limit=3)] == ["event 0", "event 1", "event 2"]
