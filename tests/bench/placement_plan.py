"""A plan from documents: the texts of a large site are written by another process, read and planned in this one."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

from llmgw.fabric import Paths, lean_paths
from llmgw.observed import Facts, lean_facts
from llmgw.plan import Options, Plan, Standing, make_plan
from llmgw.plan.placer.rng import SplitMix64
from llmgw.plan.text import View, plan_lines, to_text
from llmgw.site import Site, make_site, parse_catalogue, parse_settings
from tests.bench.placement import peak_mib
from tests.bench.placement_scale import SHAPES

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
MODELS, LEAF, POD, RAILS = 500, 32, 16, 8
WEIGHTS = 40  # folders of weights, which the models share; every node reports all of them
SETTINGS = """\
format: llmgw-site/1
name: large
engines: {vllm: {"0.33.0": {path: /opt/llmgw/engines/vllm-0.33.0}}}
"""


def plan(count: int) -> None:
    """Writes the texts, reads them, plans twice (from empty, and with everything running), prints time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-m", "tests.bench.placement_plan", folder, str(count)]
        subprocess.run(command, check=True, cwd=root)
        texts = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    print(
        f"{count} nodes, {MODELS} models: "
        + ", ".join(f"{n} {len(t) >> 20} MiB" for n, t in sorted(texts.items()))
    )
    before = process_time()
    site, fabrics, facts = read(texts)
    read_s = process_time() - before
    after_reading = peak_mib()
    made_s = process_time()
    body = make_plan(site, fabrics, facts, Standing("b7e2", 41), options=Options(), now=NOW)
    made_s = process_time() - made_s
    saved_s = process_time()
    made = Plan.of(body, created=NOW, by="bench")
    text, shown = made.text(), to_text(plan_lines(made, View()))
    saved_s = process_time() - saved_s
    print(f"reading {read_s:.1f} s, make_plan {made_s:.1f} s, file and text {saved_s:.1f} s CPU")
    print(f"{len(body.actions)} actions, {len(body.unplaced)} unplaced, plan file {len(text) >> 20} MiB")
    print(f"peak {peak_mib()} MiB ({after_reading} after reading)")
    print("\n".join(shown.splitlines()[-6:]))


def read(texts: dict[str, bytes]) -> tuple[Site, dict[str, Paths], Facts]:
    """What a plan is made from. The texts are given up one by one, as a program that reads files does."""
    settings = parse_settings(SETTINGS, "llmgw.yml")
    catalogue = parse_catalogue(texts.pop("models.yml").decode(), "models.yml", settings)
    listing = json.loads(texts.pop("hosts.json"))
    site = make_site(settings, listing, catalogue, inventory_name="hosts.yml")
    paths = lean_paths(texts.pop("paths.json"), "the store")
    rows = (line.split(b"\t", 1) for line in texts.pop("facts.tsv").splitlines())
    facts = lean_facts(((name.decode(), text) for name, text in rows), asked_at=NOW, silent={})
    return site, {paths.fabric: paths}, facts


def guid(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:16]


def catalogue_text(count: int) -> str:
    """500 models that ask for nine tenths of the GPUs."""
    rng = SplitMix64(1)
    shapes = [SHAPES[rng.below(100)] for _ in range(MODELS)]
    numbers, asked = [0] * MODELS, 0
    while asked < count * 8 * 9 // 10 - 32:
        model = rng.below(MODELS)
        asked += shapes[model][0] * shapes[model][1]
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


def hosts(names: list[str]) -> dict[str, Any]:
    variables = {
        name: {
            "ansible_host": f"10.{1 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}",
            "llmgw_socket_interface": "ens1f0",
        }
        for n, name in enumerate(names)
    }
    return {"gpu_nodes": {"hosts": names}, "_meta": {"hostvars": variables}}


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


def facts_of(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
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
        yield (
            name,
            {
                "seen_at": seen,
                "supervisor": "systemd",
                "gpus": gpus,
                "adapters": adapters,
                "listen_ports": [22, 111, 9100],
                "engines": [engine],
                "weights": weights,
            },
        )


def write(folder: Path, count: int) -> None:
    names = [f"gpu{n:05d}" for n in range(1, count + 1)]
    (folder / "models.yml").write_text(catalogue_text(count))
    (folder / "hosts.json").write_text(json.dumps(hosts(names)))
    (folder / "paths.json").write_text(json.dumps(paths_of(names)))
    with (folder / "facts.tsv").open("w") as file:  # as the store has them: a row for each node
        file.writelines(f"{name}\t{json.dumps(node)}\n" for name, node in facts_of(names))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
