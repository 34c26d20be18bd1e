"""What guards the router: keys, headers, paths, logs, admin pages (E1 to E7), published files (A10, A11)."""

import asyncio
import gc
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from llmgw.base import LlmgwError
from llmgw.router.logs import JsonLines
from llmgw.serving.endpoints import EndpointsFile
from llmgw.serving.keys import digest_of, is_well_formed, make_key
from llmgw.store.files import write_whole
from llmgw.store.usage import UsageLedger
from tests.fakes.http_engine import answers, engines, streams
from tests.fakes.router_world import (
    QUIET,
    World,
    chat,
    exchange,
    key_file,
    publish,
    running,
    static,
    until,
    written,
)


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_e1_only_the_digest_of_a_key_opens_the_door_and_only_it_is_kept(tmp_path: Path) -> None:
    key = make_key(bytes(range(32)))
    assert is_well_formed(key)
    assert not is_well_formed(key[:-1] + "x")

    async def work() -> None:
        key_file(tmp_path, {"id": "k1", "digest": digest_of(key), "prefix": key[:10], "tenant": "t"})
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                assert (await world.ask(headers=bearer(key))).status == 200
                assert (await world.ask(headers={"x-api-key": key})).status == 200
                for wrong in ("' OR '1'='1", digest_of(key), key[:-1], "x" * 8000, "schlüssel", ""):
                    answer = await world.ask(headers=bearer(wrong))
                    assert (answer.status, answer.code) == (401, "invalid_api_key"), wrong
                assert (await world.ask()).code == "missing_api_key"
                assert (await exchange(world.port, written(chat(), headers=bearer("a\0b")))).status == 400
                assert len(engine.seen) == 2
        assert key not in (tmp_path / "keys.json").read_text()

    run(work())


def test_e1_an_expired_key_is_refused_and_a_key_opens_its_own_models_only(tmp_path: Path) -> None:
    async def work() -> None:
        old = {"id": "old", "digest": digest_of("old"), "tenant": "t", "expires": "2020-01-01T00:00:00Z"}
        other = {"id": "other", "digest": digest_of("other"), "tenant": "t", "models": ["cold"]}
        key_file(tmp_path, old, other)
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                assert (await world.ask(headers=bearer("old"))).status == 401
                answer = await world.ask(headers=bearer("other"))
                assert (answer.status, answer.code) == (404, "model_not_found")
                double = b'{"model":"m","messages":[],"model":"cold"}'
                assert (await world.ask(double, headers=bearer("other"))).status == 404
                escaped = b'{"\\u006dodel":"m","messages":[],"model":"cold"}'
                assert (await world.ask(escaped, headers=bearer("other"))).status == 404
                listed = await world.ask(method="GET", path="/v1/models", headers=bearer("other"))
                assert [model["id"] for model in listed.json["data"]] == ["cold"]
                assert not engine.seen

    run(work())


def test_e2_no_secret_is_compared_with_equals() -> None:
    root = Path(__file__).parents[1] / "llmgw"
    source = (root / "serving" / "keys.py").read_text() + (root / "router" / "admin.py").read_text()
    assert source.count("hmac.compare_digest") == 2
    for word in ("shown ==", "== shown", "token ==", "== token", "digest =="):
        assert word not in source


def test_e3_no_key_and_no_prompt_gets_into_logs_or_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, prompt = "sk-CANARY-0123456789", "CANARY-PROMPT"
    caplog.set_level(logging.DEBUG)
    log_file = tmp_path / "access.log"

    async def work() -> list[bytes]:
        key_file(tmp_path, {"id": "k", "digest": digest_of(key), "tenant": "t"})
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path, access_log=str(log_file)) as world:
                body = json.dumps(chat(extra=prompt)).encode()
                good = written(chat(extra=prompt), headers=bearer(key))
                tries = [
                    good,
                    good.replace(b"Authorization:", b"Authorization :"),
                    good.replace(b"Bearer ", b"Bearer \x01"),
                    good.replace(key.encode(), key.encode() * 2000),
                    written(body, path=f"/v1/chat/completions?api_key={key}"),
                    written(body, path=f"/v1/{key}", headers=bearer(key)),
                    written(body[:-1], headers=bearer(key)),
                    written({"model": "\x1b]0;x\x07", "messages": prompt}, headers=bearer(key)),
                    written(chat(extra=prompt), headers=bearer(key + "x")),
                ]
                bodies = [(await exchange(world.port, data)).body for data in tries]
                await asyncio.sleep(0.4)
                return bodies

    bodies = asyncio.run(work())
    lines = [JsonLines().format(record) for record in caplog.records]
    assert log_file.read_text().count("\n") >= 3
    for text in (*map(repr, bodies[1:]), *lines, log_file.read_text()):
        assert "CANARY" not in text
        assert "\x1b" not in text
    assert all(line.isascii() for line in lines)


