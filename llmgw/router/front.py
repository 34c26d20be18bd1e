"""A connection from a client: llhttp reads requests from it, exchanges write their answers to it."""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import httptools

from llmgw.router.exchange import Exchange
from llmgw.router.heads import check_head
from llmgw.router.pages import own_page
from llmgw.router.request import Request
from llmgw.serving.faults import (
    BROKEN,
    CROWDED,
    HEAD_TOO_LARGE,
    MALFORMED,
    SLOW,
    TOO_LARGE,
    Fault,
    fault_body,
)
from llmgw.serving.headers import READ
from llmgw.serving.reply import status_line
from llmgw.serving.routes import Dialect

if TYPE_CHECKING:
    from llmgw.router.core import Router

log = logging.getLogger("llmgw.router")
IDLE, HEAD, BODY, BUSY, LEAVING = range(5)
_LEAVE_S = 2.0
_LONG_READ = 16 * 1024


class Refused(Exception):  # noqa: N818
    """Raised inside the parser's callbacks to leave it; carries why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


class Front:
    """One client connection. Requests are answered one at a time, in their order.

    It has the methods of asyncio.Protocol and does not inherit from it: a compiled class cannot.
    """

    __slots__ = (
        "_fault", "_head_bytes", "_headers", "_parser", "_ready", "_request", "_served", "_target", "_waiting",
        "address", "deadline", "exchange", "is_full", "is_over", "phase", "router", "since", "stalled_since",
        "transport", "will_keep", "write",
    )  # fmt: skip

    def __init__(self, router: "Router") -> None:
        self.router = router
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._target = b""
        self._head_bytes = 0
        self._request: Request | None = None
        self._fault: Fault | None = None
        self.exchange: Exchange | None = None
        self.phase = IDLE
        self._served = False
        self.since = 0.0
        self._ready: Request | None = None
        self.stalled_since = 0.0
        self.is_full = False
        self.is_over = False
        self.will_keep = True
        self.address = ""

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(self.router.config.limits.write_buffer)
        self.write = self.transport.write
        self.since = self.router.time()
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else "unix"
        if not self.router.welcome(self):
            self._give_up(CROWDED)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_over = True
        self._parser = None  # which holds this connection's methods: no cycle is to wait for the collector
        self.router.farewell(self)
        if self.exchange is not None:
            exchange, self.exchange = self.exchange, None
            exchange.abandoned()

    def eof_received(self) -> None:
        """The client will send nothing more: the transport closes."""

    def pause_writing(self) -> None:
        """The client reads more slowly than the engine sends: the engine has to wait."""
        self.is_full = True
        self.stalled_since = self.router.time()
        if self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.transport.resume_reading()

    # -- requests

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        try:
            if len(data) > _LONG_READ and self._request is None and self._is_too_long(data):
                self._give_up(HEAD_TOO_LARGE)
                return
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self._leave_parser(error)
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up(MALFORMED)
            return
        request = self._ready
        if request is not None:
            self._ready = None
            self._begin(request)
        elif self._request is None and self.exchange is None:
            self._head_is_slow(len(data))

    def _is_too_long(self, data: bytes) -> bool:
        """Whether a long read that begins with a head, or goes on with one, holds too much of it."""
        return data.find(b"\r\n\r\n", 0, self.router.config.limits.head) < 0

    def _leave_parser(self, error: Exception) -> None:
        cause = error.__context__
        if isinstance(cause, Refused):
            self._give_up(cause.fault)
        else:
            log.error("request_failed", exc_info=cause)
            self._give_up(BROKEN)

    def _head_is_slow(self, size: int) -> None:
        """A head that did not come in one piece is counted and timed."""
        if self.phase == IDLE:
            self.phase = HEAD
            self.since = self.router.time()
        self._head_bytes += size
        if self._head_bytes > self.router.config.limits.head:
            self._give_up(HEAD_TOO_LARGE)

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in READ and self._headers.setdefault(name, value) is not value:
            raise Refused(MALFORMED)

    def on_headers_complete(self) -> None:
        parser, headers, target = self._parser, self._headers, self._target
        self._request = request = Request(parser.get_method(), target, headers)
        self._target, self._headers = b"", {}
        self._head_bytes = 0
        fault = check_head(parser, request, self.router.config.limits) or self.router.identify(request)
        if fault is not None:
            raise Refused(fault)
        if self.exchange is None:
            self.phase = BODY
            self.since = self.router.now
            if b"expect" in headers:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        request = self._request
        if request is None or request.route is None:
            return
        request.chunks.append(part)
        if request.unsized:
            limits = self.router.config.limits
            if request.received > (limits.form if request.route.multipart else limits.body):
                raise Refused(TOO_LARGE)

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        if self._headers:  # trailers, which say nothing
            self._headers = {}
        if request is None:
            return
        chunks = request.chunks
        request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if self.exchange is None and self._ready is None:
            self._ready = request
            return
        self._waiting.append(request)
        self.transport.pause_reading()  # one request ahead is enough to hold
        if len(self._waiting) > self.router.config.limits.pipelined:
            raise Refused(CROWDED)

    def _begin(self, request: Request) -> None:
        router = self.router
        self.phase = BUSY
        self._served = True
        self.will_keep = request.keeps and not router.stopping
        if request.route is not None:
            self.exchange = exchange = Exchange(router, self, request, request.route)
            router.exchanges.add(exchange)
            exchange.start()
        else:
            status, kind, body = own_page(router, request)
            self.answer(status, body, kind=kind, bare=request.method == b"HEAD")
            self.exchange_over(keep=True)

    # -- answers

    def answer(self, status: int, body: bytes, *, kind: bytes, more: bytes = b"", bare: bool = False) -> None:
        """An answer of the router's own. `more` are further header lines; `bare` sends the head alone."""
        close = b"" if self.will_keep else b"connection: close\r\n"
        head = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n" % (
            status_line(status), kind, len(body), more, close,
        )  # fmt: skip
        self.write(head if bare else head + body)

    def answer_fault(self, fault: Fault, dialect: Dialect, request_id: bytes) -> None:
        more = b"x-request-id: %b\r\n" % request_id
        if fault.retry_after is not None:
            more += b"retry-after: %d\r\n" % fault.retry_after
        if fault.status == 401:
            more += b'www-authenticate: Bearer realm="llmgw"\r\n'
        if fault.allow:
            more += b"allow: %b\r\n" % fault.allow.encode()
        body = fault_body(fault, dialect, request_id.decode())
        self.answer(fault.status, body, kind=b"application/json", more=more)

    def exchange_over(self, *, keep: bool) -> None:
        """The answer is written; the next request may begin."""
        self.exchange = None
        if self.is_over:
            return
        if not keep or not self.will_keep:
            self.close()
        elif self._waiting:
            self.router.loop.call_soon(self._resume)
        elif self._fault is not None:
            self._give_up(self._fault)
        else:
            self.phase = IDLE if self._request is None else BODY
            self.since = self.router.now

    def _resume(self) -> None:
        if self._waiting and self.exchange is None and not self.is_over:
            request = self._waiting.popleft()
            if not self._waiting and self._fault is None:
                self.transport.resume_reading()
            self._begin(request)

    def _give_up(self, fault: Fault) -> None:
        """Answers with the fault, after what is under way, and closes: what else comes cannot be understood."""
        if self.exchange is not None or self._ready is not None:
            self._fault = fault
            self.transport.pause_reading()
            request, self._ready = self._ready, None
            if request is not None:
                self._begin(request)
            return
        self.will_keep = False
        self.router.refused(fault)
        request = self._request
        given = request.headers.get(b"x-request-id") if request is not None else None
        dialect = request.route.dialect if request is not None and request.route is not None else Dialect.OPENAI
        self.answer_fault(fault, dialect, self.router.request_id(given))
        self._leave()

    def _leave(self) -> None:
        """Closes this side, and reads on for a moment: a close with bytes unread would take the answer back."""
        self.is_over = True
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.phase = LEAVING
        self.since = self.router.time()
        self.transport.write_eof()
        self.transport.resume_reading()

    def close(self) -> None:
        self.is_over = True
        self.transport.close()

    def expire(self, now: float) -> None:
        """What a sweep does with a connection that has been in one phase for too long."""
        deadlines, phase = self.router.config.deadlines, self.phase
        if phase == LEAVING:
            if now - self.since > _LEAVE_S:
                self.transport.abort()
        elif self.is_full and now - self.stalled_since > deadlines.stalled_client_s:
            self.is_over = True
            self.transport.abort()
        elif phase == IDLE and now - self.since > (deadlines.keep_alive_s if self._served else deadlines.head_s):
            self.close()
        elif phase == HEAD and now - self.since > deadlines.head_s:
            self._give_up(SLOW)
        elif phase == BODY:
            received = self._request.received if self._request is not None else 0
            allowed = deadlines.head_s + received / self.router.config.limits.body_rate
            if now - self.since > allowed:
                self._give_up(SLOW)
