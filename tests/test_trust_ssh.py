"""SSH and Ansible under faults, on real hosts: a row of the fault catalogue each, by its number.

B3, B4 and B11's masking in test_remote.py, B5's and B6's schema in test_site.py.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmgw.remote.playbook import PLAYBOOKS, ssh_arguments
from tests.lab.kernel import wait_until
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.site import RUNS, LabSite, model

pytestmark = [pytest.mark.lab, pytest.mark.slow]
NODES = ("n1", "n2")


def fake(*args: str, gpus: int = 4, shapes: tuple[str, ...] = ("1x4",), **more: Any) -> dict[str, Any]:
    """A profile for the engine that behaves as vLLM does and has no model. Four GPUs: one a node."""
    made = {"engine": "vllm", "version": "0.33.0", "shapes": list(shapes), "tensor_parallel": gpus}
    return {**made, "args": list(args), **more}


def serving(replicas: int = 1, *args: str, **more: Any) -> dict[str, Any]:
    """A catalogue of one model."""
    return {"m": model("count.gguf", fake(*args), replicas=replicas, **more)}


@pytest.fixture
def site(whole_lab: Lab, tmp_path: Path) -> Iterator[LabSite]:
    """Two nodes on which nothing runs, and one replica wanted."""
    made = LabSite(whole_lab, tmp_path / "site", models=serving())
    made.clear()
    made.prepare()
    made.settings["timeouts"] |= {"start_s": 20, "stop_s": 5, "drain_s": 10, "router_s": 5}
    made.write(NODES)
    yield made
    for node in whole_lab.nodes.values():
        node.console("rm -f /run/fake-engine*.json")
    made.clear()


def node_of(site: LabSite, replica: str = "m/0") -> Node:
    """Where the next plan puts a replica."""
    placements = site.json("plan")["body"]["placements"]
    name = next(one["nodes"][0]["n"] for one in placements if one["replica"] == replica)
    return site.lab.nodes[name]


def with_known_hosts(site: LabSite, text: str) -> None:
    """Let the site's inventory look for host keys in a file of this text."""
    known = site.folder / "known_hosts"
    known.write_text(text)
    inventory = yaml.safe_load((site.folder / "hosts.yml").read_text())
    inventory["all"]["vars"]["ansible_ssh_common_args"] = f"-o UserKnownHostsFile={known}"
    (site.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))


def test_b1_an_unknown_host_key_fails_that_host_with_the_command_that_enrols_it(site: LabSite) -> None:
    lines = site.lab.places.known_hosts.read_text().splitlines(keepends=True)
    n1, n2 = (site.lab.nodes[name] for name in NODES)
    with_known_hosts(site, "".join(line for line in lines if n2.address not in line))
    done = site.llmgw("apply", "--yes")
    enrol = f"ssh-keyscan -H {n2.address} >> {site.folder}/known_hosts"
    assert "n2: unreachable: Host key verification failed" in done.stderr or "n2: unreachable" in done.stderr
    assert enrol in done.stderr
    assert site.units() == {"n1": ["llmgw-m-0.service"]}
    assert enrol in site.llmgw("check", "--nodes", code=None).stdout
    assert site.lab.run(["bash", "-c", enrol], capture_output=True).returncode == 0
    assert "2 of 2 nodes answered" in site.llmgw("plan").stderr
    assert n1.processes("vllm serve")


def test_b2_a_host_key_that_changes_between_two_commands_is_noticed_by_the_second(site: LabSite) -> None:
    node, key = site.lab.nodes["n2"], "/etc/ssh/lab_host_key"
    before = masters()
    assert "2 of 2 nodes answered" in site.llmgw("plan").stderr
    assert masters() <= before
    node.sh(f"mkdir /root/keys && cp -p {key}* /root/keys/")
    try:
        node.sh(f"rm {key}* && ssh-keygen -q -t ed25519 -N '' -f {key} && systemctl restart ssh")
        done = site.llmgw("plan")
        assert "1 of 2 nodes answered" in done.stderr
        assert "n2: unreachable" in done.stderr
    finally:
        node.sh("cp -p /root/keys/* /etc/ssh/ && rm -r /root/keys && systemctl restart ssh")
        node.ready()
    assert masters() <= before


