"""What one client's trouble costs another: overload by a key, a crowd of idle and slow connections, a cold replica that
joins, and reloads of a large file while streams run.

python -m tests.bench.router.events
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from llmgw.serving.keys import digest_of
from llmgw.store.files import write_whole
from tests.bench.router.bench import BUILD, ENGINE_PORT, FIRST_PORT, HERE, Scenario, load, pinned, stop, wait_for
from tests.bench.router.peers import llmgw
from tests.fakes.http_engine import Behave, Seen, Wire, answers, completion, engines, reply
from tests.fakes.router_process import router_process
from tests.fakes.router_world import ask, key_file, publish

CALM_S = 8.0


async def timed(port: int, key: str) -> tuple[int, float]:
    began = time.perf_counter()
    answer = await ask(port, headers={"Authorization": f"Bearer {key}"})
    return answer.status, (time.perf_counter() - began) * 1e3


async def calm(port: int, seconds: float) -> list[float]:
    """One key's requests, two at a time; milliseconds each."""
    took: list[float] = []
    end = time.monotonic() + seconds

    async def one() -> None:
        while time.monotonic() < end:
            took.append((await timed(port, "calm"))[1])
            await asyncio.sleep(random.uniform(0, 0.02))

    await asyncio.gather(one(), one())
    return took


async def loud(port: int, seconds: float) -> None:
    """Eighty clients of one key, each with a tenth of a second of rest after a refusal."""
    waits: list[float] = []
    answered = 0
    end = time.monotonic() + seconds

    async def one() -> None:
        nonlocal answered
        while time.monotonic() < end:
            status, ms = await timed(port, "loud")
            answered += status == 200
            if status == 429:
                waits.append(ms)
                await asyncio.sleep(0.1)

    await asyncio.gather(*(one() for _ in range(80)))
    print(f"  the loud key: {answered} answered, {len(waits)} refused in {quantiles(waits)}")


def quantiles(took: Sequence[float]) -> str:
    marks = statistics.quantiles(took, n=100)
    return f"p50 {marks[49]:.1f} ms, p99 {marks[98]:.1f} ms"


