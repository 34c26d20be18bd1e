"""What an operator lives through, on real hosts with the real llama-server and an engine of two ranks."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmgw.remote.playbook import PLAYBOOKS
from llmgw.remote.steps import facts_query, plain, scan_port
from llmgw.site import HostVariables, InventoryHost, Site, parse_catalogue, parse_settings
from tests.lab.kernel import LabError, wait_until
from tests.lab.lab import Lab
from tests.lab.site import PUBLISHED, RUNS, Chat, LabSite, llama, model

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]


def two_ranks(**more: Any) -> dict[str, Any]:
    """A model of one replica on two nodes."""
    profile = {"engine": "vllm", "version": "0.33.0", "shapes": ["2x4"], "tensor_parallel": 8}
    return {"m": model("count.gguf", profile, **more)}


def one_rank() -> dict[str, Any]:
    """A model of one replica on all GPUs of one node."""
    profile = {"engine": "vllm", "version": "0.33.0", "shapes": ["1x4"], "tensor_parallel": 4}
    return {"m": model("count.gguf", profile)}


@pytest.fixture
def site(whole_lab: Lab, tmp_path: Path) -> Iterator[LabSite]:
    """A site on which nothing runs."""
    made = LabSite(whole_lab, tmp_path / "site")
    made.clear()
    made.prepare()
    made.settings |= {"unreachable_after_s": 8, "lost_after_s": 75}
    made.settings["timeouts"] |= {"start_s": 60, "stop_s": 5, "drain_s": 60, "connect_s": 4}
    yield made
    made.clear()


# -- a new version under load ----------------------------------------------------------------------------------------
class Load:
    """So many streams at a time, each begun anew when it ends, until told to stop."""

    def __init__(self, site: LabSite, name: str, streams: int) -> None:
        self.site, self.name = site, name
        self.chats: list[Chat | Exception] = []
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(streams)]

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.chats.append(self.site.chat(self.name, tokens=100))
                time.sleep(1)
            except urllib.error.HTTPError as error:
                self.chats.append(LabError(f"{time.monotonic() - self._began:.1f} s: {error}: {error.read()!r}"))
            except OSError as error:
                self.chats.append(error)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        wait_until(lambda: bool(self.chats), lambda: "no stream ended", timeout_s=120)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(120)

    def broken(self) -> list[object]:
        return [chat for chat in self.chats if isinstance(chat, Exception) or not chat.whole]


class Timeline:
    """How many endpoints of each state were published, each time that this changed."""

    def __init__(self, site: LabSite) -> None:
        self.site = site
        self.began = time.monotonic()
        self.seen: list[tuple[float, dict[str, str]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            now = self.site.endpoints()
            if not self.seen or self.seen[-1][1] != now:
                self.seen.append((time.monotonic() - self.began, now))

    def __enter__(self) -> "Timeline":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def least_ready(self) -> int:
        return min(list(states.values()).count("ready") for _, states in self.seen)


QUOTA = "/etc/systemd/system/llmgw-.service.d/quota.conf"


@pytest.fixture
def slow_engines(site: LabSite) -> Iterator[None]:
    """Engines that get a tenth of a processor: here they share it with the control host, and write slowly, as large
    models do."""
    nodes = [site.lab.nodes[name] for name in ("n1", "n2", "n3", "n4")]
    for node in nodes:
        node.write(QUOTA, "[Service]\nCPUQuota=10%\n")
        node.sh("systemctl daemon-reload")
    yield
    for node in nodes:
        node.sh(f"rm {QUOTA} && systemctl daemon-reload")


@pytest.mark.usefixtures("slow_engines")
def test_twenty_streams_run_on_while_three_replicas_change_to_a_new_version(site: LabSite) -> None:
    site.write()
    site.catalogue({"count": model("count.gguf", llama(gpus=4, shapes=["1x4"]), replicas=3, min_ready=3)})
    site.llmgw("apply", "--yes")
    site.start_router()
    before = site.units()
    site.catalogue(
        {"count": model("count.gguf", llama("--cont-batching", gpus=4, shapes=["1x4"]), replicas=3, min_ready=3)}
    )
    with Timeline(site) as timeline, Load(site, "count", 20) as load:
        done = site.llmgw("apply", "--yes")
    print(f"\n{len(load.chats)} streams, {len(load.broken())} broken; published:")
    for at, states in timeline.seen:
        print(f"  {at:6.1f} s  " + "  ".join(f"{name} {state}" for name, state in states.items()))
    print(done.stdout)
    assert load.broken() == []
    assert len(load.chats) >= 20
    assert timeline.least_ready() >= 3
    assert site.actions() == []
    assert before != site.units()


# -- what reconcile repairs ------------------------------------------------------------------------------------------
def health(site: LabSite, node: str, port: int) -> int:
    """The status of an engine's own health page; 0 where nobody answers."""
    url = f"http://{site.lab.nodes[node].address}:{port}/health"
    try:
        with site.lab.entered(), urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except OSError:
        return 0


