"""Limits that several routers share, in a real Redis server."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw.router.valkey import ValkeyLimits
from llmgw.serving.faults import Fault
from llmgw.serving.keys import Caller, digest_of
from llmgw.serving.limits import Ticket
from tests.fakes.http_engine import answers, completion, engines
from tests.fakes.router_process import free_port
from tests.fakes.router_world import QUIET, key_file, publish, running, until

SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
pytestmark = pytest.mark.skipif(SERVER is None, reason="neither valkey-server nor redis-server is installed")


def run(work: Any) -> None:
    pytest.importorskip("redis", reason="the extra llmgw[valkey] is not installed")
    asyncio.run(asyncio.wait_for(work, 60))


class Server:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert SERVER
        words = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if subprocess.run(
                ["redis-cli", "-p", str(self.port), "ping"], capture_output=True, check=False
            ).stdout:
                return
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    made.stop()


def test_two_routers_share_requests_per_minute_and_parallel_requests(server: Server, tmp_path: Path) -> None:
    async def work() -> None:
        key_file(
            tmp_path,
            {"id": "few", "digest": digest_of("few"), "tenant": "t", "requests_per_minute": 10},
            {"id": "slow", "digest": digest_of("slow"), "tenant": "t", "max_in_flight": 2},
        )
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            both: dict[str, Any] = {"published": tmp_path, "valkey": server.url, "valkey_timeout_s": 10.0}
            async with running(QUIET, **both) as one, running(QUIET, **both) as other:

                async def by(key: str, count: int) -> list[int]:
                    headers = {"Authorization": f"Bearer {key}"}
                    got = await asyncio.gather(
                        *(world.ask(headers=headers) for world in (one, other) for _ in range(count))
                    )
                    return [answer.status for answer in got]

                few = await by("few", 15)
                assert (few.count(200), few.count(429)) == (10, 20)
                engine.behave = answers(wait_s=0.5)
                slow = await by("slow", 5)
                assert (slow.count(200), slow.count(429)) == (2, 8)
                assert (await by("slow", 1)) == [200, 200], "what was given back can be taken again"

    run(work())


def test_tokens_are_reserved_and_settled_on_the_server(server: Server) -> None:
    async def work() -> None:
        limits, other = ValkeyLimits(server.url, timeout_s=10.0), ValkeyLimits(server.url, timeout_s=10.0)
        caller = Caller("k", "t", tokens_per_minute=100)
        first = await limits.enter(caller, 60)
        assert isinstance(first, Ticket)
        refused = await other.enter(caller, 60)
        assert isinstance(refused, Fault)
        assert refused.code == "tokens_per_minute"
        assert refused.retry_after is not None
        assert 1 <= refused.retry_after <= 60
        limits.leave(first, 20)
        await asyncio.sleep(0.1)
        assert isinstance(await other.enter(caller, 60), Ticket)
        assert isinstance(await limits.enter(caller, 60), Fault)
        await limits.close()
        await other.close()

    run(work())


def test_a_router_that_died_counts_no_longer(server: Server) -> None:
    async def work() -> None:
        caller = Caller("k", "t", max_in_flight=1)
        dead, alive = ValkeyLimits(server.url, timeout_s=10.0), ValkeyLimits(server.url, timeout_s=10.0)
        await dead.beat()
        assert isinstance(await dead.enter(caller, 0), Ticket)
        assert isinstance(await alive.enter(caller, 0), Fault)
        subprocess.run(
            ["redis-cli", "-p", str(server.port), "del", f"llmgw:alive:{dead._router}"],
            check=True,
            capture_output=True,
        )
        assert isinstance(await alive.enter(caller, 0), Ticket)

    run(work())


def test_without_the_server_each_router_counts_for_itself(server: Server, tmp_path: Path) -> None:
    async def work() -> None:
        few = {"id": "few", "digest": digest_of("few"), "tenant": "t", "requests_per_minute": 5}
        key_file(tmp_path, few)
        headers = {"Authorization": "Bearer few"}
        async with engines(1, answers(completion())) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path, valkey=server.url) as world:
                assert (await world.ask(headers=headers)).status == 200
                server.stop()
                got = [(await asyncio.wait_for(world.ask(headers=headers), 3)).status for _ in range(10)]
                assert got == [200] * 5 + [429] * 5
                assert world.router.remote_limits is not None
                assert world.router.remote_limits.failures >= 1
                server.start()
                await until(lambda: engine.seen)
                await world.router.remote_limits.beat()
                assert (await world.ask(headers=headers)).status == 200, "the server's numbers count again"

    run(work())
