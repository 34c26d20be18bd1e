"""The router as processes: workers, drain, hand-over, socket activation, TLS, Unix sockets, its command line."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llmgw.base import UsageError
from llmgw.cli.router import router_command, router_config
from llmgw.router.config import Policy, RouterConfig
from llmgw.serving.keys import digest_of
from tests.fakes.http_engine import FakeEngine, answers, engines, hangs, streams
from tests.fakes.router_process import ROOT, free_port, get, router_process
from tests.fakes.router_world import ask, chat, exchange, key_file, publish, read_answer, until, written

pytestmark = pytest.mark.slow


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


def static(engine: FakeEngine) -> tuple[str, ...]:
    return "--endpoint", f"m/0={engine.url}=m", "--check", "0"


def test_sigterm_finishes_what_is_under_way_and_takes_nothing_new(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(1, streams(40, every_s=0.05)) as (engine,):
            with await in_thread(lambda: router_process(tmp_path, *static(engine))) as router:
                stream = asyncio.ensure_future(ask(router.port, chat(stream=True)))
                await until(lambda: engine.seen)
                router.process.terminate()
                await in_thread(lambda: router.wait_for("router_draining"))
                with pytest.raises(OSError, match=r"\[Errno 111\]"):
                    await ask(router.port)
                answer = await stream
                assert answer.whole
                assert answer.events[-1] == "[DONE]"
                assert await in_thread(router.stop) == 0

    run(work())


def test_at_the_end_of_the_drain_streams_end_with_an_error_event(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(1, streams(4000, every_s=0.05)) as (engine,):
            with await in_thread(lambda: router_process(tmp_path, *static(engine), "--drain", "0.5")) as router:
                stream = asyncio.ensure_future(ask(router.port, chat(stream=True)))
                await until(lambda: engine.seen)
                router.process.terminate()
                answer = await stream
                assert answer.events[-1]["error"]["code"] == "router_stopping"
                assert not answer.whole
                assert await in_thread(router.stop) == 0

    run(work())


async def load(port: int, done: asyncio.Event, *, keep: bool) -> list[int]:
    """One client's requests, 25 a second, on a kept connection or each on its own; 0 for one that failed."""
    statuses: list[int] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not done.is_set():
        try:
            if keep:
                writer.write(written(chat()))
                answer = await read_answer(reader)
                if answer.headers.get("connection") == "close":
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
            else:
                answer = await ask(port)
            statuses.append(answer.status)
        except (OSError, asyncio.IncompleteReadError):
            statuses.append(0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.04)
    writer.close()
    return statuses


@pytest.mark.parametrize("workers", [1, 2])
def test_d12_a_restart_that_hands_its_sockets_over_fails_no_request(tmp_path: Path, workers: int) -> None:
    """100 requests a second, half of them on kept connections, and three restarts with a stream across each."""

    async def work() -> None:
        async with engines(1, answers(wait_s=0.02)) as (engine,):
            options = (*static(engine), "--handover", str(tmp_path / "door"))
            port, done = free_port(), asyncio.Event()
            old = router_process(tmp_path, *options, port=port, workers=workers)
            current = await in_thread(old.__enter__)
            tasks = [asyncio.ensure_future(load(port, done, keep=bool(n % 2))) for n in range(4)]
            for _ in range(3):
                await asyncio.sleep(0.5)
                engine.behave = streams(30, every_s=0.05)
                stream = asyncio.ensure_future(ask(port, chat(stream=True)))
                await until(lambda: any(seen.json.get("stream") for seen in engine.seen))
                engine.behave = answers(wait_s=0.02)
                new = router_process(tmp_path, *options, port=port, workers=workers)
                following = await in_thread(new.__enter__)
                assert await in_thread(lambda: current.process.wait(30)) == 0  # noqa: B023
                assert (await stream).events[-1] == "[DONE]"
                engine.seen.clear()
                old, current = new, following
            await asyncio.sleep(0.5)
            done.set()
            statuses = [status for part in await asyncio.gather(*tasks) for status in part]
            await in_thread(lambda: old.__exit__(None, None, None))
            assert set(statuses) == {200}, statuses.count(0)
            assert len(statuses) > 100

    run(work())


