"""A router in the test's own event loop, on real sockets, and clients that can misbehave at any byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmgw.router.config import Deadlines, RouterConfig
from llmgw.router.core import Router
from llmgw.router.listen import listening
from llmgw.router.serve import Service
from llmgw.serving.catalog import Service as Endpoint
from tests.fakes.http_engine import FakeEngine

QUIET = RouterConfig(listen=("127.0.0.1:0",), check_s=0.0, poll_s=0.05, deadlines=Deadlines(drain_s=2.0))


def static(
    engines: Iterable[FakeEngine], *, models: tuple[str, ...] = ("m",), **more: Any
) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(id=f"m/{n}", url=engine.url, models=models, profile="default", **more)
        for n, engine in enumerate(engines)
    )


@dataclass
class World:
    """A running router."""

    service: Service
    port: int
    admin: int
    metrics: int

    @property
    def router(self) -> Router:
        return self.service.router

    async def ask(self, body: object = None, **more: Any) -> "Answer":
        return await ask(self.port, body, **more)


@asynccontextmanager
async def running(config: RouterConfig, **more: Any) -> AsyncIterator[World]:
    """A router with that configuration, its admin and metrics listeners on free ports as well."""
    config = replace(config, **more)
    sockets = {role: [listening("127.0.0.1:0", reuse_port=False)] for role in ("public", "admin", "metrics")}
    service = Service(config, sockets)
    task = asyncio.ensure_future(service.run())
    ready = asyncio.ensure_future(service.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    ports = {role: socks[0].getsockname()[1] for role, socks in sockets.items()}
    try:
        yield World(service, ports["public"], ports["admin"], ports["metrics"])
    finally:
        service.stop.set()
        await task


@dataclass
class Answer:
    """What a client got. `whole`: the body ended as its framing says; else the connection closed before that."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def events(self) -> list[Any]:
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        found = [
            e["choices"][0]["delta"].get("content") or ""
            for e in self.events
            if e != "[DONE]" and e.get("choices")
        ]
        return "".join(found)


CHAT = "/v1/chat/completions"


def chat(*, stream: bool = False, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}
    return {**body, "stream": True} if stream else body


def written(
    body: object,
    path: str = CHAT,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    version: str = "1.1",
) -> bytes:
    """The bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    fields = {"Host": "r", "Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/{version}\r\n{head}\r\n".encode() + data


async def ask(port: int, body: object = None, **more: Any) -> Answer:
    """One request on a connection of its own."""
    body = chat() if body is None and more.get("method", "POST") == "POST" else body
    return await exchange(port, written(body, **more), bare=more.get("method") == "HEAD")


async def exchange(port: int, data: bytes, *, bare: bool = False) -> Answer:
    """Sends bytes on a connection of its own and reads one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(data)
        return await read_answer(reader, bare=bare)
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader, *, bare: bool = False) -> Answer:
    """One answer, by its framing."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if head[0].startswith("HTTP/1.1 100"):
        return await read_answer(reader)
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
    answer = Answer(int(head[0].split(" ")[1]), headers, b"")
    if bare:
        return answer
    try:
        if headers.get("transfer-encoding") == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).decode(), 16):
                answer.body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif "content-length" in headers:
            answer.body = await reader.readexactly(int(headers["content-length"]))
        else:
            answer.body = await reader.read(-1)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        answer.body += getattr(error, "partial", b"")
        answer.whole = False
    return answer


async def until(true: Any, limit_s: float = 20.0) -> float:
    """Waits until the condition holds; the seconds that took. AssertionError where it does not."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not true():
        assert loop.time() - start < limit_s, "the condition did not come true"
        await asyncio.sleep(0.01)
    return loop.time() - start


def publish(folder: Path, generation: int, endpoints: Iterable[tuple[str, str]], **more: Any) -> None:
    """Replaces endpoints.json: ids and URLs of ready endpoints of model m."""
    listed = [
        {"id": name, "model": "m", "profile": "p", "url": url, "state": "ready", "node": "n1", "spec": "s", **more}
        for name, url in endpoints
    ]
    models = [{"name": "m", "aliases": ["alias"], "state": "ready", "default_profile": "p"}]
    models.append({"name": "cold", "aliases": [], "state": "stopped", "default_profile": "p"})
    value = {
        "format": "llmgw-endpoints/1", "generation": generation, "written": "2026-12-01T00:00:00Z",
        "models": models, "endpoints": listed,
    }  # fmt: skip
    draft = folder / "endpoints.json.tmp"
    draft.write_text(json.dumps(value))
    draft.rename(folder / "endpoints.json")


def key_file(folder: Path, *keys: dict[str, Any], required: bool = True) -> None:
    """Replaces keys.json."""
    draft = folder / "keys.json.tmp"
    draft.write_text(json.dumps({"format": "llmgw-keys/1", "required": required, "keys": list(keys)}))
    draft.rename(folder / "keys.json")