def reconciled(site: LabSite, until: Callable[[], bool], *, timeout_s: float = 120) -> str:
    """Rounds of reconcile, at least one, until that holds; what they printed."""
    said, ends = "", time.monotonic() + timeout_s
    while True:
        said += site.llmgw("reconcile", code=None).stdout
        if until():
            return said
        assert time.monotonic() < ends, said


def test_a_replica_that_lost_a_rank_behind_a_healthy_head_is_withdrawn_and_restarted_whole_once(
    site: LabSite,
) -> None:
    site.write(("n1", "n2", "n3"))
    site.llmgw("fabric", "scan")
    site.catalogue(two_ranks())
    site.llmgw("apply", "--yes")
    (endpoint,) = site.published()["endpoints"]
    port = int(endpoint["url"].rpartition(":")[2])
    (other,) = set(site.units()) - {endpoint["node"]}
    head, worker = site.lab.nodes[endpoint["node"]], site.lab.nodes[other]
    before = {node.name: set(node.processes("vllm serve")) for node in (head, worker)}
    assert site.llmgw("reconcile").stdout == "m/0: ready\n"
    worker.sh("pkill -9 -u llmgw")
    wait_until(lambda: not worker.processes("vllm serve"), worker.log, timeout_s=10)
    assert health(site, head.name, port) == 200
    began = time.monotonic()
    said = reconciled(site, lambda: site.endpoints() == {"m/0": "ready"} and not before_alive(site, before))
    print(f"\nwithdrawn and restarted whole in {time.monotonic() - began:.1f} s:\n{said}")
    assert re.search(r"m/0: ready -> failed: rank 1 on n\d has ended", said)
    assert "m/0: endpoint withdrawn: failed" in said
    assert said.index("withdrawn") < said.index("started on")
    settled = reconciled_to_silence(site)
    assert "started on" not in settled
    repairs = [one for one in site.json("history")["events"] if one["kind"] == "repair"]
    assert [one["name"] for one in repairs].count(
        "m/0"
    ) <= 2  # started; and published where that took a second look
    assert sum("started on" in one["message"] for one in repairs) == 1
    assert [len(units) for units in site.units().values()] == [1, 1]


def before_alive(site: LabSite, before: Mapping[str, set[int]]) -> bool:
    """Whether a process of before is still there."""
    return any(set(site.lab.nodes[name].processes("vllm serve")) & pids for name, pids in before.items())


def reconciled_to_silence(site: LabSite) -> str:
    """Rounds until one says nothing."""
    said = ""
    for _ in range(6):
        heard = site.llmgw("reconcile").stdout
        if not heard:
            return said
        said += heard
    raise AssertionError(said)