def test_status_counts_what_a_replaced_router_still_has_under_way(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(1, streams(60, every_s=0.05)) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            options = ("--published", str(tmp_path), "--handover", str(tmp_path / "door"), "--check", "0")
            port = free_port()
            with await in_thread(lambda: router_process(tmp_path, *options, port=port)) as old:
                stream = asyncio.ensure_future(ask(port, chat(stream=True)))
                await until(lambda: engine.seen)
                with await in_thread(lambda: router_process(tmp_path, *options, port=port)):
                    await in_thread(lambda: old.wait_for("router_draining"))
                    await asyncio.sleep(2.2)
                    status = json.loads((tmp_path / "endpoints.status").read_text())
                    assert status["in_flight"] == {"m/0": 1}
                    await stream
                    await until(
                        lambda: json.loads((tmp_path / "endpoints.status").read_text())["in_flight"]["m/0"] == 0, 9
                    )

    run(work())


def test_systemds_socket_is_used_and_never_closed(tmp_path: Path) -> None:
    """Started as systemd does it: LISTEN_FDS with descriptor 3, LISTEN_PID of the process itself."""
    main = (
        "import os, sys; fd = int(sys.argv.pop(1)); os.dup2(fd, 3);"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
        "from llmgw.cli.router import router_command; router_command()"
    )

    async def work() -> None:
        async with engines(1) as (engine,):
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                sock.listen(100)
                port = sock.getsockname()[1]
                python = (sys.executable, "-c", main, str(sock.fileno()))
                for _ in range(2):
                    start = lambda: router_process(  # noqa: E731
                        tmp_path, *static(engine), python=python, pass_fds=(sock.fileno(),), listen=False
                    )  # fmt: skip
                    waiting = asyncio.ensure_future(ask(port))
                    with await in_thread(start) as router:
                        assert (await waiting).status == 200, "what came while nobody listened is answered"
                        assert (await ask(port)).status == 200
                        assert await in_thread(router.stop) == 0

    run(work())


def test_workers_share_limits_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        key_file(
            tmp_path,
            {"id": "few", "digest": digest_of("few"), "tenant": "t", "requests_per_minute": 20},
            {"id": "slow", "digest": digest_of("slow"), "tenant": "t", "max_in_flight": 3},
            {"id": "all", "digest": digest_of("all"), "tenant": "t"},
        )
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)], max_in_flight=6)
            metrics = free_port()
            options = ("--published", str(tmp_path), "--check", "0", "--metrics-listen", f"127.0.0.1:{metrics}")
            options = (*options, "--queue-time", "0.5", "--reuse-port")
            with await in_thread(lambda: router_process(tmp_path, *options, workers=3)) as router:

                async def by(key: str, count: int) -> list[int]:
                    headers = {"Authorization": f"Bearer {key}"}
                    got = await asyncio.gather(*(ask(router.port, headers=headers) for _ in range(count)))
                    return [answer.status for answer in got]

                few = await by("few", 60)
                assert (few.count(200), few.count(429)) == (20, 40), "exact, whichever worker each came to"
                engine.behave = answers(wait_s=0.3)
                slow = await by("slow", 30)
                assert (slow.count(200), slow.count(429)) == (3, 27)
                engine.behave = hangs()
                engine.seen.clear()
                many = [asyncio.ensure_future(by("all", 1)) for _ in range(30)]
                await asyncio.sleep(0.4)
                assert 6 <= len(engine.seen) <= 6 + 2, "over all workers, but for two in the same instant"
                for task in many:
                    task.cancel()
                engine.behave = answers()
                await asyncio.gather(*many, return_exceptions=True)
                page = (await in_thread(lambda: get(f"http://127.0.0.1:{metrics}/metrics")))[1].decode()
                assert 'llmgw_tenant_requests_total{model="m",tenant="t"}' in page
                await until((tmp_path / "endpoints.status").exists)
                assert json.loads((tmp_path / "endpoints.status").read_text())["generation"] == 1
                children = subprocess.run(
                    ["pgrep", "-P", str(router.process.pid)], capture_output=True, text=True, check=True
                ).stdout.split()
                assert len(children) == 3
                await asyncio.sleep(1.0)
                os.kill(int(children[1]), 9)
                await in_thread(lambda: router.wait_for("router_serving", 4))
                assert set(await by("all", 20)) == {200}
                assert await in_thread(router.stop) == 0

    run(work())


