"""A fake inference engine on a real socket: HTTP/1.1 written by hand, so that it can misbehave at any byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """One request as the engine got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client's side of the connection is closed while the answer is under way."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Behave = Callable[["Wire", Seen], Awaitable[None]]


class Wire:
    """The engine's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def die(self) -> None:
        """Closes at once, whatever was under way."""
        self.writer.transport.abort()


class FakeEngine:
    """Answers by `behave`, which tests set. /health and other probes are answered whatever that is."""

    def __init__(self, behave: Behave | None = None, name: str = "m") -> None:
        self.behave = behave or answers()
        self.name = name
        self.seen: list[Seen] = []
        self.probes = 0
        self.connections = 0
        self.open = 0
        self.healthy = True
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> "FakeEngine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=4096, limit=1 << 20)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            while await self._one(Wire(reader, writer), number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _one(self, wire: Wire, number: int) -> bool:
        head = (await wire.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await wire.reader.readexactly(int(headers.get("content-length", "0")))
        if method == "GET":
            self.probes += 1
            await wire.send(reply(200 if self.healthy else 500, b"{}"))
            return True
        seen = Seen(method, path, headers, body, number)
        self.seen.append(seen)
        watch = asyncio.ensure_future(wire.reader.read(1))
        watch.add_done_callback(lambda done: None if done.cancelled() else (done.exception(), seen.gone.set()))
        behaving = asyncio.ensure_future(self.behave(wire, seen))
        await asyncio.wait({watch, behaving}, return_when=asyncio.FIRST_COMPLETED)
        if not behaving.done():
            behaving.cancel()
            return False
        behaving.result()
        if watch.done():
            return False
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        return not wire.writer.is_closing()


@asynccontextmanager
async def engines(count: int, behave: Behave | None = None) -> AsyncIterator[list[FakeEngine]]:
    """So many engines, each on a port of its own."""
    made = [await FakeEngine(behave).start() for _ in range(count)]
    try:
        yield made
    finally:
        for engine in made:
            await engine.stop()


def reply(status: int, body: bytes, *, kind: str = "application/json", more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\nserver: fake\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


def completion(text: str = "hello", *, prompt: int = 7, tokens: int = 5, model: str = "m") -> bytes:
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
        }
    ).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def token(text: str, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text} if finish is None else {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def usage_event(prompt: int, tokens: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": usage,
    }


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def answers(body: bytes | None = None, *, status: int = 200, more: str = "", wait_s: float = 0.0) -> Behave:
    """A JSON answer of that status."""

    async def behave(wire: Wire, _: Seen) -> None:
        await asyncio.sleep(wait_s)
        await wire.send(reply(status, completion() if body is None else body, more=more))

    return behave


def streams(count: int, *, every_s: float = 0.0, first_s: float = 0.0, then: Behave | None = None) -> Behave:
    """A stream of so many tokens, its usage where the request asks for it, and `[DONE]`; or what `then` does."""

    async def behave(wire: Wire, seen: Seen) -> None:
        await asyncio.sleep(first_s)
        await wire.send(STREAM_HEAD)
        for number in range(count):
            await wire.send(chunk(event(token(f"t{number} "))))
            await asyncio.sleep(every_s)
        if then is not None:
            await then(wire, seen)
            return
        await wire.send(chunk(event(token("", "stop"))))
        options = seen.json.get("stream_options") or {}
        if options.get("include_usage"):
            await wire.send(chunk(event(usage_event(7, count))))
        await wire.send(chunk(event(b"[DONE]")) + b"0\r\n\r\n")

    return behave


def dies() -> Behave:
    """Reads the request and closes without a word."""

    async def behave(wire: Wire, _: Seen) -> None:
        wire.die()

    return behave


def hangs() -> Behave:
    """Reads the request and says nothing, for as long as the client stays."""

    async def behave(_: Wire, seen: Seen) -> None:
        await seen.gone.wait()

    return behave
