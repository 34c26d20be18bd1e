"""One request from its last byte to the last byte of its answer: the choice, the attempts, the end.

Everything here is called from the event loop's own callbacks: on the usual path no task is made, nothing is
awaited, and the bytes of an answer go from the engine's transport to the client's in one step.
"""

import asyncio
from typing import TYPE_CHECKING

from llmgw.router.relay import BodyUntilClose, ChunkedBody, EventStream, HeldAnswer, Relay, SizedBody
from llmgw.router.request import Request, body_for, may_use, read_form
from llmgw.serving.body import Ask, read_ask
from llmgw.serving.events import Usage, body_usage
from llmgw.serving.failover import Trouble, may_try_again
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
from llmgw.serving.framing import chunk
from llmgw.serving.headers import forwarded
from llmgw.serving.limits import Ticket, reservation
from llmgw.serving.reply import ReplyHead, status_line

if TYPE_CHECKING:
    from llmgw.router.backends import Backend, Group
    from llmgw.router.core import Router
    from llmgw.router.front import Front
    from llmgw.router.upstream import Upstream
    from llmgw.serving.routes import Route

LONGEST_HELD = 64 * 1024
QUEUED, DIALING, WAITING, ANSWERING = range(4)


class Exchange:
    """The client's connection on one side, an engine's on the other."""

    __slots__ = (
        "ask", "attempts", "backend", "body", "body_bytes", "deadline", "dialing", "estimated", "first_at",
        "front", "group", "kept_s", "opening", "phase", "relay", "remote_ticket", "request", "request_id",
        "route", "router", "seen", "started", "status", "stream", "ticket", "tried", "trusted", "upstream",
        "usage",
    )  # fmt: skip

    ask: Ask
    group: "Group"

    def __init__(self, router: "Router", front: "Front", request: Request, route: "Route") -> None:
        self.router = router
        self.front = front
        self.request = request
        self.route = route
        self.backend: Backend | None = None
        self.upstream: Upstream | None = None
        self.dialing: asyncio.Task[None] | None = None
        self.relay: Relay | None = None
        self.stream: EventStream | None = None
        self.ticket: Ticket | None = None
        self.usage: Usage | None = None
        self.tried: tuple[str, ...] = ()
        self.attempts = 0
        self.phase = QUEUED
        self.opening = b""
        self.body = b""
        self.body_bytes = 0
        self.status = 0
        self.first_at = 0.0
        self.deadline = 0.0
        self.seen = -1
        self.kept_s = -1.0
        self.trusted = True
        self.estimated = False
        self.remote_ticket = False
        self.started = router.time()
        self.request_id = router.request_id(request.headers.get(b"x-request-id"))

    # -- from the request to an engine

    def start(self) -> None:
        """Reads what is asked for and sends it on; answers at once where that cannot be."""
        request, router = self.request, self.router
        route = self.route
        ask = read_form(request) if route.multipart else read_ask(request.body)
        if isinstance(ask, Fault):
            self.refuse(ask)
            return
        group = router.backends.groups.get(ask.model)
        if group is None or (
            request.caller.models is not None and not may_use(request, route, ask, group.target.model)
        ):
            self.refuse(unknown_model(ask.model))
            return
        self.ask, self.group = ask, group
        body = request.body
        renamed = ask.model != group.target.model
        told = ask.stream is not True or not route.usage_option or ask.wants_usage
        if renamed or not told:
            changed = body_for(request, route, model=group.target.model if renamed else "", usage=not told)
            if isinstance(changed, Fault):
                self.refuse(changed)
                return
            body = changed
        self.body, self.body_bytes = body, len(body)
        if request.caller.is_limited:
            router.admit(self, reservation(len(body), ask.most_tokens))
        else:
            self.forward()

    def forward(self) -> None:
        """One attempt at the endpoint that the policy chooses, or a place in the queue."""
        router = self.router
        backend = router.choose(self.group, self)
        if backend is None:
            self._wait_or_refuse()
            return
        self.backend = backend
        self.attempts += 1
        backend.enter()
        now = router.time()
        upstream = backend.kept(now)
        if upstream is not None:
            self.send(upstream, now)
        else:
            self.phase = DIALING
            self.deadline = now + router.config.deadlines.connect_s + 1.0
            self.dialing = router.loop.create_task(self._dial(backend))

    def _wait_or_refuse(self) -> None:
        candidates = [b for b in self.group.open if b.url not in self.tried]
        if candidates:
            self.router.enqueue(self)
        elif self.tried:
            self.refuse(ENGINE_UNREACHABLE)
        else:
            self.refuse(unready_model(self.ask.model, self.group.target.state))

    async def _dial(self, backend: "Backend") -> None:
        try:
            async with asyncio.timeout(self.router.config.deadlines.connect_s):
                upstream = await backend.connect(self.router.tls)
        except OSError:
            self.dialing = None
            self.failed(Trouble.UNREACHABLE, ENGINE_UNREACHABLE)
            return
        self.dialing = None
        self.send(upstream, self.router.time())

    def send(self, upstream: "Upstream", now: float) -> None:
        """The request to the engine, in one write where it is small."""
        self.upstream = upstream
        self.phase = WAITING
        self.deadline = now + self.router.first_byte_s
        route, headers, body = self.route, self.request.headers, self.body
        assert self.backend is not None
        head = b"%bcontent-type: %b\r\n%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (
            self.backend.head_for(route),
            headers[b"content-type"] if route.multipart else b"application/json",
            forwarded(headers),
            self.request_id,
            len(body),
        )
        upstream.send(self, head, body)

    # -- from the engine to the client

    def answered(self, upstream: "Upstream", reply: ReplyHead, rest: bytes) -> None:
        """The head of the answer is here, and `rest` of its body."""
        if reply.status == 503 and reply.length is not None and 0 < reply.length <= LONGEST_HELD:
            self.relay = HeldAnswer(self, upstream, reply)
            upstream.take = self.relay.feed
            self.relay.feed(rest)
        else:
            self.pass_on(upstream, reply, rest)

    def pass_on(self, upstream: "Upstream", reply: ReplyHead, rest: bytes) -> None:
        """Decides how the body goes to the client, and sends what is there of it."""
        self.status = reply.status
        self.phase = ANSWERING
        self.router.judge(self, reply.status)
        self.body = self.request.body = b""
        if reply.keeps:
            self.kept_s = reply.kept_s - 1.0
        self.opening = self._head(reply)
        if reply.length == len(rest) and not reply.event_stream:
            self.front.write(self.opening + rest)
            self.usage = body_usage(rest) if reply.status == 200 else None
            self.complete()
            return
        relay = self._relay(reply)
        self.relay = relay
        upstream.take = relay.feed
        if rest:
            relay.feed(rest)
        elif not reply.has_body:
            self.write(b"")
            self.complete()
        else:
            self._open()

    def _open(self) -> None:
        """Sends the head alone, where the engine did."""
        head, self.opening = self.opening, b""
        self.front.write(head)

    def _relay(self, reply: ReplyHead) -> Relay:
        if reply.event_stream and not reply.encoded:
            strip = self.route.usage_option and not self.ask.wants_usage
            self.stream = EventStream(self, reply, strip=strip)
            return self.stream
        if not reply.has_body or reply.length is not None:
            return SizedBody(self, reply.length or 0)
        return ChunkedBody(self) if reply.chunked else BodyUntilClose(self)

    @property
    def frames_pass(self) -> bool:
        """Whether the client can read the chunked coding."""
        return not self.request.http10

    def _head(self, reply: ReplyHead) -> bytes:
        framing = b""
        if reply.length is not None and not (reply.event_stream and not reply.encoded):
            framing = b"content-length: %d\r\n" % reply.length
        elif reply.has_body and self.frames_pass:
            framing = b"transfer-encoding: chunked\r\n"
        elif reply.has_body:
            self.front.will_keep = False
        return b"%b%b%b%bx-request-id: %b\r\n\r\n" % (
            status_line(reply.status),
            reply.passed,
            framing,
            b"" if self.front.will_keep else b"connection: close\r\n",
            self.request_id,
        )

    def write(self, data: bytes) -> None:
        """To the client; the head of the answer goes with the first bytes."""
        if self.opening:
            data, self.opening = self.opening + data, b""
        if data:
            self.front.write(data)

    def first_event(self) -> None:
        """The first token has come: from now on the deadline is that between two."""
        self.first_at = self.router.time()

    # -- how it ends

    def complete(self) -> None:
        """The whole answer has been passed on."""
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            if self.front.is_full:
                upstream.transport.resume_reading()
            keep_s = self.kept_s if self.trusted else -1.0
            if self.stream is None or upstream.backend.keeps_streams:
                upstream.release(keep_s, self.router.time())
            else:
                upstream.rest(keep_s, self.router.time())
        status = self.status
        self.finish("ok" if status < 400 else "client_error" if status < 500 else "engine_error", keep=True)

    def refuse(self, fault: Fault) -> None:
        """The router's own answer, where the client has had no byte yet."""
        self.status = fault.status
        self.front.answer_fault(fault, self.route.dialect, self.request_id)
        self.finish(fault.code, keep=True)

    def lost(self, *, untaken: bool) -> None:
        """The engine closed the connection."""
        self.upstream = None
        if self.relay is not None:
            self.relay.eof()
        else:
            self.failed(Trouble.NOT_TAKEN if untaken else Trouble.LOST, ENGINE_GONE)

    def failed(self, trouble: Trouble, fault: Fault) -> None:
        """An attempt came to nothing before the client had a byte: another one, where that is safe."""
        backend = self._leave_backend()
        if trouble is not Trouble.NOT_TAKEN:
            self.router.condemn(backend, self.group)
            self.tried = (*self.tried, backend.url)
        self.router.note_trouble(trouble)
        elsewhere = trouble is Trouble.NOT_TAKEN or any(b.url not in self.tried for b in self.group.open)
        if elsewhere and may_try_again(trouble, self.attempts, self.router.budget):
            self.forward()
        else:
            self.backend = backend
            backend.enter()
            self.refuse(fault)

    def declined(self, reply: ReplyHead, body: bytes) -> None:
        """The engine's own word that it did not start: elsewhere, or its answer for want of anywhere else."""
        backend = self._leave_backend()
        self.router.condemn(backend, self.group)
        self.router.note_trouble(Trouble.DECLINED)
        self.tried = (*self.tried, backend.url)
        elsewhere = any(b.url not in self.tried for b in self.group.open)
        if elsewhere and may_try_again(Trouble.DECLINED, self.attempts, self.router.budget):
            self.forward()
            return
        self.backend = backend
        backend.enter()
        self.status = reply.status
        self.front.write(self._head(reply) + body)
        self.finish("engine_error", keep=True)

    def _leave_backend(self) -> "Backend":
        backend, self.backend = self.backend, None
        assert backend is not None
        backend.leave()
        return backend

    def misanswered(self) -> None:
        """What the engine sent is not HTTP."""
        self.drop_upstream()
        if self.phase == ANSWERING:
            self.condemn()
            self.end_early(ENGINE_BAD)
        else:
            self.failed(Trouble.LOST, ENGINE_BAD)

    def condemn(self) -> None:
        if self.backend is not None:
            self.router.condemn(self.backend, self.group)

    def cut(self) -> None:
        """The engine's answer ended before it was complete."""
        self.condemn()
        self.end_early(ENGINE_CUT)

    def end_early(self, fault: Fault) -> None:
        """Ends an answer that has begun: a stream says why, then the connection closes without the body's end."""
        self.drop_upstream()
        if self.stream is not None:
            event = fault_event(fault, self.route.dialect, self.request_id.decode())
            self.write(chunk(event) if self.frames_pass else event)
        self.finish(fault.code, keep=False)

    def stop(self, fault: Fault) -> None:
        """Ends it now, whatever its phase: with an answer where none has begun, with an event in a stream."""
        if self.phase == ANSWERING:
            self.end_early(fault)
            return
        if self.dialing is not None:
            self.dialing.cancel()
            self.dialing = None
        self.drop_upstream()
        self.router.unqueue(self)
        self.refuse(fault)

    def abandoned(self) -> None:
        """The client has left: the engine is told by closing its connection, at once."""
        if self.dialing is not None:
            self.dialing.cancel()
            self.dialing = None
        self.drop_upstream()
        self.router.unqueue(self)
        self.finish("client_left", keep=False)

    def expire(self, now: float) -> None:
        """The deadline of the phase has passed."""
        self.router.expire(self, now)

    def drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.drop()

    def finish(self, outcome: str, *, keep: bool) -> None:
        """The one end of every exchange.

        Lets go of the relay, which holds it: no cycle waits for the collector.
        """
        self.router.finished(self, outcome)
        self.relay = self.stream = None
        self.front.exchange_over(keep=keep)