def test_a_node_that_is_frozen_cut_off_for_a_while_for_long_or_rebooted(site: LabSite) -> None:
    site.write(("n1", "n2"))
    site.catalogue(one_rank())
    site.llmgw("apply", "--yes")
    reconciled_to_silence(site)
    (home,) = site.units()
    (other,) = {"n1", "n2"} - {home}
    node, pids = site.lab.nodes[home], site.lab.nodes[home].processes("vllm serve")
    table: list[tuple[str, str, str, str]] = []

    def look(moment: str, *, asleep: str = "") -> str:
        said = site.llmgw("reconcile", code=None).stdout.strip()
        (row,) = [one for one in site.json("status")["replicas"] if one["name"] == "m/0"][:1]
        awake = {"n1", "n2"} - {asleep}  # a frozen one cannot even be asked on its console
        copies = {name: len(units) for name, units in site.units(*sorted(awake)).items()}
        table.append((moment, f"{row['state']}, {row['health']}", str(copies), said))
        return said

    try:
        node.freeze()
        time.sleep(8)
        assert "unreachable" in look("frozen", asleep=home)
        assert site.endpoints() == {}
        assert "Nothing to change" in site.llmgw("apply", "--yes").stdout
        assert site.units(other) == {}
        node.thaw()
        node.ready()
        reconciled(site, lambda: site.endpoints() == {"m/0": "ready"})
        look("thawed")
        assert (set(site.units()), node.processes("vllm serve")) == ({home}, pids)

        node.cut()
        cut_at = time.monotonic()
        time.sleep(8)
        assert "unreachable" in look("cut off")
        assert set(site.units()) == {home}
        said = reconciled(site, lambda: other in site.units(), timeout_s=240)
        assert time.monotonic() - cut_at >= site.settings["lost_after_s"]
        assert "lost" in said
        look("cut off for longer than lost_after")
        reconciled(site, lambda: site.endpoints() == {"m/0": "ready"})
        node.heal()
        node.ready()
        reconciled(site, lambda: set(site.units()) == {other})
        look("back again")
        assert site.endpoints() == {"m/0": "ready"}

        reconciled_to_silence(site)
        site.lab.nodes[other].reboot()
        assert "failed" in look("rebooted") or site.units()
        reconciled(site, lambda: site.endpoints() == {"m/0": "ready"})
        look("after the reboot")
        assert sum(map(len, site.units().values())) == 1
    finally:
        for row in table:
            print("\n{:<36} {:<24} {}\n    {}".format(*row))


def repaired(site: LabSite) -> bool:
    """Whether reconcile has started m/0 again, and it is published as ready."""
    events = site.json("history")["events"]
    started = any(one["kind"] == "repair" and "started on" in one["message"] for one in events)
    return started and site.endpoints() == {"m/0": "ready"}


def test_a_node_without_systemd_is_started_repaired_and_left_clean(site: LabSite) -> None:
    site.write(("l1",))
    site.catalogue(one_rank())
    node = site.lab.nodes["l1"]
    site.llmgw("apply", "--yes")
    reconciled_to_silence(site)
    pid = min(
        node.processes("vllm serve")
    )  # it runs as the account that logs in: nothing here may change to another
    node.sh("su -s /bin/sh ops -c 'echo x >/dev/shm/nccl-left-over'")
    with site.popen("reconcile", "--follow", "--interval", "1") as follower:
        try:
            node.sh(f"kill -9 {pid}")
            wait_until(lambda: repaired(site), node.log, timeout_s=120)
        finally:
            follower.terminate()
        said, _ = follower.communicate(timeout=60)
    assert follower.returncode == 143
    assert pid not in node.processes("vllm serve")
    assert "m/0: ready -> failed: rank 0 on l1 has ended" in said
    assert site.llmgw("replicas", "logs", "m/0").stdout
    assert site.llmgw("replicas", "logs", "m/0", "--previous").stdout
    site.catalogue({})
    site.llmgw("apply", "--yes", "--allow-outage")
    assert node.processes("vllm serve") == []
    assert node.sh("ls /dev/shm") == ""
    assert [line for line in node.sh(f"ls {RUNS}").split() if not line.endswith(".log")] == []


