"""llmgw plan from end to end: a large site's folder and store are written, then the command is run and measured."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

from llmgw.plan import Plan
from llmgw.plan.copies import url
from llmgw.plan.placer.rng import SplitMix64
from llmgw.remote.inventory import fingerprint
from llmgw.serving import Endpoint
from llmgw.store import open_state
from llmgw.store.database import State
from llmgw.store.history import save_listing
from llmgw.store.journal import consume, finish
from llmgw.store.maps import NewScan, save_scan
from llmgw.store.published import next_generation
from tests.bench.placement_scale import SHAPES

NOW = datetime.now(UTC).replace(microsecond=0)
ROOT = Path(__file__).resolve().parents[2]
MODELS, LEAF, POD, RAILS = 500, 32, 16, 8
WEIGHTS = 40  # folders of weights, which the models share; every node reports all of them
SETTINGS = """\
format: llmgw-site/1
name: large
engines: {vllm: {"0.33.0": {path: /opt/llmgw/engines/vllm-0.33.0}}}
"""


def plan(count: int) -> None:
    """Plans a site on which nothing runs, then, once all of that runs, ten replicas more; prints time and memory.

    The folder and the store are written by other processes, and the inventory is as the store remembers it.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _this("write", name, str(count))
        first = folder / "first.json"
        _measured("from empty", folder, first)
        _this("run", name, str(first))
        _measured("10 changed", folder, folder / "second.json")


def _this(*arguments: str) -> None:
    _run([sys.executable, "-m", "tests.bench.placement_plan", *arguments])


def _measured(case: str, folder: Path, out: Path) -> None:
    site, state = str(folder / "site"), str(folder / "state.db")
    command = [sys.executable, "-m", "llmgw", "--site", site, "--state", state, "plan", "--no-refresh", "--out"]
    began = monotonic()
    used = _run([*command, str(out)])
    took = monotonic() - began
    print(
        f"{case}: {took:.1f} s wall, {used.ru_utime + used.ru_stime:.1f} s CPU, peak {used.ru_maxrss >> 10} MiB, "
        f"plan file {out.stat().st_size >> 20} MiB",
        flush=True,
    )


def _run(command: Sequence[str]) -> Any:
    """What the command used, once it has ended well. What it writes to stdout is dropped."""
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)}, file_actions=silence)
    _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return used


def guid(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:16]


def catalogue_text(count: int, *, more: int = 0) -> str:
    """500 models that ask for nine tenths of the GPUs, ten of them (with `more`) for a replica more."""
    rng = SplitMix64(1)
    shapes = [SHAPES[rng.below(100)] for _ in range(MODELS)]
    numbers, asked = [0] * MODELS, 0
    while asked < count * 8 * 9 // 10 - 32:
        model = rng.below(MODELS)
        asked += shapes[model][0] * shapes[model][1]
        numbers[model] += 1
    for model in range(more):
        numbers[model] += 1
    lines = ["format: llmgw-models/1", "models:"]
    for model, (nodes, gpus) in enumerate(shapes):
        lines += [
            f"  model-{model:03d}:",
            f"    source: {{path: /models/weights-{model % WEIGHTS:02d}}}",
            f"    replicas: {numbers[model]}",
            "    profiles:",
            f"      main: {{engine: vllm, version: 0.33.0, tensor_parallel: {gpus}, pipeline_parallel: {nodes},",
            f"        shapes: [{nodes}x{gpus}], gpu: {{memory_gib: 80}}, args: [--max-model-len, '32768']}}",
        ]
    return "\n".join(lines) + "\n"


def listing_of(names: list[str]) -> dict[str, Any]:
    """The inventory as ansible-inventory prints it."""
    variables = {
        name: {
            "ansible_host": address(n),
            "llmgw_socket_interface": "ens1f0",
        }
        for n, name in enumerate(names)
    }
    return {"gpu_nodes": {"hosts": names}, "_meta": {"hostvars": variables}}


def address(number: int) -> str:
    return f"10.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def paths_of(names: list[str]) -> dict[str, Any]:
    domains: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for n, name in enumerate(names):
        leaf = n // LEAF
        switches = [guid(f"leaf {leaf} {rail}") for rail in range(RAILS)]
        domain = f"d{leaf:03d}"
        domains.setdefault(domain, {"name": f"su{leaf:03d}", "pod": f"pod-{leaf // POD}", "leaves": switches})
        short = n % 50 == 7
        nodes[name] = {
            "domain": domain,
            "pod": f"pod-{leaf // POD}",
            "rails": [
                {"device": f"mlx5_{rail}", "port": 1, "guid": guid(f"{name} {rail}"), "leaf": switches[rail],
                 "rail": rail + 1, "rate": "2xNDR" if short and not rail else "4xNDR", "expected": "4xNDR"}
                for rail in range(RAILS)
            ],
            "short": [
                {"node_end": f"{name} mlx5_0/1", "switch_end": f"su{leaf:03d}-r1 port {n % LEAF}",
                 "rate": "2xNDR", "expected": "4xNDR"}
            ] if short else [],
        }  # fmt: skip
    return {
        "fabric": "ib0",
        "complete": True,
        "rail_aligned": True,
        "scan": 8812,
        "domains": domains,
        "nodes": nodes,
    }