def p99(took: Sequence[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


async def overload(folder: Path) -> None:
    """A key with a limit of 8 at a time sends 80 at a time; another key's times before and during that."""
    key_file(
        folder,
        {"id": "loud", "digest": digest_of("loud"), "tenant": "loud", "max_in_flight": 8},
        {"id": "calm", "digest": digest_of("calm"), "tenant": "calm"},
    )
    async with engines(2, answers(wait_s=0.1)) as two:
        publish(folder, 1, [(f"m/{n}", engine.url) for n, engine in enumerate(two)], max_in_flight=8)
        with router_process(folder, "--published", str(folder), "--check", "0") as router:
            alone = await calm(router.port, CALM_S)
            words = [sys.executable, "-m", "tests.bench.router.events", "--loud", str(router.port)]
            flood = await asyncio.create_subprocess_exec(*words)
            await asyncio.sleep(2.0)
            beside = await calm(router.port, CALM_S)
            await flood.wait()
    ratio = p99(beside) / p99(alone)
    print(f"calm key alone: {quantiles(alone)}; beside the loud one: {quantiles(beside)}; p99 {ratio:.2f} times")


async def crowd(folder: Path) -> None:
    """2,000 idle connections and 200 heads that never end; another client's times before and during that."""
    async with engines(2, answers(wait_s=0.1)) as two:
        publish(folder, 1, [(f"m/{n}", engine.url) for n, engine in enumerate(two)])
        with router_process(folder, "--published", str(folder), "--check", "0") as router:
            alone = await calm(router.port, CALM_S)
            held = [await asyncio.open_connection("127.0.0.1", router.port) for _ in range(2200)]
            for _, writer in held[:200]:
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
            beside = await calm(router.port, CALM_S)
            for _, writer in held:
                writer.transport.abort()
    ratio = p99(beside) / p99(alone)
    print(
        f"a client alone: {quantiles(alone)}; beside 2,200 connections: {quantiles(beside)}; p99 {ratio:.2f} times"
    )


def warming(wait_s: float, *, requests: int) -> Behave:
    """Answers of an engine that was just started: the first takes five times as long, by so many it is warm."""
    done = 0

    async def behave(wire: Wire, _: Seen) -> None:
        nonlocal done
        done += 1
        await asyncio.sleep(wait_s * (1 + 4 * max(0, requests - done) / requests))
        await wire.send(reply(200, completion()))

    return behave


async def cold(folder: Path) -> None:
    """Twelve requests at a time on two warm replicas, and on these and one that was just started."""
    async with engines(3, answers(wait_s=0.05)) as three:
        publish(folder, 1, [(f"m/{n}", engine.url) for n, engine in enumerate(three[:2])])
        with router_process(folder, "--published", str(folder), "--check", "0") as router:
            steady = [
                ms for each in await asyncio.gather(*(calm(router.port, CALM_S) for _ in range(6))) for ms in each
            ]
            three[2].behave = warming(0.05, requests=200)
            publish(folder, 2, [(f"m/{n}", engine.url) for n, engine in enumerate(three)])
            joined = [
                ms for each in await asyncio.gather(*(calm(router.port, 20) for _ in range(6))) for ms in each
            ]
    before, after = (statistics.quantiles(took, n=20)[18] for took in (steady, joined))
    print(f"a cold replica joins two: p95 {before:.1f} ms before, {after:.1f} in the 20 s after; "
          f"{after / before:.2f} times (bar 1.5); it got {len(three[2].seen)} of {len(joined)} requests")  # fmt: skip


def large(folder: Path, generation: int) -> str:
    """The bench's file with 1,000 endpoints more, of other models."""
    value = json.loads((folder / "published" / "endpoints.json").read_text())
    if generation == 2:
        value["endpoints"] += [
            {
                "id": f"x{n}/0", "model": f"x{n // 10}", "profile": "p",
                "url": f"http://10.0.{n // 250}.{n % 250 + 1}:8000", "state": "ready", "node": f"n{n}", "spec": "s",
            }
            for n in range(1000)
        ]  # fmt: skip
    return json.dumps({**value, "generation": generation})


def reloads(folder: Path) -> None:
    """Longest delays of tokens over 256 streams, without and with a reload of 1,000 endpoints each second."""
    engine = pinned(1, [str(BUILD / "engine"), str(ENGINE_PORT), "50000", "50000", "50"])
    router = pinned(0, [*llmgw()(folder, FIRST_PORT, ENGINE_PORT), "--check", "0"], stderr=subprocess.DEVNULL)
    try:
        wait_for(FIRST_PORT, router)
        scenario = Scenario(256, 2.0, 8.0, tokens=40)
        still = load(FIRST_PORT, scenario, [router.pid])["delay_us"]
        words = [sys.executable, "-m", "tests.bench.router.events", "--publish", str(folder)]
        writer = pinned(1, words)
        moving = load(FIRST_PORT, scenario, [router.pid])["delay_us"]
        stop(writer)
        for what, one in (("no reloads", still), ("a reload a second", moving)):
            ms = {name: one[name] / 1e3 for name in ("p50", "p99", "max")}
            print(f"{what}: token delay p50 {ms['p50']:.2f}, p99 {ms['p99']:.2f}, longest {ms['max']:.1f} ms")
    finally:
        stop(router)
        stop(engine)


def keep_publishing(folder: Path) -> None:
    for generation in range(2, 100):
        write_whole(folder / "published" / "endpoints.json", large(folder, generation))
        time.sleep(1.1)


def main() -> None:
    if sys.argv[1:2] == ["--loud"]:
        asyncio.run(loud(int(sys.argv[2]), CALM_S + 2.0))
        return
    if sys.argv[1:2] == ["--publish"]:
        keep_publishing(Path(sys.argv[2]))
        return
    subprocess.run(["make", "-s", "-C", str(HERE)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(overload(Path(folder)))
    for work in (crowd, cold):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(work(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        reloads(Path(folder))


if __name__ == "__main__":
    main()