FORBIDDEN = (
    "/invocations", "/pause", "/update_weights", "/metrics", "/status", "/sleep", "/abort_requests", "/slots",
    "/v1/../admin", "/v1/%2e%2e/admin", "/v1/chat/completions/", "/v1//chat/completions", "/V1/chat/completions",
    "/v1/chat%2fcompletions", "/v1/chat/completions%00", "/v1/chat/completions;a", "/v1/chat/completions%20",
    "//v1/chat/completions", "/.%2fv1/chat/completions", "/v1/load_lora_adapter", "/collective_rpc", "/tokenize",
    "/login", "/api/v1/reload", "/v1/models/../../metrics", "http://r/v1/chat/completions", "*",
)  # fmt: skip


@pytest.mark.parametrize("path", FORBIDDEN)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_e4_paths_that_are_not_on_the_list_never_reach_an_engine(path: str, method: str) -> None:
    async def work() -> None:
        async with engines(1) as (engine,), running(QUIET, static=static([engine])) as world:
            answer = await world.ask(chat(), path=path, method=method)
            assert answer.status in (400, 404, 405)
            assert (engine.connections, engine.probes) == (0, 0)

    run(work())


def test_e5_an_engine_sees_none_of_a_clients_headers_but_those_on_the_list(tmp_path: Path) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    forged = {
        "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Host": "evil", "Forwarded": "for=6.6.6.6", "X_Tenant": "root",
        "X-Tenant": "root", "Connection": "X-Auth, keep-alive", "X-Auth": "1", "Cookie": "a=b", "Host": "evil",
        "Proxy-Authorization": "x", "TE": "trailers", "X-Data-Parallel-Rank": "3", "X-Real-IP": "6.6.6.6",
        "Authorization": "Bearer client", "traceparent": trace, "tracestate": "v=1", "X-Request-Id": "mine-1",
        "Accept": "text/event-stream",
    }  # fmt: skip

    async def work() -> None:
        key_file(tmp_path, {"id": "k", "digest": digest_of("client"), "tenant": "sales"})
        engine_keys = {"format": "llmgw-engine-keys/1", "keys": {"m/0": "engine-secret"}}
        (tmp_path / "engine-keys.json").write_text(json.dumps(engine_keys))
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                answer = await world.ask(headers=forged)
                assert engine.seen[0].headers == {
                    "host": f"127.0.0.1:{engine.port}",
                    "authorization": "Bearer engine-secret",
                    "content-type": "application/json",
                    "content-length": str(len(engine.seen[0].body)),
                    "traceparent": trace,
                    "tracestate": "v=1",
                    "x-request-id": "mine-1",
                }
                assert answer.headers["x-request-id"] == "mine-1"
                assert "server" not in answer.headers
                (name,) = world.router.tallies.accounts
                assert name[:2] == ("sales", "k")
                bad = {
                    "traceparent": "00-zz",
                    "tracestate": "v=1",
                    "X-Request-Id": "a b",
                    "Authorization": "Bearer client",
                }
                await world.ask(headers=bad)
                assert "traceparent" not in engine.seen[1].headers
                assert "tracestate" not in engine.seen[1].headers
                assert engine.seen[1].headers["x-request-id"].startswith("req-")

    run(work())


