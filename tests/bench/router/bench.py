"""Measures the router beside its peers, all of them up at once, in rounds of short loads.

    python -m tests.bench.router.bench [--compiled] [--rounds 5] [--peers naive,nginx,…] [--scenarios …]

Each proxy has core 0, the engine and the load generator core 1, all traffic stays on 127.0.0.1. In every round
each proxy gets the same load in turn, so that other work on the machine meets all of them alike; what counts is
the ratio within a round. CPU is that of the proxy's processes, user and kernel, over exactly the measured time.
`direct` is the load straight to the engine; what it adds to a delay is taken off. Bars are what the router is
held to. --compiled measures the router of `make compiled`.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.router.peers import HERE, KEY, MODEL, PEERS, ROOT, Peer
from tests.lab.wheel import compiled_site

BUILD = ROOT / "build" / "bench"
ENGINE_PORT, FIRST_PORT = 21100, 21200
TTFT_US, GAP_US, JITTER = 50_000, 50_000, 50


@dataclass(frozen=True)
class Scenario:
    """Connections, warm-up and measured seconds, tokens of a stream (0.

    Whole answers), bytes added to the prompt.
    """

    connections: int
    warm_s: float
    seconds: float
    tokens: int = 0
    pad: int = 0

    @property
    def unit(self) -> str:
        return "chunk" if self.tokens else "request"


SCENARIOS = {
    "c32": Scenario(32, 0.3, 1.2),
    "c256": Scenario(256, 0.5, 1.2),
    "c32-16k": Scenario(32, 0.3, 1.2, pad=16384),
    "s512": Scenario(512, 2.0, 2.5, tokens=40),
    "s1024": Scenario(1024, 2.5, 2.5, tokens=40),
}


@dataclass
class Running:
    """A proxy that is up."""

    peer: Peer
    port: int
    process: subprocess.Popen[bytes]
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return family(self.process.pid)


def family(pid: int) -> list[int]:
    """The process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        here = waiting.pop()
        found.append(here)
        for task in Path(f"/proc/{here}/task").glob("*/children"):
            waiting.extend(map(int, task.read_text().split()))
    return found


def pinned(core: int, words: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    """Started on one core, in a session of its own, ahead of other work on the machine where that is allowed."""
    env = {"PYTHONPATH": str(ROOT), **os.environ}
    return subprocess.Popen(words, preexec_fn=lambda: _settle(core), env=env, **more)


def _settle(core: int) -> None:
    os.setsid()
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
    with contextlib.suppress(OSError):
        os.nice(-10)
        Path("/proc/self/autogroup").write_text("-10")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends one process that this bench started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:
            return b"fox" in answer.read()
    except OSError:
        return False


@contextmanager
def engine() -> Iterator[int]:
    words = [str(BUILD / "engine"), *map(str, (ENGINE_PORT, TTFT_US, GAP_US, JITTER))]
    process = pinned(1, words)
    try:
        wait_for(ENGINE_PORT, process)
        yield process.pid
    finally:
        stop(process)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not answers(port):
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"nothing answers on port {port}")
        time.sleep(0.1)


@contextmanager
def proxies(names: Sequence[str], folder: Path) -> Iterator[dict[str, Running]]:
    """All of them, each on a port of its own."""
    up: dict[str, Running] = {}
    try:
        for number, name in enumerate(names):
            own = folder / name
            own.mkdir()
            words = PEERS[name].prepare(own, FIRST_PORT + number, ENGINE_PORT)
            log = (own / "log").open("wb")
            up[name] = Running(PEERS[name], FIRST_PORT + number, pinned(0, words, stdout=log, stderr=log, cwd=own))
        for one in up.values():
            wait_for(one.port, one.process)
        yield up
    finally:
        for one in up.values():
            stop(one.process)


def load(port: int, scenario: Scenario, pids: Sequence[int]) -> dict[str, Any]:
    """One short load; what load.c printed."""
    words = [
        port,
        scenario.connections,
        scenario.warm_s,
        scenario.seconds,
        scenario.tokens,
        scenario.pad,
        KEY,
        MODEL,
    ]
    process = pinned(1, [str(BUILD / "load"), *map(str, words), ",".join(map(str, pids))], stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=60)
    result: dict[str, Any] = json.loads(out)
    units = result["chunks"] if scenario.tokens else result["requests"]
    return {**result, "us": result["cpu_ns"] / 1e3 / max(1, units), "rate": units / result["seconds"]}


def measure(up: dict[str, Running], name: str, rounds: int, engine_pid: int) -> list[dict[str, Any]]:
    """`rounds` rounds of one scenario; round 0 only warms up. Gives the direct loads."""
    scenario, direct = SCENARIOS[name], []
    for number in range(rounds + 1):
        order = list(up.values())
        order = order[number % len(order) :] + order[: number % len(order)]
        for one in order:
            result = load(one.port, scenario, one.pids)
            if number:
                one.rounds.setdefault(name, []).append({**result, "peak": peak(one.pids)})
        if number and scenario.tokens:
            direct.append(load(ENGINE_PORT, scenario, [engine_pid]))
    return direct


