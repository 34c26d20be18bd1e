"""Figures of operating: how long a push, a look and a status take, beside Ansible alone. Nothing fails by them.

python -m tests.bench.operate [push|facts|status|help …]        all of them where none is named

Walls are the least of several rounds, taken in turn, so that both sides see the same machine. What runs on lab hosts
shares the machine's processors with the control host; on a real site it does not.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from llmgw.observed import NodeFacts
from llmgw.remote.observe import observe
from llmgw.remote.playbook import PLAYBOOKS, Play, Session, open_session, run_play
from llmgw.remote.steps import StartRank, StopRank, facts_query, plain
from llmgw.site import HostVariables, InventoryHost, Site, parse_catalogue, parse_settings
from llmgw.store import open_state
from llmgw.store.nodes import save_facts
from tests.fakes.paper_site import ROOT, PaperSite
from tests.fakes.worlds import NOW, World
from tests.lab.hosts import Gpu, numbered
from tests.lab.kernel import LabError
from tests.lab.lab import Lab
from tests.lab.llama import engine_shares
from tests.lab.site import RUNS, LabSite

ROUNDS = 4
PROGRAM = "/opt/llmgw/engines/vllm-0.33.0/bin/vllm"


def least(*works: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The least wall time of each, taken in turn; the first round warms up and is not counted."""
    walls: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for work, wall in zip(works, walls, strict=True):
            began = time.monotonic()
            work()
            wall.append(time.monotonic() - began)
    return [min(wall[1:]) for wall in walls]


@contextmanager
def lab_site(count: int) -> Iterator[LabSite]:
    """So many lab nodes, prepared."""
    hosts = [host.with_shares(*engine_shares()) for host in numbered(count, gpus=[Gpu()] * 4)]
    with Lab("bench", hosts) as lab, tempfile.TemporaryDirectory() as folder:
        site = LabSite(lab, Path(folder) / "site")
        site.prepare()
        yield site.write([host.name for host in hosts])


def as_site(site: LabSite) -> Site:
    """What llmgw makes of it."""
    settings = parse_settings((site.folder / "llmgw.yml").read_text(), "llmgw.yml")
    hosts = tuple(
        InventoryHost(name=node.name, variables=HostVariables(), connection={"ansible_host": node.address})
        for node in site.lab.nodes.values()
    )
    return Site(settings, hosts, (), parse_catalogue("models: {}", "models.yml", settings))