def test_e6_other_sites_cannot_use_an_admins_browser(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("the-token\n")

    async def work() -> None:
        async with engines(1) as one, running(QUIET, static=static(one), admin_token_file=token) as world:
            base = f"http://127.0.0.1:{world.admin}"
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as browser:
                assert (await browser.get(f"{base}/status")).status == 401
                assert (await browser.post(f"{base}/login", json={"token": "wrong"})).status == 403
                first = await browser.post(f"{base}/login", json={"token": "the-token"})
                cookie = first.headers["Set-Cookie"]
                assert "HttpOnly" in cookie
                assert "SameSite=Strict" in cookie
                old = jar.filter_cookies(URL(base))["llmgw_session"].value
                assert (await browser.get(f"{base}/status")).status == 200
                for headers, kwargs in (
                    ({"Sec-Fetch-Site": "cross-site"}, {"json": {}}),
                    ({"Origin": "https://evil.example"}, {"json": {}}),
                    ({}, {"data": "a=b", "headers": {"Content-Type": "text/plain"}}),
                    ({}, {"data": {"a": "b"}}),
                ):
                    more = {**kwargs, "headers": {**kwargs.get("headers", {}), **headers}}
                    refused = await browser.post(f"{base}/api/v1/reload", **more)  # type: ignore[arg-type]
                    assert refused.status == 403, (headers, kwargs)
                same = await browser.post(
                    f"{base}/api/v1/reload", json={}, headers={"Sec-Fetch-Site": "same-origin"}
                )
                assert same.status == 200
                await browser.post(f"{base}/login", json={"token": "the-token"})
                stale = {"Cookie": f"llmgw_session={old}"}
            async with aiohttp.ClientSession() as thief:
                assert (await thief.get(f"{base}/status", headers=stale)).status == 401, (
                    "a new login ends the old one"
                )
                tries = [(await thief.post(f"{base}/login", json={"token": str(n)})).status for n in range(6)]
                assert tries[-1] == 429

    run(work())


def test_e7_the_public_port_has_no_admin_pages_and_the_admin_port_knows_its_names() -> None:
    async def work() -> None:
        async with engines(1) as one, running(QUIET, static=static(one)) as world:
            for path in ("/status", "/metrics", "/login", "/api/v1/fabrics", "/api/v1/reload"):
                forged = {"X-Forwarded-For": "127.0.0.1", "Host": "localhost"}
                assert (await world.ask(method="GET", path=path, headers=forged)).status == 404
            base = f"http://127.0.0.1:{world.admin}"
            async with aiohttp.ClientSession() as client:
                assert (await client.get(f"{base}/status")).status == 200
                rebound = {"Host": "evil.example", "X-Forwarded-For": "127.0.0.1"}
                assert (await client.get(f"{base}/status", headers=rebound)).status == 403
                assert (await client.get(f"http://127.0.0.1:{world.metrics}/status")).status == 404

    run(work())


_WRITER = """
import sys
from collections import Counter
from pathlib import Path
from llmgw.store.files import write_whole
path, generation = Path(sys.argv[1]), int(sys.argv[2])
while True:
    generation += 1
    text = '{"format":"llmgw-endpoints/1","generation":%d,"written":"2026-12-01T00:00:00Z","endpoints":[%s]}' % (
        generation, ",".join(
            '{"id":"m/%d","model":"m","profile":"p","url":"http://10.0.0.1:%d","state":"ready","node":"n","spec":"s"}'
            % (n, 1000 + n) for n in range(50)))
    write_whole(path, text)
    print(generation, flush=True)
"""


@pytest.mark.slow
def test_a10_a_file_that_is_replaced_whole_is_never_seen_in_parts(tmp_path: Path) -> None:
    """A thousand rewrites by writers that are killed at any moment; a reader at about 1 kHz."""
    path = tmp_path / "endpoints.json"
    rnd, last, written_so_far, reads = random.Random(3), 0, 0, 0
    while written_so_far < 1000:
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline()
        stop = time.monotonic() + rnd.uniform(0.05, 0.4)
        while time.monotonic() < stop:
            generation = EndpointsFile.read(path.read_bytes(), "endpoints.json").generation
            assert generation >= last
            last, reads = generation, reads + 1
            time.sleep(0.001)
        writer.kill()
        lines = writer.stdout.read().split("\n")
        writer.wait()
        written_so_far += len(lines)
        after = EndpointsFile.read(path.read_bytes(), "endpoints.json").generation
        assert after >= last
        last = after
    assert reads > 100


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "cut": b'{"format":"llmgw-endpoints/1","generation":9,"writ',
    "no json": b"\x00\xff\xfe" * 100,
    "unknown field": b'{"format":"llmgw-endpoints/1","generation":9,"written":"2026-12-01T00:00:00Z","x":1}',
    "another format": b'{"format":"llmgw-endpoints/2","generation":9,"written":"2026-12-01T00:00:00Z"}',
    "older": b'{"format":"llmgw-endpoints/1","generation":1,"written":"2026-12-01T00:00:00Z"}',
    "too deep": b"[" * 200_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a11_a_broken_file_is_kept_out_and_the_last_good_one_stays(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with engines(1) as (engine,):
            publish(tmp_path, 5, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                write_whole(tmp_path / "endpoints.json", "")
                (tmp_path / "endpoints.json").write_bytes(BROKEN[name])
                await until(lambda: world.router.problem)
                await asyncio.sleep(0.3)
                assert (await world.ask()).status == 200
                ready = await world.ask(method="GET", path="/ready")
                assert (ready.status, ready.json["status"], ready.json["generation"]) == (200, "stale", 5)
                page = await metrics(world)
                assert "llmgw_router_stale 1.0" in page
                publish(tmp_path, 6, [("m/0", engine.url)])
                await until(lambda: world.router.catalog.generation == 6)
                assert (await world.ask(method="GET", path="/ready")).json["status"] == "ready"

    run(work())
    refused = [record for record in caplog.records if record.message == "endpoints_refused"]
    assert 1 <= len(refused) <= 2, "one line for each problem, however often it is looked at"


async def metrics(world: World) -> str:
    async with aiohttp.ClientSession() as client:
        answer = await client.get(f"http://127.0.0.1:{world.metrics}/metrics")
        return await answer.text()


def test_a11_a_file_that_could_not_be_read_is_read_again_though_it_has_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with engines(1) as (engine,):
            publish(tmp_path, 5, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                (tmp_path / "next").symlink_to("/proc/self/mem")  # whose first page gives EIO
                (tmp_path / "next").rename(tmp_path / "endpoints.json")
                refused = world.router.tallies.reloads
                await until(lambda: refused.get("endpoints_refused", 0) > 2)
                assert (await world.ask()).status == 200

    run(work())
    assert [record.message for record in caplog.records].count("endpoints_refused") == 1


def test_a_pipe_in_a_files_place_does_not_stop_the_router(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(1) as (engine,):
            publish(tmp_path, 5, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                os.mkfifo(tmp_path / "next")
                (tmp_path / "next").rename(tmp_path / "endpoints.json")
                await until(lambda: world.router.problem)
                assert (await world.ask()).status == 200

    run(work())


def test_e2_an_admin_token_file_without_a_token_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")

    async def work() -> None:
        async with running(QUIET, static=static([]), admin_token_file=tmp_path / "token"):
            pass

    with pytest.raises(LlmgwError, match="holds no admin token"):
        run(work())


def test_a_handover_never_takes_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "door").write_text("mine")

    async def work() -> None:
        async with running(QUIET, static=static([]), handover=tmp_path / "door"):
            pass

    with pytest.raises(LlmgwError, match="is no socket"):
        run(work())
    assert (tmp_path / "door").read_text() == "mine"


def test_a11_a_file_that_is_not_there_at_all_makes_the_router_unready_and_not_dead(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(1) as (engine,), running(QUIET, published=tmp_path) as world:
            assert (await world.ask(method="GET", path="/ready")).status == 503
            assert (await world.ask()).status == 404
            publish(tmp_path, 1, [("m/0", engine.url)])
            await until(lambda: world.router.catalog.generation == 1)
            assert (await world.ask()).status == 200

    run(work())


def test_endpoints_of_the_command_line_are_served_whether_there_is_a_file_or_not(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(2) as (given, published), running(
            QUIET, published=tmp_path, static=static([given], models=("own",))
        ) as world:  # fmt: skip
            assert (await world.ask(chat() | {"model": "own"})).status == 200
            publish(tmp_path, 0, [("m/0", published.url)])
            await until(lambda: "m" in world.router.backends.groups)
            assert (await world.ask()).status == 200
            assert (await world.ask(chat() | {"model": "own"})).status == 200

    run(work())


def test_a_broken_key_file_lets_nobody_in_where_there_was_none_before(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "keys.json").write_text("{")
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path) as world:
                assert (await world.ask(headers=bearer("any"))).status == 401
                key_file(tmp_path, {"id": "k", "digest": digest_of("good"), "tenant": "t"})
                await until(lambda: world.router.keys.by_digest)
                assert (await world.ask(headers=bearer("good"))).status == 200
                (tmp_path / "keys.json").write_text("{")
                await asyncio.sleep(0.3)
                assert (await world.ask(headers=bearer("good"))).status == 200, "the last good one stays"

    run(work())


def test_status_metrics_and_ledger_tell_what_was_done(tmp_path: Path) -> None:
    ledger = tmp_path / "usage.sqlite"

    async def work() -> None:
        key_file(tmp_path, {"id": "k", "digest": digest_of("good"), "tenant": "sales"})
        async with engines(1, streams(4, every_s=0.2)) as (engine,):
            publish(tmp_path, 3, [("m/0", engine.url)])
            async with running(QUIET, published=tmp_path, usage=ledger) as world:
                stream = asyncio.ensure_future(world.ask(chat(stream=True), headers=bearer("good")))
                await until(lambda: engine.seen)
                await until(lambda: status()["in_flight"] == {"m/0": 1})
                assert (status()["generation"], status()["format"]) == (3, "llmgw-endpoints-status/1")
                answer = await stream
                assert answer.text == "t0 t1 t2 t3 "
                assert all("usage" not in event for event in answer.events if event != "[DONE]")
                await until(lambda: status()["in_flight"] == {"m/0": 0})
                page = await metrics(world)
                assert 'llmgw_tokens_total{kind="completion",model="m",tenant="sales"} 4.0' in page
                wanted = 'llmgw_requests_total{endpoint="m/0",model="m",operation="chat",outcome="ok"} 1.0'
                assert wanted in page
                assert (
                    'llmgw_time_to_first_token_seconds_count{endpoint="m/0",model="m",operation="chat"} 1.0'
                    in page
                )

    def status() -> Any:
        path = tmp_path / "endpoints.status"
        return json.loads(path.read_text()) if path.exists() else {"in_flight": None}

    run(work())
    (row,) = UsageLedger(ledger).totals(since=0, until=1 << 40, by=("tenant", "model"))
    assert (row.tenant, row.model, row.requests, row.failed) == ("sales", "m", 1, 0)
    assert (row.prompt, row.completion, row.estimated) == (7, 4, 0)
    assert ledger.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".endpoints.status.*")), "no part is left behind"


def test_nothing_of_a_finished_request_waits_for_the_garbage_collector() -> None:
    """Streams, answers, refusals and clients that leave, each on its own connection, with the collector off."""

    async def work() -> None:
        async with engines(1, streams(3)) as (engine,), running(QUIET, static=static([engine])) as world:
            gc.collect()
            gc.disable()
            for _ in range(10):
                await world.ask(chat(stream=True))
                await world.ask(chat(model="nope"))
                await world.ask(path="/nope")
                _, writer = await asyncio.open_connection("127.0.0.1", world.port)
                writer.write(written(chat(stream=True)))
                await until(lambda: engine.seen)
                writer.close()
            await until(lambda: not world.router.fronts)
            engine.behave = answers()
            for _ in range(5):
                await world.ask()
            await until(lambda: not world.router.fronts)
            await asyncio.sleep(0.1)
            ours = Counter(type(one).__name__ for one in gc.get_objects())
            gc.enable()
            backends = world.router.backends.by_url.values()
            kept = sum(len(backend.idle) + len(backend.resting) for backend in backends)
            assert ours["Exchange"] == ours["Request"] == ours["EventStream"] == ours["Front"] == 0
            assert ours["Upstream"] == kept

    run(work())