# -- by hand ---------------------------------------------------------------------------------------------------------
def by_hand(site: LabSite, playbook: str, variables: Mapping[str, Any], *options: str) -> dict[str, int]:
    """ansible-playbook as an admin runs it; its recap of the one host."""
    given = site.folder / f"{playbook}.json"
    given.write_text(json.dumps(variables))
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(site.folder / "hosts.yml")]
    argv += [str(PLAYBOOKS / f"{playbook}.yml"), "-e", f"@{given}", *options]
    argv += ["-l", "n1"] if playbook == "node_prepare" else []  # the others name their hosts themselves
    # Ansible's own shared connections are found by address, and other labs have the same ones.
    alone = os.environ | {"ANSIBLE_SSH_ARGS": "-o ControlMaster=no"}
    done = site.lab.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, env=alone)
    assert done.returncode == 0, f"{playbook} {options}\n{done.stdout}\n{done.stderr}"
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap)}


def test_every_playbook_runs_by_hand_checks_without_changing_and_changes_once(site: LabSite) -> None:
    site.write(("n1",))
    node, r1 = site.lab.nodes["n1"], site.lab.nodes["r1"]
    node.sh(f"rm -rf {RUNS} /etc/sudoers.d/llmgw; userdel llmgw")
    example = {path.stem: json.loads(path.read_text()) for path in (PLAYBOOKS / "examples").glob("*.json")}
    settings = parse_settings((site.folder / "llmgw.yml").read_text(), "llmgw.yml")
    host = InventoryHost(name="n1", variables=HostVariables(), connection={"ansible_host": node.address})
    made = Site(settings, (host,), (), parse_catalogue("models: {}", "models.yml", settings))
    start, probe, stop = (
        next(iter(next(iter(example[f"engine_{name}"].values())).values()))[0]
        for name in ("start", "probe", "stop")
    )
    argv = ["/opt/llmgw/engines/vllm-0.33.0/bin/vllm", "serve", "/models/count.gguf", "--port", "18000"]
    document = {"name": "endpoints.json", "text": '{"generation": 1}', "mode": "0644"}
    variables = {
        "node_prepare": example["node_prepare"],
        "facts": {"facts_by_host": {"n1": plain(facts_query(made, host))}},
        "engine_start": {"starts_by_host": {"n1": [start | {"argv": argv, "nodes": ["n1"]}]}},
        "engine_probe": {
            "probes_by_host": {"n1": [probe | {"address": node.address, "model": "/models/count.gguf"}]}
        },
        "engine_stop": {"stops_by_host": {"n1": [stop]}},
        "fabric_scan": {"scans_by_host": {"n1": plain(scan_port(made, host, "mlx5_0", 1))}},
        "publish": {"documents_by_host": {"r1": {"folder": PUBLISHED, "files": [document]}}},
    }
    assert set(variables) == set(example) == {path.stem for path in PLAYBOOKS.glob("*.yml")}
    ways = (("--check", "--diff"), (), ("--check", "--diff"), ())
    recaps = {
        playbook: [by_hand(site, playbook, given, *options)["changed"] for options in ways]
        for playbook, given in variables.items()
    }
    changes, reads = [1, 1, 0, 0], [0, 0, 0, 0]
    checked, prepared, *again = recaps.pop("node_prepare")
    assert 0 < checked <= prepared  # without its account a node cannot be asked everything
    assert again == [0, 0]
    assert recaps == {
        "facts": reads,
        "engine_start": changes,
        "engine_probe": reads,
        "engine_stop": changes,
        "fabric_scan": reads,
        "publish": changes,
    }
    assert node.processes("vllm serve") == []
    assert r1.sh(f"cat {PUBLISHED}/endpoints.json") == document["text"]