def bare_play(site: LabSite, task: dict[str, Any], **more: Path) -> Callable[[], None]:
    """ansible-playbook with one task, as an admin who knows how would run it: pipelining, connections kept."""
    file = site.folder / f"bare-{next(iter(task))}.yml"
    file.write_text(yaml.safe_dump([{"hosts": "gpu_nodes", "gather_facts": False, "tasks": [task]}]))
    argv = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        str(site.folder / "hosts.yml"),
        "-f",
        "50",
    ]
    environment = {
        **os.environ,
        "ANSIBLE_PIPELINING": "True",
        "LC_ALL": "C.UTF-8",
        **{k: str(v) for k, v in more.items()},
    }

    def run() -> None:
        done = subprocess.run([*argv, str(file)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout

    return run


def push(count: int = 8) -> None:
    """One engine start to each of so many nodes, beside a play of one command."""
    with lab_site(count) as site, site.lab.entered(), open_session(site.folder / "hosts.yml") as session:
        names = list(site.lab.nodes)
        number = iter(range(100))

        def start() -> None:
            unit = f"llmgw-m-{next(number)}"
            _all_ok(session, Play("engine_start", "starts_by_host", {n: [_start(n, unit)] for n in names}, 120))

        def stop() -> None:
            steps = {
                name: [plain(StopRank(unit, "", "", "", force=True, wait_s=10, run_dir=RUNS, supervisor="auto",
                                      nvidia_smi="nvidia-smi")) for unit in units]
                for name, units in site.units().items()
                for units in [[unit.removesuffix(".service") for unit in units]]
            }  # fmt: skip
            _all_ok(session, Play("engine_stop", "stops_by_host", steps, 120))

        bare, ours, _ = least(bare_play(site, {"command": "true"}), start, stop)
        print(f"push one start to {count} nodes: {ours:.2f} s; a bare play of one command: {bare:.2f} s; "
              f"ratio {ours / bare:.2f} (bar 1.5)")  # fmt: skip


def _start(node: str, unit: str) -> dict[str, Any]:
    argv = (PROGRAM, "serve", "/models/count.gguf", "--port", "18000")
    return plain(
        StartRank(unit, "m/0", 0, "bench", "a1", "sha256:0", (node,), (0,), 18000, 1, argv, {}, 10, RUNS, "llmgw",
                  "auto", "nvidia-smi")
    )  # fmt: skip


def _all_ok(session: Session, play: Play) -> None:
    for answer in run_play(session, play):
        ranks = answer.result.get("ranks", {})
        assert answer.outcome == "ok", answer.why
        assert all(rank["ok"] for rank in ranks.values()), ranks


def facts(count: int = 32) -> None:
    """The facts of so many nodes, beside a play of one module; and the memory of a whole `llmgw nodes facts`."""
    with lab_site(count) as site:
        made = as_site(site)
        with site.lab.entered(), open_session(site.folder / "hosts.yml") as session:

            def look() -> None:
                assert len(observe(session, made, made.nodes).answered) == count

            query = plain(facts_query(made, made.nodes[0]))
            modules = {
                "ANSIBLE_LIBRARY": PLAYBOOKS / "library",
                "ANSIBLE_MODULE_UTILS": PLAYBOOKS / "module_utils",
            }
            ping = bare_play(site, {"ping": {}})
            same = bare_play(site, {"llmgw_facts": {"query": query}}, **modules)
            bare, module, ours = least(ping, same, look)
        print(f"facts of {count} nodes: {ours:.2f} s; a bare play of the same module: {module:.2f} s; "
              f"ratio {ours / module:.2f} (bar 1.3); one of ping: {bare:.2f} s; ratio {ours / bare:.2f}")  # fmt: skip
        going = site.popen("nodes", "facts", "--refresh")
        peak = _watch_memory(going)
        print(f"memory of llmgw nodes facts at {count} nodes, all its processes: {peak:.0f} MB (bar 300)")


def _watch_memory(process: "subprocess.Popen[str]") -> float:
    """The most memory (PSS, MB) of a process and all below it together, until it ends."""
    peak = 0.0
    reader = threading.Thread(target=process.communicate)
    reader.start()
    while process.poll() is None:
        peak = max(peak, sum(_pss_mb(pid) for pid in _family(process.pid)))
        time.sleep(0.1)
    reader.join()
    return peak


def _family(first: int) -> set[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pss_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    return 0.0


def status(count: int = 1000) -> None:
    """llmgw status on what was last seen of so many nodes, half of them serving."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"n{number}" for number in range(1, count + 1)]
        site = PaperSite(Path(folder) / "site", nodes=tuple(names))
        site.models(m={"replicas": count // 2})
        world = World.of({f"leaf-{at}": names[at : at + 20] for at in range(0, count, 20)})
        world.model("m", shapes=["1x8"], replicas=count // 2)
        for number, name in enumerate(names[: count // 2]):
            world.run(f"m/{number}", [name])
        seen: dict[str, NodeFacts] = dict(world.facts().nodes)
        save_facts(open_state(site.state), seen, [], now=NOW)
        site.llmgw("status")
        argv = [sys.executable, "-m", "llmgw", "--site", str(site.folder), "--state", str(site.state), "status"]
        wall, cpu = _timed(argv)
        print(f"llmgw status, {count} nodes and {count // 2} replicas: {wall:.2f} s, {cpu:.2f} s of CPU (bar 0.4)")


def help_() -> None:
    """llmgw --help."""
    wall, cpu = _timed([sys.executable, "-m", "llmgw", "--help"])
    nothing, _ = _timed([sys.executable, "-c", "pass"])
    print(f"llmgw --help: {wall:.3f} s, {cpu:.3f} s of CPU (bar 0.15); Python alone: {nothing:.3f} s")


def _timed(argv: Sequence[str], *, rounds: int = 7) -> tuple[float, float]:
    """The least wall and CPU time of a command, seconds."""
    walls, cpus = [], []
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds):
        before, began = os.times(), time.monotonic()
        done = subprocess.run(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, env=environment, check=False
        )
        after = os.times()
        assert done.returncode == 0, done.stderr
        walls.append(time.monotonic() - began)
        cpus.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(walls), min(cpus)


FIGURES: dict[str, Callable[[], None]] = {"push": push, "facts": facts, "status": status, "help": help_}


def main(argv: Sequence[str]) -> int:
    """Print them; 0 also where there can be no lab."""
    for name in argv or FIGURES:
        try:
            FIGURES[name]()
        except LabError as error:
            print(f"{name}: no figures: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
