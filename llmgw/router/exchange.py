"""One request from its last byte to the last byte of its answer: the choice, the attempts, the end."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmgw.router.relay import BodyUntilClose, ChunkedBody, EventStream, Relay, SizedBody
from llmgw.serving.body import Ask, read_ask, with_model, with_usage
from llmgw.serving.failover import Trouble, may_try_again, says_not_started
from llmgw.serving.faults import (
    ENGINE_BAD,
    ENGINE_CUT,
    ENGINE_GONE,
    ENGINE_UNREACHABLE,
    Fault,
    fault_event,
    unknown_model,
    unready_model,
)
from llmgw.serving.headers import forwarded
from llmgw.serving.keys import NOBODY, Caller
from llmgw.serving.reply import ReplyHead, status_line

if TYPE_CHECKING:
    from llmgw.router.backends import Backend, Group
    from llmgw.router.core import Router
    from llmgw.router.front import Front
    from llmgw.router.upstream import Upstream
    from llmgw.serving.routes import Route

_HELD_ANSWER = 64 * 1024


@dataclass(slots=True)
class Request:
    """A client's request, its head checked and its body complete."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    http10: bool
    keeps: bool
    body: bytes = b""
    caller: Caller = NOBODY
    route: "Route | None" = None
    chunks: list[bytes] = field(default_factory=list)


