"""A connection from a client: llhttp reads requests from it, exchanges write their answers to it."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from llmgw.router.exchange import Exchange, Request
from llmgw.serving.faults import (
    CROWDED,
    ENCODED,
    HEAD_TOO_LARGE,
    MALFORMED,
    NOT_FORM,
    NOT_FOUND,
    NOT_JSON,
    SLOW,
    TOO_LARGE,
    Fault,
    fault_body,
    method_fault,
)
from llmgw.serving.headers import READ, bearer, is_json
from llmgw.serving.reply import status_line
from llmgw.serving.routes import MODELS, OWN, ROUTES, Dialect, path_of

if TYPE_CHECKING:
    from llmgw.router.core import Router

IDLE, HEAD, BODY, BUSY = range(4)
_MODEL_PAGE = MODELS + b"/"


class Refused(Exception):  # noqa: N818
    """Raised inside the parser's callbacks to leave it; carries why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


class Front(asyncio.Protocol):
    """One client connection. Requests are answered one at a time, in their order."""

    __slots__ = (
        "_fault", "_head_bytes", "_headers", "_parser", "_request", "_target", "_waiting", "address", "deadline",
        "exchange", "is_full", "is_over", "phase", "received", "router", "since", "stalled_since", "transport",
        "will_keep", "write",
    )  # fmt: skip

    def __init__(self, router: "Router") -> None:
        self.router = router
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._target = b""
        self._head_bytes = 0
        self._request: Request | None = None
        self._fault: Fault | None = None
        self.exchange: Exchange | None = None
        self.phase = IDLE
        self.deadline = 0.0
        self.since = 0.0
        self.received = 0
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
        self.deadline = self.router.time() + self.router.config.deadlines.head_s
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else "unix"
        if not self.router.welcome(self):
            self._give_up(CROWDED)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_over = True
        self.router.farewell(self)
        if self.exchange is not None:
            exchange, self.exchange = self.exchange, None
            exchange.abandoned()

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
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Refused):
                raise
            self._give_up(cause.fault)
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up(MALFORMED)
            return
        if self._waiting:
            if self.exchange is None:
                self._next()
        elif self.phase == IDLE or self.phase == HEAD:
            self._head_is_slow(len(data))

    def _head_is_slow(self, size: int) -> None:
        """A head that did not come in one piece is counted and timed."""
        if self.phase == IDLE and self.exchange is None:
            self.phase = HEAD
            self.deadline = self.router.time() + self.router.config.deadlines.head_s
        self._head_bytes += size
        if self._head_bytes > self.router.config.limits.head:
            self._give_up(HEAD_TOO_LARGE)

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in READ:
            if name in self._headers or self._request is not None:
                raise Refused(MALFORMED)
            self._headers[name] = value
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.router.config.limits.head:
            raise Refused(HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        request = Request(
            parser.get_method(), self._target, headers, version != "1.1", parser.should_keep_alive() and version == "1.1"
        )
        self._check(request)
        self._request = request
        self._headers, self._target, self._head_bytes = {}, b"", 0
        self.received = 0
        if self.exchange is None:
            self.phase = BODY
            self.since = self.router.now
        if b"expect" in headers and self.exchange is None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check(self, request: Request) -> None:
        """Everything that the head alone can be refused for; the body is not waited for then."""
        headers = request.headers
        coding = headers.get(b"transfer-encoding")
        if self._parser.should_upgrade() or (request.http10 and coding) or (coding and coding.lower() != b"chunked"):
            raise Refused(MALFORMED)
        if (b"host" not in headers and not request.http10) or self._parser.get_http_version() not in ("1.0", "1.1"):
            raise Refused(MALFORMED)
        expect = headers.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            raise Refused(MALFORMED)
        fault = self._route(request)
        if fault is not None:
            raise Refused(fault)

    def _route(self, request: Request) -> Fault | None:
        path = path_of(request.target)
        request.route = route = ROUTES.get(path)
        if route is None:
            if path not in OWN and not path.startswith(_MODEL_PAGE):
                return NOT_FOUND if request.target.startswith(b"/") else MALFORMED
            if request.method not in (b"GET", b"HEAD"):
                return method_fault("GET")
            return self.router.identify(request) if path.startswith(MODELS) else None
        if request.method != b"POST":
            return method_fault("POST")
        return self.router.identify(request) or self._check_body(request, multipart=route.multipart)

    def _check_body(self, request: Request, *, multipart: bool) -> Fault | None:
        headers, limits = request.headers, self.router.config.limits
        if headers.get(b"content-encoding", b"identity") != b"identity":
            return ENCODED
        kind = headers.get(b"content-type")
        if multipart and not (kind and kind[:20].lower() == b"multipart/form-data;"):
            return NOT_FORM
        if not multipart and kind != b"application/json" and not is_json(kind):
            return NOT_JSON
        length = headers.get(b"content-length", b"0")
        return TOO_LARGE if int(length) > (limits.form if multipart else limits.body) else None

    def on_body(self, part: bytes) -> None:
        request = self._request
        if request is None:
            return
        request.chunks.append(part)
        self.received += len(part)
        limits = self.router.config.limits
        if self.received > (limits.form if request.route and request.route.multipart else limits.body):
            raise Refused(TOO_LARGE)

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        chunks = request.chunks
        request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        request.chunks = []
        self._waiting.append(request)
        if len(self._waiting) > self.router.config.limits.pipelined:
            raise Refused(CROWDED)

    def _next(self) -> None:
        request = self._waiting.popleft()
        self.phase = BUSY
        self.will_keep = request.keeps and not self.router.stopping
        if request.route is not None:
            self.exchange = exchange = Exchange(self.router, self, request, request.route)
            self.router.exchanges.add(exchange)
            exchange.start()
        else:
            status, kind, body = self.router.own_page(request)
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
            self._close()
        elif self._fault is not None:
            self._give_up(self._fault)
        elif self._waiting:
            self.router.loop.call_soon(self._resume)
        else:
            self.phase = IDLE
            self.deadline = self.router.now + self.router.config.deadlines.keep_alive_s

    def _resume(self) -> None:
        if self._waiting and self.exchange is None and not self.is_over:
            self._next()

    def _give_up(self, fault: Fault) -> None:
        """Answers with the fault, after what is under way, and closes: what else comes cannot be understood."""
        if self.exchange is not None:
            self._fault = fault
            self.transport.pause_reading()
            return
        self.will_keep = False
        self.router.refused(fault)
        dialect = Dialect.ANTHROPIC if self._target.startswith(b"/v1/messages") else Dialect.OPENAI
        self.answer_fault(fault, dialect, self.router.request_id(None))
        self._close()

    def _close(self) -> None:
        self.is_over = True
        self.transport.close()

    def expire(self, now: float) -> None:
        """What a sweep does with a connection that has been in one phase for too long."""
        deadlines = self.router.config.deadlines
        if self.phase == IDLE and now > self.deadline:
            self._close()
        elif self.phase == HEAD and now > self.deadline:
            self._give_up(SLOW)
        elif self.phase == BODY and now - self.since > deadlines.head_s + self.received / self.router.config.limits.body_rate:
            self._give_up(SLOW)
        elif self.is_full and now - self.stalled_since > deadlines.stalled_client_s:
            self.is_over = True
            self.transport.abort()