def peak(pids: Sequence[int]) -> float:
    """Resident memory now, MiB, of all processes together."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def least(one: Running, name: str) -> float:
    """CPU per unit in the proxy's least disturbed round: other work on the machine only ever adds to it."""
    return float(min(result["us"] for result in one.rounds[name]))


def against(up: dict[str, Running], name: str, peer: str) -> tuple[float, float] | None:
    """The router's CPU per unit over the peer's: least over least, and the middle of the rounds; None without it."""
    if peer not in up:
        return None
    pairs = zip(up["llmgw"].rounds[name], up[peer].rounds[name], strict=True)
    return least(up["llmgw"], name) / least(up[peer], name), middle(
        [own["us"] / other["us"] for own, other in pairs]
    )


def added(
    up: dict[str, Running], direct: Sequence[dict[str, Any]], name: str, what: str, which: str
) -> dict[str, float]:
    """Milliseconds that each proxy adds, the direct loads' own taken off."""
    base = middle([one[what][which] for one in direct])
    return {peer: (middle([r[what][which] for r in one.rounds[name]]) - base) / 1e3 for peer, one in up.items()}


BARS = (
    ("c32", "vllm-router", 0.85), ("c32", "nginx", 2.5), ("c32", "naive", 0.3), ("c32", "haproxy", 1.5),
    ("c256", "vllm-router", 0.85), ("c256", "nginx", 2.5), ("c256", "naive", 0.3),
    ("c32-16k", "vllm-router", 0.7), ("s512", "haproxy", 1.15), ("s1024", "haproxy", 1.15),
)  # fmt: skip
TIMES = (("added_first_us", "p50", 0.25), ("added_first_us", "p99", 3.0), ("delay_us", "p99", 2.0))


def report(up: dict[str, Running], names: Sequence[str], direct: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    for name in names:
        unit = SCENARIOS[name].unit
        yield f"\n{name:12} µs CPU/{unit}: least, middle; {unit}s/s, MiB, errors; the router against it: least, middle"
        for peer, one in sorted(up.items(), key=lambda item: least(item[1], name)):
            rounds, ratios = one.rounds[name], against(up, name, peer) or (1.0, 1.0)
            us, rate = middle([r["us"] for r in rounds]), middle([r["rate"] for r in rounds])
            errors, mib = sum(r["errors"] for r in rounds), rounds[-1]["peak"]
            figures = f"{least(one, name):7.1f} {us:7.1f} {rate:9.0f} {mib:5.0f} {errors:3}"
            yield f"  {peer:12} {figures}   {ratios[0]:5.2f} {ratios[1]:5.2f}"
        if direct.get(name):
            for what, which, _ in TIMES:
                shown = added(up, direct[name], name, what, which)
                yield f"  {what} {which} added, ms: " + ", ".join(f"{p} {ms:.2f}" for p, ms in shown.items())
    yield "\nbars"
    for name, peer, bar in BARS:
        ratios = against(up, name, peer) if name in names else None
        if ratios is not None:
            shown = f"{ratios[0]:5.2f} (middle {ratios[1]:.2f}) x {peer:12}"
            yield f"  {name:8} {shown} bar {bar:.2f} {'met' if ratios[0] <= bar else 'MISSED'}"
    if direct.get("s512"):
        for what, which, bar in TIMES:
            ms = added(up, direct["s512"], "s512", what, which)["llmgw"]
            yield f"  s512 {what} {which} {ms:.2f} ms, bar {bar} {'met' if ms <= bar else 'MISSED'}"
    if "s1024" in names:
        mib = up["llmgw"].rounds["s1024"][-1]["peak"]
        yield f"  s1024 resident {mib:.0f} MiB, bar 70 {'met' if mib <= 70 else 'MISSED'}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--compiled", action="store_true")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--peers", default=",".join(name for name in PEERS if name != "llmgw"))
    words.add_argument("--scenarios", default=",".join(SCENARIOS))
    asked = words.parse_args()
    subprocess.run(["make", "-s", "-C", str(HERE)], check=True)
    names = ["llmgw", *(name for name in asked.peers.split(",") if name and PEERS[name].present)]
    missing = set(asked.peers.split(",")) - set(names) - {""}
    if missing:
        print(f"not installed: {', '.join(sorted(missing))}", file=sys.stderr)
    scenarios = asked.scenarios.split(",")
    if asked.compiled:
        os.environ["PYTHONPATH"] = f"{compiled_site()}:{ROOT}"
    with tempfile.TemporaryDirectory() as folder, engine() as engine_pid, proxies(names, Path(folder)) as up:
        direct = {name: measure(up, name, asked.rounds, engine_pid) for name in scenarios}
        for line in report(up, scenarios, direct):
            print(line)


if __name__ == "__main__":
    main()