class Exchange:
    """The client's connection on one side, an engine's on the other."""

    __slots__ = (
        "ask", "attempts", "backend", "body", "deadline", "dialing", "first_at", "frames_pass", "front", "group",
        "opening", "relay", "request", "request_id", "route", "router", "seen", "started", "status", "stream", "tried",
        "trusted", "upstream", "wait_s",
    )  # fmt: skip

    def __init__(self, router: "Router", front: "Front", request: Request, route: "Route") -> None:
        self.router = router
        self.front = front
        self.request = request
        self.route = route
        self.request_id = router.request_id(request.headers.get(b"x-request-id"))
        self.started = router.time()
        self.frames_pass = not request.http10
        self.attempts = 0
        self.tried: tuple[str, ...] = ()
        self.upstream: Upstream | None = None
        self.dialing: asyncio.Task[None] | None = None
        self.relay: Relay | None = None
        self.stream: EventStream | None = None
        self.first_at = 0.0
        self.status = 0
        self.deadline = 0.0
        self.trusted = True
        self.seen = 0
        self.opening = b""

    # -- from the request to an engine

    def start(self) -> None:
        """Reads what is asked for and sends it on; answers at once where that cannot be."""
        request = self.request
        ask = read_ask(request.body)
        if isinstance(ask, Fault):
            self.refuse(ask)
            return
        group = self.router.backends.groups.get(ask.model)
        if group is None or not _may_use(request.caller, ask.model, group):
            self.refuse(unknown_model(ask.model))
            return
        self.ask, self.group = ask, group
        body = request.body
        if ask.model != group.target.model:
            body = with_model(body, group.target.model)
        if ask.stream and self.route.usage_option and not ask.wants_usage:
            body = with_usage(body)
        self.body = body
        self.forward()

    def forward(self) -> None:
        """One attempt at the endpoint that the policy chooses."""
        group = self.group
        backend = self.router.choose(group, self)
        if backend is None:
            self.refuse(unready_model(self.ask.model, group.target.state))
            return
        self.backend = backend
        self.attempts += 1
        backend.in_flight += 1
        now = self.router.time()
        upstream = backend.kept(now)
        if upstream is not None:
            self.send(upstream, now)
        else:
            self.deadline = now + self.router.config.deadlines.connect_s
            self.dialing = self.router.loop.create_task(self._dial(backend))

    async def _dial(self, backend: "Backend") -> None:
        try:
            async with asyncio.timeout(self.router.config.deadlines.connect_s):
                upstream = await backend.connect(self.router.tls)
        except OSError:
            self.dialing = None
            self.failed(Trouble.UNREACHABLE, ENGINE_UNREACHABLE)
        else:
            self.dialing = None
            self.send(upstream, self.router.time())

    def send(self, upstream: "Upstream", now: float) -> None:
        self.upstream = upstream
        self.deadline = now + self.router.config.deadlines.first_byte_s
        body = self.body
        head = b"%bcontent-type: application/json\r\n%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (
            self.backend.head_for(self.route),
            forwarded(self.request.headers),
            self.request_id,
            len(body),
        )
        upstream.send(self, head, body)

    # -- from the engine to the client

    def answered(self, upstream: "Upstream", reply: ReplyHead, rest: bytes) -> None:
        """The head of the answer is here, and `rest` of its body."""
        self.status = reply.status
        if reply.status == 503 and reply.length is not None and 0 < reply.length <= _HELD_ANSWER:
            self.relay = _Held(self, reply)
            upstream.take = self.relay.feed
            self.relay.feed(rest)
            return
        self.pass_on(upstream, reply, rest)

    def pass_on(self, upstream: "Upstream", reply: ReplyHead, rest: bytes) -> None:
        self.router.judge(self, reply.status)
        self.body = self.request.body = b""
        relay = self._relay(reply)
        self.relay = relay
        upstream.take = relay.feed
        self.wait_s = (reply.kept_s or 5.0) - 1.0 if reply.keeps else -1.0
        self.opening = self._head(reply)
        if rest or not reply.has_body:
            relay.feed(rest)
        elif self.opening:
            self.write(b"")

    def _relay(self, reply: ReplyHead) -> Relay:
        if reply.event_stream and not reply.encoded:
            strip = self.route.usage_option and not self.ask.wants_usage
            self.stream = EventStream(self, reply, strip=strip)
            return self.stream
        if not reply.has_body or reply.length is not None:
            return SizedBody(self, reply.length or 0)
        return ChunkedBody(self) if reply.chunked else BodyUntilClose(self)

    def _head(self, reply: ReplyHead) -> bytes:
        framing = b""
        if reply.length is not None and self.stream is None:
            framing = b"content-length: %d\r\n" % reply.length
        elif reply.has_body and self.frames_pass:
            framing = b"transfer-encoding: chunked\r\n"
        close = b"" if self.front.will_keep else b"connection: close\r\n"
        return b"%b%b%b%bx-request-id: %b\r\n\r\n" % (
            status_line(reply.status), reply.passed, framing, close, self.request_id,
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        """To the client; the head of the answer goes with the first bytes."""
        if self.opening:
            data, self.opening = self.opening + data, b""
        self.front.write(data)

    def first_byte(self) -> None:
        self.first_at = self.router.time()

    def distrust(self) -> None:
        """The engine sent more than its answer: the connection is not used again."""
        self.trusted = False

    # -- how it ends

    def complete(self) -> None:
        """The whole answer has been passed on."""
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.exchange = None
            if self.front.is_full:
                upstream.transport.resume_reading()
            upstream.release(self.wait_s if self.trusted and self.wait_s > 0 else None)
        self.finish("ok" if self.status < 400 else "refused", keep=True)

    def refuse(self, fault: Fault) -> None:
        """The router's own answer, where the client has had no byte yet."""
        self.status = fault.status
        self.front.answer_fault(fault, self.route.dialect, self.request_id)
        self.finish(fault.code, keep=True)

    def lost(self, upstream: "Upstream", *, untaken: bool) -> None:
        """The engine closed the connection."""
        if self.relay is not None:
            self.relay.eof()
        elif untaken:
            self.failed(Trouble.NOT_TAKEN, ENGINE_GONE)
        else:
            self.failed(Trouble.LOST, ENGINE_GONE)

    def failed(self, trouble: Trouble, fault: Fault) -> None:
        """An attempt came to nothing before the client had a byte: another one, where that is safe."""
        backend = self.backend
        backend.in_flight -= 1
        self.upstream = None
        if trouble is not Trouble.NOT_TAKEN:
            self.router.condemn(self)
            self.tried = (*self.tried, backend.url)
        if may_try_again(trouble, self.attempts, self.router.budget):
            untried = any(b.url not in self.tried for b in self.group.all)
            if trouble is Trouble.NOT_TAKEN or untried:
                self.forward()
                return
        backend.in_flight += 1
        self.refuse(fault)

    def declined(self, reply: ReplyHead, body: bytes) -> None:
        """The engine's own word that it did not start: elsewhere, or its answer for want of anywhere else."""
        backend = self.backend
        self.router.condemn(self)
        self.tried = (*self.tried, backend.url)
        untried = any(b.url not in self.tried for b in self.group.open)
        if untried and may_try_again(Trouble.DECLINED, self.attempts, self.router.budget):
            backend.in_flight -= 1
            self.forward()
            return
        self.front.write(self._head(reply) + body)
        self.finish("refused", keep=True)

    def misanswered(self) -> None:
        """What the engine sent is not HTTP."""
        self._drop_upstream()
        if self.relay is None:
            self.failed(Trouble.LOST, ENGINE_BAD)
        else:
            self.end_early(ENGINE_BAD, "engine_protocol_error")

    def cut(self) -> None:
        """The engine's answer ended before it was complete."""
        self._drop_upstream()
        self.router.condemn(self)
        self.end_early(ENGINE_CUT, "engine_disconnected")

    def end_early(self, fault: Fault, outcome: str) -> None:
        """Ends an answer that has begun: a stream says why, then the connection closes without the body's end."""
        self._drop_upstream()
        if self.stream is not None:
            event = fault_event(fault, self.route.dialect, self.request_id.decode())
            self.write(b"%x\r\n%b\r\n" % (len(event), event) if self.frames_pass else event)
        self.finish(outcome, keep=False)

    def abandoned(self) -> None:
        """The client has left: the engine is told by closing its connection, at once."""
        if self.dialing is not None:
            self.dialing.cancel()
            self.dialing = None
        self._drop_upstream()
        self.status = 499
        self.finish("client_left", keep=False)

    def expire(self, now: float) -> None:
        """The deadline of the phase has passed, as far as the sweep can tell."""
        self.router.expire(self, now)

    def _drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.drop()

    def finish(self, outcome: str, *, keep: bool) -> None:
        self.router.finished(self, outcome)
        self.front.exchange_over(keep=keep)


class _Held:
    """A short 503 kept back whole, to see whether the engine says that it has not begun."""

    def __init__(self, exchange: Exchange, reply: ReplyHead) -> None:
        self._exchange = exchange
        self._reply = reply
        self._body = b""
        self.usage = None

    def feed(self, data: bytes) -> None:
        self._body += data
        if len(self._body) < (self._reply.length or 0):
            return
        exchange, upstream = self._exchange, self._exchange.upstream
        exchange.relay = None
        assert upstream is not None
        if says_not_started(self._reply.status, self._body):
            upstream.exchange = exchange.upstream = None
            upstream.drop()
            exchange.declined(self._reply, self._body)
            return
        exchange.pass_on(upstream, self._reply, self._body)

    def eof(self) -> None:
        self._exchange.relay = None
        self._exchange.failed(Trouble.LOST, ENGINE_GONE)


def _may_use(caller: Caller, name: str, group: "Group") -> bool:
    return caller.models is None or name in caller.models or group.target.model in caller.models


__all__ = ["Ask", "Exchange", "Request"]
