"""The router under faults, D1 to D17: real sockets, and engines and clients that misbehave."""

import asyncio
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw.router.tallies import Account
from llmgw.serving.keys import digest_of
from tests.fakes.http_engine import (
    FakeEngine,
    Seen,
    Wire,
    answers,
    completion,
    dies,
    engines,
    hangs,
    reply,
    streams,
)
from tests.fakes.router_world import (
    QUIET,
    World,
    chat,
    exchange,
    key_file,
    publish,
    read_answer,
    running,
    static,
    until,
    written,
)


def run(work: object) -> None:
    asyncio.run(asyncio.wait_for(work, 60))  # type: ignore[arg-type]


def account(world: World) -> Account:
    """The only account there is."""
    (found,) = world.router.tallies.accounts.values()
    return found


async def refusing() -> FakeEngine:
    """An engine whose port nobody listens on."""
    engine = await FakeEngine().start()
    await engine.stop()
    engine.url = f"http://127.0.0.1:{await free_port()}"
    return engine


async def free_port() -> int:
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return int(port)


def test_d1_a_refused_connection_is_retried_elsewhere_and_no_client_sees_it() -> None:
    async def work() -> None:
        dead = await refusing()
        async with engines(2) as alive, running(QUIET, static=static([dead, *alive])) as world:
            got = [await world.ask() for _ in range(30)]
            assert [answer.status for answer in got] == [200] * 30
            assert sum(len(engine.seen) for engine in alive) == 30
            assert world.router.tallies.retries["unreachable"] <= 5, "after five in a row it is out"

    run(work())


def test_d2_an_engine_that_read_the_request_and_died_gets_no_second_attempt() -> None:
    async def work() -> None:
        async with engines(2, dies()) as both, running(QUIET, static=static(both)) as world:
            answer = await world.ask()
            assert (answer.status, answer.code) == (502, "engine_disconnected")
            assert sum(len(engine.seen) for engine in both) == 1

    run(work())


def test_d2_an_engine_that_died_on_a_kept_connection_gets_no_second_attempt_either() -> None:
    async def work() -> None:
        async with engines(1) as (engine,), running(QUIET, static=static([engine])) as world:
            assert (await world.ask()).status == 200
            engine.behave = dies()
            answer = await world.ask()
            assert (answer.status, len(engine.seen), engine.connections) == (502, 2, 1)

    run(work())


def test_a_kept_connection_that_the_engine_closed_meanwhile_costs_no_request() -> None:
    """The FIN acknowledges nothing of the request, so no engine can have read it: it goes out once more."""

    async def work() -> None:
        async with engines(1) as (engine,), running(QUIET, static=static([engine])) as world:

            async def closes_after(wire: Wire, _: Seen) -> None:
                await wire.send(reply(200, completion()))
                wire.writer.close()

            engine.behave = closes_after
            got = [await world.ask() for _ in range(20)]
            assert [answer.status for answer in got] == [200] * 20

    run(work())


def test_an_engine_that_closes_late_after_each_stream_costs_no_request() -> None:
    """llama-server's way: it promises to keep the connection, and closes it a moment after the stream."""

    async def work() -> None:
        stream = streams(3)

        async def closes_late(wire: Wire, seen: Seen) -> None:
            await stream(wire, seen)
            await asyncio.sleep(0.05)
            wire.die()

        async with engines(1, closes_late) as (engine,), running(QUIET, static=static([engine])) as world:
            got = [await world.ask(chat(stream=True)) for _ in range(20)]
            assert [(answer.status, answer.events[-1]) for answer in got] == [(200, "[DONE]")] * 20
            assert engine.connections == 20

    run(work())


def test_an_engine_that_keeps_connections_after_streams_is_found_out_and_believed() -> None:
    async def work() -> None:
        async with engines(1, streams(3)) as (engine,), running(QUIET, static=static([engine])) as world:
            first = [await world.ask(chat(stream=True)) for _ in range(3)]
            assert engine.connections == 3, "connections rest until one has outlived its rest"
            (backend,) = world.router.backends.by_url.values()
            await until(lambda: backend.keeps_streams)
            more = [await world.ask(chat(stream=True)) for _ in range(5)]
            assert [answer.status for answer in first + more] == [200] * 8
            assert engine.connections == 3
            engine.behave = dies()
            assert (await world.ask(chat(stream=True))).status == 502
            assert not backend.keeps_streams, "one lost request is enough to be careful again"

    run(work())