def masters() -> set[Path]:
    """The folders of control sockets of sessions that are not closed."""
    return {path for path in Path("/tmp").glob("llmgw-????????") if path.is_dir()}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ansible_host", "-oProxyCommand=touch CANARY"),
        ("ansible_host", "`touch CANARY`"),
        ("ansible_user", "-oProxyCommand=touch CANARY"),
    ],
)
def test_b5_what_the_schema_refuses_ssh_refuses_too(
    site: LabSite, tmp_path: Path, variable: str, value: str
) -> None:
    canary = tmp_path / "canary"
    inventory = yaml.safe_load((site.folder / "hosts.yml").read_text())
    inventory["all"]["hosts"]["n2"][variable] = value.replace("CANARY", str(canary))
    (site.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    refused = site.llmgw("plan", code=None)
    assert refused.returncode == 1
    assert variable in refused.stderr
    by_hand = site.lab.run(
        [str(Path(sys.executable).parent / "ansible"), "-i", str(site.folder / "hosts.yml"), "-m", "ping", "n2"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "UNREACHABLE" in by_hand.stdout
    assert not canary.exists()


def test_b7_a_node_that_hangs_is_unknown_and_the_others_are_done(site: LabSite) -> None:
    site.catalogue(serving(2))
    frozen = node_of(site)
    (other,) = set(NODES) - {frozen.name}
    going = site.popen("apply", "--yes")
    wait_until(lambda: site.journal_rows() > 0, frozen.log, timeout_s=60)
    frozen.freeze()
    out, err = going.communicate(timeout=240)
    assert going.returncode == 5, out + err
    assert f"{frozen.name} does not answer" in out
    assert site.endpoints() == dict.fromkeys(site.endpoints(), "ready")
    assert list(site.units(other)) == [other]
    assert site.json("nodes", "list")["nodes"][NODES.index(frozen.name)]["state"] in ("silent", "unreachable")
    frozen.thaw()
    frozen.ready()
    site.llmgw("apply", "--yes")
    assert site.endpoints() == {"m/0": "ready", "m/1": "ready"}
    assert sum(map(len, site.units().values())) == 2


def main_pid(site: LabSite, node: Node) -> str:
    """The process of the only run on a node, as its systemd knows it."""
    ((name, (unit,)),) = site.units().items()
    assert name == node.name
    return node.sh(f"systemctl show -P MainPID {unit}").strip()


def test_b8_an_ssh_cut_right_after_a_start_starts_nothing_twice(site: LabSite) -> None:
    node = node_of(site)
    going = site.popen("apply", "--yes")
    try:
        wait_until(lambda: bool(node.processes("vllm serve")), node.log, timeout_s=60)
        node.cut()
        going.kill()
    finally:
        going.communicate()
    engine = main_pid(site, node)
    held = site.llmgw("apply", "--yes", code=None)
    assert "Nothing to change" in held.stdout, held.stdout
    assert [one["state"] for one in site.json("replicas", "list")["replicas"]] == ["silent"]
    assert set(site.units()) == {node.name}
    node.heal()
    node.ready()
    site.llmgw("apply", "--yes")
    assert main_pid(site, node) == engine
    assert set(site.units()) == {node.name}
    assert site.endpoints() == {"m/0": "ready"}


def test_b9_a_new_version_that_never_becomes_ready_leaves_the_old_serving_and_the_rest_untouched(
    site: LabSite,
) -> None:
    site.write(("n1", "n2", "n3"))
    site.catalogue(serving(2, min_ready=2))
    site.llmgw("apply", "--yes")
    before = {name: site.lab.nodes[name].processes("vllm serve") for name in site.units()}
    (spare,) = {"n1", "n2", "n3"} - set(before)
    site.lab.nodes[spare].write("/run/fake-engine.json", json.dumps({"load_s": 600}))
    site.catalogue(serving(2, "--max-num-seqs", "64", min_ready=2))
    done = site.llmgw("apply", "--yes", code=6)
    assert "not ready in 20s" in done.stdout
    assert "not started" in done.stdout
    assert {name: site.lab.nodes[name].processes("vllm serve") for name in site.units()} == before
    assert site.endpoints() == {"m/0": "ready", "m/1": "ready"}


def test_b10_check_changes_nothing_on_any_node(site: LabSite) -> None:
    site.llmgw("apply", "--yes")
    site.catalogue(serving(2, "--max-num-seqs", "64"))
    hosts = [site.lab.nodes[name] for name in (*NODES, "r1")]
    before, state = [snapshot(node) for node in hosts], site.json("state", "show")
    done = site.llmgw("apply", "--check")
    assert "nothing was changed" in done.stderr
    assert "m/0: would " in done.stdout
    assert "m/1: would start on" in done.stdout
    after = [snapshot(node) for node in hosts]
    assert [sorted(one ^ other) for one, other in zip(before, after, strict=True)] == [[], [], []]
    assert site.json("state", "show")["serial"] == state["serial"]


def snapshot(node: Node) -> set[str]:
    """The files, processes and ports of a node, but for what an SSH session leaves by itself."""
    files = "find / -xdev -type f ! -path '/var/log/*' ! -path '*/.ansible/*' -newer /etc/hostname"
    shown = node.sh(f"{files} -printf '%p %s %m %u %T@\n'")
    shown += node.sh(
        f"find {RUNS} /run/systemd/transient -name 'llmgw*' -printf '%p %s %m %u %C@\n' 2>/dev/null || true"
    )
    ours = "pgrep -a -u llmgw || true; systemctl list-units --all --plain --no-legend 'llmgw-*'"
    return set((shown + node.sh(f"{ours}; ss -Hltn | awk '{{print $4}}'")).splitlines())


CANARY = "-".join(
    ("canary", "of")
)  # in no file of the checkout, which the router host sees, be it below /home or /tmp
ENVIRONMENT, VAULTED, FILED = f"{CANARY}-the-environment", f"{CANARY}-the-vault", f"{CANARY}-a-file"
EVERYWHERE = f"grep -raoh '{CANARY}[a-z-]*' /var /run /tmp /home /root /etc 2>/dev/null"
CANARIES = (ENVIRONMENT, VAULTED, FILED)


def test_b11_no_secret_is_in_anything_that_is_written_printed_or_run(
    site: LabSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = give_secrets(site, tmp_path)
    monkeypatch.setenv("CANARY", ENVIRONMENT)
    monkeypatch.setenv("TMPDIR", str(scratch))
    node = node_of(site)
    with watched_command_lines() as seen:
        good = site.llmgw("--debug", "apply", "--yes")
        environ = node.sh("cat /proc/$(pgrep -u llmgw -f 'vllm serve' | head -1)/environ")
        assert [canary for canary in CANARIES if canary not in environ] == []  # the engine does have them
        node.write("/run/fake-engine.json", json.dumps({"fail": {"stderr": "CUDA error", "exit": 3}}))
        failed = site.llmgw("replicas", "restart", "m/0", "--yes", "--allow-outage", code=6)
        logs = site.llmgw("replicas", "logs", "m/0", code=None)
        history = site.llmgw("history")
    assert len(seen) > 20
    texts = {
        "command lines": "\n".join(seen),
        "printed": "".join(one.stdout + one.stderr for one in (good, failed, logs, history)),
        "control host": grep(site.folder, scratch, Path.home() / ".ansible"),
        "node": node.console(f"journalctl --no-pager; {EVERYWHERE}").stdout,
        "router host": site.lab.nodes["r1"].console(f"journalctl --no-pager; {EVERYWHERE}").stdout,
    }
    words = (CANARY, engine_key_of(site))
    found = [(name, word) for name, text in texts.items() for word in words if word in text]
    assert found == []


def give_secrets(site: LabSite, tmp_path: Path) -> Path:
    """Secrets from everywhere, in the environment of the engine; the folder that all temporary files go to."""
    elsewhere, scratch = tmp_path / "elsewhere", tmp_path / "t"
    elsewhere.mkdir()
    scratch.mkdir()
    (elsewhere / "password").write_text("x")
    (elsewhere / "token").write_text(FILED)
    (site.folder / "ansible.cfg").write_text(f"[defaults]\nvault_password_file = {elsewhere / 'password'}\n")
    vault = str(Path(sys.executable).parent / "ansible-vault")
    sealed = subprocess.run(
        [
            vault,
            "encrypt_string",
            "--vault-password-file",
            str(elsewhere / "password"),
            VAULTED,
            "--name",
            "sealed",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (site.folder / "group_vars").mkdir()
    (site.folder / "group_vars" / "all.yml").write_text(sealed)
    site.settings["secrets"] = {
        "a": {"env": "CANARY"},
        "b": {"inventory": "sealed"},
        "c": {"file": str(elsewhere / "token")},
    }
    site.write(NODES)
    env = {"A_TOKEN": {"secret": "a"}, "B_TOKEN": {"secret": "b"}, "C_TOKEN": {"secret": "c"}}
    site.catalogue({"m": model("count.gguf", fake(env=env), min_ready=0)})
    return scratch


def engine_key_of(site: LabSite) -> str:
    """The key that llmgw made for the replica: a secret of its own, which the store does keep."""
    with sqlite3.connect(site.state) as store:
        return str(store.execute("SELECT key FROM engine_keys").fetchone()[0])


def grep(*folders: Path) -> str:
    """The files below the folders that have a canary in them, and the canary."""
    argv = ["grep", "-rao", f"{CANARY}[a-z-]*", *(str(folder) for folder in folders if folder.exists())]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@contextmanager
def watched_command_lines() -> Iterator[set[str]]:
    """Every command line of the machine, lab hosts' included, that could be caught meanwhile."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    try:
                        seen.add(
                            Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        )
                    except OSError:
                        continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


@pytest.mark.parametrize(
    ("signals", "code", "done"),
    [((signal.SIGINT,), 130, True), ((signal.SIGINT, signal.SIGINT), 130, False), ((signal.SIGTERM,), 143, False)],
    ids=["once", "twice", "TERM"],
)
def test_b12_an_interrupted_apply_ends_as_asked_and_the_next_one_knows(
    site: LabSite, signals: tuple[signal.Signals, ...], code: int, done: bool
) -> None:
    site.catalogue({name: model("count.gguf", fake()) for name in ("a", "b")})
    for name in NODES:
        site.lab.nodes[name].write("/run/fake-engine.json", json.dumps({"load_s": 6}))
    going = site.popen("apply", "--yes", "--parallel", "1")
    wait_until(lambda: site.journal_rows() > 1, lambda: "nothing was begun", timeout_s=60)  # a start is under way
    for number in signals:
        going.send_signal(number)
        time.sleep(0.5)
    out, err = going.communicate(timeout=90)
    assert going.returncode == code, out + err
    assert "Nobody holds the lock" in site.llmgw("lock", "show").stdout + site.llmgw("lock", "show").stderr
    assert len(site.units()) == 1  # the first was started, the second never
    expected = [("start", "b/0")] if done else [("adopt", "a/0"), ("start", "b/0")]
    assert sorted(site.actions()) == sorted(expected)
    site.llmgw("apply", "--resume")
    assert site.endpoints() == {"a/0": "ready", "b/0": "ready"}
    assert sum(map(len, site.units().values())) == 2


@pytest.mark.parametrize("playbook", sorted(path.stem for path in PLAYBOOKS.glob("*.yml")))
def test_every_playbook_has_an_example_for_running_it_by_hand(playbook: str) -> None:
    assert (PLAYBOOKS / "examples" / f"{playbook}.json").is_file()
    assert ssh_arguments(4)