def facts_of(names: list[str], runs: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The facts of each node, NodeFacts as JSON values."""
    seen = (NOW - timedelta(seconds=5)).isoformat()
    weights = [{"path": f"/models/weights-{one:02d}", "bytes": 10**11} for one in range(WEIGHTS)]
    engine = {"engine": "vllm", "version": "0.33.0", "path": "/opt/llmgw/engines/vllm-0.33.0", "runnable": True}
    for name in names:
        gpus = [
            {
                "index": gpu,
                "uuid": f"GPU-{guid(f'{name} {gpu}')}",
                "model": "NVIDIA H100 80GB HBM3",
                "memory_mib": 81559,
                "pci": f"0000:{24 + gpu:02x}:00.0",
                "numa": gpu // 4,
                "nvlink": [other for other in range(8) if other != gpu],
            }
            for gpu in range(8)
        ]
        adapters = [
            {
                "device": f"mlx5_{rail}",
                "port": 1,
                "node_guid": guid(f"{name} {rail}"),
                "port_guid": guid(f"{name} {rail}"),
                "state": "ACTIVE",
                "rate": "400 Gb/sec (4X NDR)",
            }
            for rail in range(RAILS)
        ]
        held = {
            gpu: [{"pid": 4711, "name": "vllm", "memory_mib": 70000}]
            for run in runs.get(name, ())
            for gpu in run["gpus"]
        }
        yield (
            name,
            {
                "seen_at": seen,
                "supervisor": "systemd",
                "gpus": [gpu | {"processes": held.get(gpu["index"], [])} for gpu in gpus],
                "adapters": adapters,
                "listen_ports": [22, 111, 9100],
                "engines": [engine],
                "weights": weights,
                "runs": runs.get(name, []),
            },
        )


def write(folder: Path, count: int) -> None:
    """The site's folder, and a store that has its inventory, its map and its nodes' facts."""
    names = [f"gpu{n:05d}" for n in range(1, count + 1)]
    site = folder / "site"
    site.mkdir()
    (site / "llmgw.yml").write_text(SETTINGS)
    (site / "models.yml").write_text(catalogue_text(count))
    (site / "hosts.yml").write_text("gpu_nodes:\n  hosts:\n" + "".join(f"    {name}:\n" for name in names))
    store = open_state(folder / "state.db")
    save_listing(store, listing_of(names), fingerprint(site / "hosts.yml", site), now=NOW)
    paths = json.dumps(paths_of(names))
    save_scan(store, NewScan("ib0", NOW, "ufm01", "complete", "", "", "", paths=paths))
    _save(store, facts_of(names, {}))


def _save(store: State, facts: Iterator[tuple[str, dict[str, Any]]]) -> None:
    with store.change() as database:
        rows = ((name, node["seen_at"], json.dumps(node)) for name, node in facts)
        database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", rows)


def run(folder: Path, file: Path) -> None:
    """The plan as applied: its replicas run and are published. Then ten models want a replica more."""
    made, store = Plan.read(file.read_bytes(), str(file)), open_state(folder / "state.db")
    consume(store, made, by="bench")
    finish(store, made.id, "done")
    runs: dict[str, list[dict[str, Any]]] = {}
    endpoints = []
    count = len(names := [name for (name,) in store.rows("SELECT node FROM facts ORDER BY node")])
    number = {name: n for n, name in enumerate(names)}
    for action in made.body.actions:
        place = action.starts
        assert place is not None
        nodes = [seat.n for seat in place.nodes]
        for seat in place.nodes:
            runs.setdefault(seat.n, []).append(
                {
                    "replica": action.replica, "rank": seat.rank, "plan": made.id, "action": action.id,
                    "spec": place.spec, "state": "running", "supervisor": "systemd", "unit": "llmgw", "pid": 4711,
                    "gpus": list(seat.gpus), "port": seat.port, "ports": seat.ports, "nodes": nodes,
                    "started_at": NOW.isoformat(),
                }
            )  # fmt: skip
        endpoints.append(
            Endpoint(
                id=action.replica, model=place.model, profile=place.profile, state="ready", node=nodes[0],
                url=url(address(number[nodes[0]]), place.port), spec=place.spec,
            )
        )  # fmt: skip
    next_generation(store, lambda _: endpoints, lambda _: (), now=NOW)
    _save(store, facts_of(names, runs))
    (folder / "site" / "models.yml").write_text(catalogue_text(count, more=10))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        run(Path(sys.argv[2]), Path(sys.argv[3]))