@pytest.mark.parametrize("status", [429, 503])
def test_d3_what_an_overloaded_engine_says_is_passed_on_and_not_retried(status: int) -> None:
    async def work() -> None:
        busy = answers(b'{"error":"busy"}', status=status, more="retry-after: 7\r\n")
        async with engines(2, busy) as both, running(QUIET, static=static(both)) as world:
            answer = await world.ask()
            assert (answer.status, answer.headers["retry-after"], answer.json) == (status, "7", {"error": "busy"})
            assert sum(len(engine.seen) for engine in both) == 1

    run(work())


def test_d3_an_engine_that_says_it_has_not_started_is_passed_over_within_the_budget() -> None:
    loading = json.dumps(
        {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    ).encode()

    async def work() -> None:
        async with engines(2) as both, running(QUIET, static=static(both)) as world:
            both[0].behave = answers(loading, status=503)
            assert [(await world.ask()).status for _ in range(4)] == [200] * 4
            both[1].behave = answers(loading, status=503)
            world.router.rules = replace(world.router.rules, consecutive=1000)
            for engine in both:
                engine.seen.clear()
            got = [await world.ask() for _ in range(100)]
            assert {answer.status for answer in got} == {503}
            attempts = sum(len(engine.seen) for engine in both)
            assert 100 < attempts <= 100 + 3 + 0.2 * 104 + 1, attempts
            assert all(answer.json["error"]["message"] == "Loading model" for answer in got)

    run(work())


def test_d4_an_engine_that_dies_in_a_stream_ends_it_with_an_error_event() -> None:
    async def work() -> None:
        async def die(wire: Wire, _: Seen) -> None:
            wire.die()

        async with engines(2, streams(6, then=die)) as both, running(QUIET, static=static(both)) as world:
            answer = await world.ask(chat(stream=True))
            assert answer.status == 200
            assert answer.text == "t0 t1 t2 t3 t4 t5 "
            assert answer.events[-1]["error"]["code"] == "engine_disconnected"
            assert "[DONE]" not in answer.events
            assert not answer.whole
            assert sum(len(engine.seen) for engine in both) == 1
            assert (account(world).completion, account(world).failed) == (6, 1)

    run(work())


@pytest.mark.parametrize("ending", [b"0\r\n\r\n", b"", b'40\r\ndata: {"half'])
def test_d4_a_stream_that_ends_without_done_is_a_failure_however_it_ends(ending: bytes) -> None:
    async def work() -> None:
        async def end(wire: Wire, _: Seen) -> None:
            await wire.send(ending)
            wire.writer.close()

        async with engines(1, streams(3, then=end)) as one, running(QUIET, static=static(one)) as world:
            answer = await world.ask(chat(stream=True))
            assert answer.text == "t0 t1 t2 "
            assert answer.events[-1]["error"]["code"] == "engine_disconnected"
            assert not answer.whole

    run(work())


def test_d4_anthropics_dialect_gets_its_own_error_event() -> None:
    async def work() -> None:
        async def die(wire: Wire, _: Seen) -> None:
            wire.die()

        async with engines(1, streams(2, then=die)) as one, running(QUIET, static=static(one)) as world:
            answer = await world.ask({"model": "m", "stream": True}, path="/v1/messages")
            assert b'event: error\ndata: {"type": "error", "error": {"type": "api_error"' in answer.body

    run(work())


@pytest.mark.parametrize("stream", [True, False])
def test_d5_a_client_that_leaves_before_the_first_byte_frees_the_engine_within_a_second(stream: bool) -> None:
    async def work() -> None:
        async with engines(1, hangs()) as (engine,), running(QUIET, static=static([engine])) as world:
            _, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(written(chat(stream=stream)))
            await until(lambda: engine.seen)
            writer.transport.abort()
            assert await until(engine.seen[0].gone.is_set) < 1.0
            await until(lambda: not world.router.exchanges)
            assert [b.in_flight for b in world.router.backends.by_url.values()] == [0]

    run(work())


def test_d6_a_client_that_leaves_in_mid_stream_frees_the_engine_and_pays_for_what_came() -> None:
    async def work() -> None:
        async with (
            engines(1, streams(500, every_s=0.02)) as (engine,),
            running(QUIET, static=static([engine])) as world,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(written(chat(stream=True)))
            await reader.readuntil(b"t4 ")
            writer.close()
            assert await until(engine.seen[0].gone.is_set) < 1.0
            await until(lambda: not world.router.exchanges)
            paid = account(world)
            assert 5 <= paid.completion <= 12
            assert paid.estimated == paid.prompt + paid.completion > 0

    run(work())


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_d7_client_errors_never_eject_an_endpoint(status: int) -> None:
    async def work() -> None:
        async with engines(2, answers(b"{}", status=status)) as both, running(QUIET, static=static(both)) as world:
            got = [await world.ask() for _ in range(125)]
            assert {answer.status for answer in got} == {status}
            assert not world.router.tallies.ejections
            assert all(len(engine.seen) > 50 for engine in both)

    run(work())


def test_d8_an_endpoint_that_fails_five_times_in_a_row_is_out_and_comes_back_by_a_probe() -> None:
    async def work() -> None:
        async with (
            engines(4) as all_four,
            running(QUIET, static=static(all_four), check_s=0.05, slow_start_s=0.0) as world,
        ):
            world.router.rules = replace(world.router.rules, base_s=0.5)
            bad = all_four[0]
            bad.behave, bad.healthy = answers(b"{}", status=500), False
            for _ in range(60):
                await world.ask()
            failed = sum(seen.body != b"" for seen in bad.seen)
            assert world.router.tallies.ejections == {bad.url: 1}
            assert failed <= 6
            bad.behave, bad.healthy = answers(), True
            seen = len(bad.seen)
            await until(lambda: not world.router.backends.by_url[bad.url].held, 5.0)
            for _ in range(40):
                await world.ask()
            assert len(bad.seen) > seen + 1, "it takes requests again, beyond the probe's one token"

    run(work())


def test_d8_never_more_than_half_are_out_and_each_time_takes_longer() -> None:
    async def work() -> None:
        async with (
            engines(4, answers(b"{}", status=500)) as all_four,
            running(QUIET, static=static(all_four)) as world,
        ):
            for _ in range(200):
                assert (await world.ask()).status == 500
            out = [b for b in world.router.backends.by_url.values() if b.is_out(world.router.time())]
            assert len(out) == 2

    run(work())


def test_d9_with_every_endpoint_failing_a_client_gets_a_reason_and_never_waits() -> None:
    async def work() -> None:
        dead = [await refusing() for _ in range(3)]
        async with running(QUIET, static=static(dead)) as world:
            for _ in range(20):
                answer = await asyncio.wait_for(world.ask(), 2.0)
                assert (answer.status, answer.code) == (503, "engine_unreachable")
                assert int(answer.headers["retry-after"]) >= 1

    run(work())


def test_d10_a_newly_joined_endpoint_gets_a_growing_part(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(3, answers(wait_s=0.02)) as three:
            publish(tmp_path, 1, [("m/0", three[0].url), ("m/1", three[1].url)])
            async with running(QUIET, published=tmp_path, slow_start_s=3.0) as world:
                publish(tmp_path, 2, [(f"m/{n}", engine.url) for n, engine in enumerate(three)])
                await until(lambda: world.router.catalog.generation == 2)
                early = await shares(world, three, 120)
                await asyncio.sleep(3.0)
                late = await shares(world, three, 120)
                assert early[2] < 30, early
                assert 25 < late[2] < 55, late

    async def shares(world: World, three: list[FakeEngine], count: int) -> list[int]:
        for engine in three:
            engine.seen.clear()
        for _ in range(count // 12):
            await asyncio.gather(*(world.ask() for _ in range(12)))
        return [len(engine.seen) for engine in three]

    run(work())


def test_d11_streams_outlive_an_endpoint_that_is_dropped_from_the_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(2, streams(30, every_s=0.03)) as (old, new):
            publish(tmp_path, 1, [("m/0", old.url)])
            async with running(QUIET, published=tmp_path) as world:
                under_way = [asyncio.ensure_future(world.ask(chat(stream=True))) for _ in range(100)]
                await until(lambda: len(old.seen) == 100)
                publish(tmp_path, 2, [("m/0", new.url)])
                await until(lambda: world.router.catalog.generation == 2)
                more = [asyncio.ensure_future(world.ask(chat(stream=True))) for _ in range(5)]
                finished = await asyncio.gather(*under_way, *more)
                assert all(answer.whole and answer.events[-1] == "[DONE]" for answer in finished)
                assert (len(old.seen), len(new.seen)) == (100, 5)

    run(work())


def test_d11_at_the_drain_limit_the_rest_end_with_an_error_event(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(2, streams(2000, every_s=0.02)) as (old, new):
            publish(tmp_path, 1, [("m/0", old.url)])
            deadlines = replace(QUIET.deadlines, dropped_s=0.5)
            async with running(QUIET, published=tmp_path, deadlines=deadlines) as world:
                stream = asyncio.ensure_future(world.ask(chat(stream=True)))
                await until(lambda: old.seen)
                publish(tmp_path, 2, [("m/0", new.url)])
                answer = await asyncio.wait_for(stream, 5)
                assert answer.events[-1]["error"]["code"] == "engine_withdrawn"
                assert "[DONE]" not in answer.events

    run(work())


def test_d12_a_thousand_reloads_under_load_fail_no_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with engines(2) as both:
            names = [("m/0", both[0].url), ("m/1", both[1].url)]
            publish(tmp_path, 1, names)
            async with running(QUIET, published=tmp_path, poll_s=0.002) as world:
                statuses: list[int] = []
                done = asyncio.Event()

                async def load() -> None:
                    while not done.is_set():
                        statuses.append((await world.ask()).status)
                        await asyncio.sleep(0.01)

                tasks = [asyncio.ensure_future(load()) for _ in range(4)]
                for generation in range(2, 1002):
                    publish(tmp_path, generation, names if generation % 3 else names[:1])
                    await asyncio.sleep(0.003)
                await until(lambda: world.router.catalog.generation == 1001)
                done.set()
                await asyncio.gather(*tasks)
                assert set(statuses) == {200}
                assert len(statuses) > 100

    run(work())


def test_d13_slow_heads_and_bodies_are_cut_off_and_idle_connections_too() -> None:
    async def work() -> None:
        deadlines = replace(QUIET.deadlines, head_s=0.6)
        async with engines(1) as one, running(QUIET, static=static(one), deadlines=deadlines) as world:
            half = await exchange(world.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n")
            assert (half.status, half.code) == (408, "request_timeout")
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(written(chat())[:-10])
            answer = await asyncio.wait_for(read_answer(reader), 3)
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            assert await asyncio.wait_for(reader.read(), 3) == b"", "an idle connection is closed without a word"
            assert not one[0].seen

    run(work())


def test_d13_a_body_that_trickles_is_cut_off_though_it_never_stops() -> None:
    async def work() -> None:
        deadlines = replace(QUIET.deadlines, head_s=0.5)
        async with engines(1) as one, running(QUIET, static=static(one), deadlines=deadlines) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            data = written(chat())
            writer.write(data[:-60])

            async def trickle() -> None:
                for byte in data[-60:]:
                    await asyncio.sleep(0.1)
                    writer.write(bytes([byte]))

            trickling = asyncio.ensure_future(trickle())
            answer = await asyncio.wait_for(read_answer(reader), 3)
            trickling.cancel()
            assert answer.status == 408

    run(work())


def test_d13_one_address_cannot_hold_every_connection_and_the_others_go_on() -> None:
    async def work() -> None:
        limits = replace(QUIET.limits, connections_per_address=200)
        async with engines(1) as one, running(QUIET, static=static(one), limits=limits) as world:
            held = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(2000)]
            await until(lambda: len(world.router.fronts) <= 200)
            refused = (await read_answer(held[-1][0])).status
            assert refused == 429
            for _, writer in held:
                writer.close()
            await until(lambda: not world.router.fronts)
            assert (await world.ask()).status == 200

    run(work())


def test_d14_a_client_that_never_reads_holds_the_engine_and_is_given_up() -> None:
    async def work() -> None:
        sent = 0

        async def flood(wire: Wire, _: Seen) -> None:
            nonlocal sent
            await wire.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            piece = b'data: {"x":"' + b"y" * 65000 + b'"}\n\n'
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
            while True:
                await wire.send(piece)
                sent += len(piece)

        deadlines = replace(QUIET.deadlines, stalled_client_s=1.5)
        async with (
            engines(1, flood) as (engine,),
            running(QUIET, static=static([engine]), deadlines=deadlines) as world,
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
            writer.write(written(chat(stream=True)))
            await until(lambda: sent > 0)
            await asyncio.sleep(0.7)
            (front,) = world.router.fronts
            assert front.transport.get_write_buffer_size() <= 4 << 20
            stalled = sent
            await asyncio.sleep(0.3)
            assert sent == stalled, "the engine waits while the client does not read"
            await until(engine.seen[0].gone.is_set, 5.0)
            assert not world.router.exchanges
            writer.close()

    run(work())


def test_d15_long_and_encoded_bodies_never_reach_an_engine() -> None:
    async def work() -> None:
        limits = replace(QUIET.limits, body=1000)
        async with engines(1) as (engine,), running(QUIET, static=static([engine]), limits=limits) as world:
            long = await world.ask(chat(pad="x" * 2000))
            assert (long.status, long.code) == (413, "request_too_large")
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
            pieces = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(20))
            chunked = await exchange(world.port, head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces)
            assert chunked.status == 413
            body = gzip.compress(json.dumps(chat()).encode())
            packed = await world.ask(body, headers={"Content-Encoding": "gzip"})
            assert (packed.status, packed.code) == (415, "unsupported_encoding")
            assert not engine.seen
            assert engine.connections == 0

    run(work())


def test_d15_a_client_that_goes_on_sending_still_gets_its_refusal() -> None:
    """A connection closed with bytes unread would be reset, and the answer with it."""

    async def work() -> None:
        async with engines(1) as one, running(QUIET, static=static(one)) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(written(b"", headers={"Content-Length": str(64 << 20)}))
            for _ in range(20):
                writer.write(b"x" * 100_000)
                await asyncio.sleep(0.005)
            assert (await read_answer(reader)).status == 413
            assert await reader.read() == b""
            writer.close()

    run(work())


def test_d15_a_refusal_comes_before_the_body_is_asked_for() -> None:
    async def work() -> None:
        async with engines(1) as one, running(QUIET, static=static(one)) as world:
            more = {"Expect": "100-continue"}
            head = written(chat(), headers={**more, "Content-Length": str(1 << 40)}).partition(b"\r\n\r\n")[0]
            assert (await exchange(world.port, head + b"\r\n\r\n")).status == 413
            assert (await world.ask(headers=more)).status == 200

    run(work())


_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
SMUGGLING = {
    "length and chunks": _HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": _HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "the same length twice": _HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": _HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": _HEAD + b"Content-Length: +2\r\n\r\n{}",
    "another coding": _HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding before chunked": _HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding after chunked": _HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": _HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": _HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "blank before the colon": _HEAD + b"Content-Length : 2\r\n\r\n{}",
    "a folded line": _HEAD + b"X-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
    "a bare LF": _HEAD + b"X-A: b\nContent-Length: 2\r\n\r\n{}",
    "a bare CR": _HEAD + b"X-A: b\rContent-Length: 2\r\n\r\n{}",
    "a NUL": _HEAD + b"X-A: b\0\r\nContent-Length: 2\r\n\r\n{}",
    "no host": _HEAD.replace(b"Host: r\r\n", b"") + b"Content-Length: 2\r\n\r\n{}",
    "two hosts": _HEAD + b"Host: s\r\nContent-Length: 2\r\n\r\n{}",
    "two keys": _HEAD + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 2\r\n\r\n{}",
    "an absolute target": _HEAD.replace(b" /v1", b" http://r/v1") + b"Content-Length: 2\r\n\r\n{}",
    "a chunk longer than it says": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "a chunk size in 0x": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk size too large": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    "upgrade to h2c": _HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    "prior knowledge of h2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "connect": b"CONNECT r:80 HTTP/1.1\r\nHost: r\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SMUGGLING)
def test_d16_what_can_be_read_in_two_ways_is_refused_and_nothing_goes_upstream(name: str) -> None:
    async def work() -> None:
        async with engines(1) as (engine,), running(QUIET, static=static([engine])) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(SMUGGLING[name] + written(chat()))
            answer = await read_answer(reader)
            assert answer.status == 400, answer
            assert answer.headers["connection"] == "close"
            assert await reader.read() == b"", "nothing behind it is answered"
            assert engine.connections == 0
            writer.close()

    run(work())


def test_d16_trailers_cannot_add_headers_to_the_next_request(tmp_path: Path) -> None:
    async def work() -> None:
        key_file(tmp_path, {"id": "k", "digest": digest_of("good"), "tenant": "t"})
        async with engines(1) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)])
            await send(engine)

    async def send(engine: FakeEngine) -> None:
        async with running(QUIET, published=tmp_path) as world:
            body = json.dumps(chat()).encode()
            first = _HEAD + b"Authorization: Bearer good\r\nTransfer-Encoding: chunked\r\n\r\n"
            first += b"%x\r\n%b\r\n0\r\nAuthorization: Bearer good\r\n\r\n" % (len(body), body)
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(first + written(chat()))
            assert (await read_answer(reader)).status == 200
            assert (await read_answer(reader)).status == 401
            assert len(engine.seen) == 1
            writer.close()

    run(work())


def test_d17_one_tenant_at_ten_times_capacity_gets_429_at_once_and_the_others_nothing_of_it(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with engines(1, answers(wait_s=0.05)) as (engine,):
            publish(tmp_path, 1, [("m/0", engine.url)], max_in_flight=8)
            loud = {"id": "loud", "digest": digest_of("loud"), "tenant": "loud", "max_in_flight": 4}
            key_file(tmp_path, loud, {"id": "calm", "digest": digest_of("calm"), "tenant": "calm"})
            async with running(QUIET, published=tmp_path) as world:
                loop = asyncio.get_running_loop()

                async def timed(key: str) -> tuple[int, float, str]:
                    start = loop.time()
                    answer = await world.ask(headers={"Authorization": f"Bearer {key}"})
                    return answer.status, loop.time() - start, answer.headers.get("retry-after", "")

                flood = [asyncio.ensure_future(timed("loud")) for _ in range(80)]
                await asyncio.sleep(0.01)
                calm = [await timed("calm") for _ in range(5)]
                health = await world.ask(method="GET", path="/health")
                loud_ones = await asyncio.gather(*flood)
                refused = [(status, wait) for status, _, wait in loud_ones if status != 200]
                assert len(refused) == 76
                assert set(refused) == {(429, "1")}
                assert [status for status, _, _ in calm] == [200] * 5
                assert health.status == 200

    run(work())


def test_d17_a_full_queue_turns_away_whoever_waits_most() -> None:
    async def work() -> None:
        limits = replace(QUIET.limits, queue=10)
        capped = static([], models=("m",))
        async with engines(1, answers(wait_s=0.2)) as (engine,):
            capped = static([engine], max_in_flight=1)
            async with running(QUIET, static=capped, limits=limits) as world:
                got = await asyncio.gather(*(world.ask() for _ in range(30)))
                statuses = [answer.status for answer in got]
                assert (statuses.count(200), statuses.count(429)) == (11, 19)
                assert all(
                    a.headers["retry-after"] == "2" and a.code == "queue_full" for a in got if a.status == 429
                )

    run(work())


def test_d17_a_request_waits_in_the_queue_no_longer_than_it_may() -> None:
    async def work() -> None:
        deadlines = replace(QUIET.deadlines, queue_s=0.3)
        async with (
            engines(1, hangs()) as (engine,),
            running(QUIET, static=static([engine], max_in_flight=1), deadlines=deadlines) as world,
        ):
            first = asyncio.ensure_future(world.ask())
            await until(lambda: engine.seen)
            answer = await asyncio.wait_for(world.ask(), 2.0)
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "queue_timeout", "5")
            first.cancel()

    run(work())


def test_deadlines_for_the_first_byte_and_between_events() -> None:
    async def work() -> None:
        deadlines = replace(QUIET.deadlines, first_byte_s=0.4, idle_s=0.4)

        async def stall(_: Wire, seen: Seen) -> None:
            await seen.gone.wait()

        async with (
            engines(1, hangs()) as (engine,),
            running(QUIET, static=static([engine]), deadlines=deadlines) as world,
        ):
            silent = await asyncio.wait_for(world.ask(), 3)
            assert (silent.status, silent.code) == (504, "engine_timeout")
            engine.behave = streams(3, then=stall)
            stalled = await asyncio.wait_for(world.ask(chat(stream=True)), 3)
            assert stalled.text == "t0 t1 t2 "
            assert stalled.events[-1]["error"]["code"] == "engine_stalled"
            engine.behave = streams(12, every_s=0.2)
            assert (await world.ask(chat(stream=True))).events[-1] == "[DONE]", "no deadline on the whole"

    run(work())


def test_hypothesis_like_garbage_on_the_public_port_never_hangs_or_kills(tmp_path: Path) -> None:
    """Five hundred mutated requests: each gets an answer or a closed connection, and the router serves on."""

    async def work() -> None:
        rnd = random.Random(7)
        deadlines = replace(QUIET.deadlines, head_s=0.2)
        async with engines(1) as one, running(QUIET, static=static(one), deadlines=deadlines) as world:
            good = written(chat())
            for _ in range(500):
                data = bytearray(good)
                for _ in range(rnd.randrange(1, 6)):
                    data[rnd.randrange(len(data))] = rnd.randrange(256)
                reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
                writer.write(bytes(data))
                first = await asyncio.wait_for(reader.read(12), 5)
                assert first == b"" or first.startswith(b"HTTP/1.1 "), first
                writer.close()
            assert (await world.ask()).status == 200

    run(work())