def test_workers_that_cannot_start_end_the_router_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = (
        "--endpoint",
        "m/0=http://127.0.0.1:9=m",
        "--workers",
        "2",
        "--usage",
        str(tmp_path / "file" / "usage"),
    )
    text = "from llmgw.cli.router import router_command; router_command()"
    ended = subprocess.run(
        [sys.executable, "-c", text, *words, "--listen", f"127.0.0.1:{free_port()}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "the usage ledger cannot be opened" in ended.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         *names, *files],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"


def test_clients_and_engines_by_tls_and_a_unix_socket(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate

    async def work() -> None:
        async with engines(1, streams(5)) as (engine,):
            tls = ("--tls-cert", str(cert), "--tls-key", str(key))
            with await in_thread(lambda: router_process(tmp_path, *static(engine), *tls)) as inner:
                endpoint = (
                    "--endpoint",
                    f"m/0=https://127.0.0.1:{inner.port}=m",
                    "--engine-ca",
                    str(cert),
                    "--check",
                    "0",
                )
                path = str(tmp_path / "sock")
                outer_options = (*endpoint, "--listen", f"unix:{path}")
                with await in_thread(lambda: router_process(tmp_path, *outer_options)):
                    reader, writer = await asyncio.open_unix_connection(path)
                    writer.write(written(chat(stream=True)))
                    answer = await read_answer(reader)
                    assert answer.text == "t0 t1 t2 t3 t4 "
                    assert answer.events[-1] == "[DONE]"
                    writer.close()
                context = ssl.create_default_context(cafile=str(cert))
                reader, writer = await asyncio.open_connection("127.0.0.1", inner.port, ssl=context)
                writer.write(written(chat(stream=True)))
                assert (await read_answer(reader)).events[-1] == "[DONE]"
                writer.close()

    run(work())


def test_the_command_has_help_for_every_option() -> None:
    shown = CliRunner().invoke(router_command, ["--help"])
    assert shown.exit_code == 0
    assert all(getattr(option, "help", None) for option in router_command.params)
    start = time.monotonic()
    text = "import sys; import llmgw.cli.router; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=False).returncode == 0
    assert time.monotonic() - start < 30


def options(*words: str) -> RouterConfig:
    context = router_command.make_context("router", list(words))
    return router_config(**context.params)  # type: ignore[no-any-return]


def test_the_command_lines_words_become_the_configuration() -> None:
    config = options(
        "--endpoint", "a=http://h:1=m,n", "--policy", "prefix", "--max-body", "2", "--listen", "unix:/x"
    )
    assert (config.policy, config.limits.body, config.listen) == (Policy.PREFIX, 2 << 20, ("unix:/x",))
    assert (config.static[0].url, config.static[0].models) == ("http://h:1", ("m", "n"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to serve"),
        (("--endpoint", "x"), "no endpoint"),
        (("--endpoint", "a=http://h:1=m", "--admin-listen", "0.0.0.0:9"), "not loopback"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(*words)


def test_http_1_0_and_head_and_pipelining() -> None:
    from tests.fakes.router_world import QUIET, running
    from tests.fakes.router_world import static as made

    async def work() -> None:
        async with engines(1, streams(3)) as (engine,), running(QUIET, static=made([engine])) as world:
            old = await exchange(world.port, written(chat(stream=True), version="1.0"))
            assert "transfer-encoding" not in old.headers
            assert old.headers["connection"] == "close"
            assert (old.text, old.events[-1]) == ("t0 t1 t2 ", "[DONE]")
            head = await ask(world.port, method="HEAD", path="/v1/models")
            assert (head.status, head.body) == (200, b"")
            engine.behave = answers()
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(written(chat()) * 3 + written(None, method="GET", path="/health") + written(chat()))
            assert [(await read_answer(reader)).status for _ in range(5)] == [200] * 5
            writer.close()

    run(work())
