"""A connection to an engine: HTTP/1.1 on a bare transport, the answer's bytes handed on as they arrive."""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from llmgw.serving.reply import LONGEST_HEAD, ReplyError, read_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmgw.router.backends import Backend
    from llmgw.router.exchange import Exchange

_BYTES_ACKED = struct.Struct("=120xQ")  # struct tcp_info of linux/tcp.h: tcpi_bytes_acked, since Linux 4.1
_USER_TIMEOUT_MS = 30_000


def _ignore(_: bytes) -> None:
    """Takes bytes of a connection that was given up. A plain function, so that the connection holds no cycle."""


class Upstream:
    """One connection, one exchange at a time. `take` is what gets the next bytes.

    It has the methods of asyncio.Protocol and does not inherit from it: a compiled class cannot.
    """

    __slots__ = (
        "_acked_first",
        "_head",
        "_sent",
        "_sent_before",
        "backend",
        "exchange",
        "is_open",
        "released_at",
        "reused",
        "take",
        "transport",
        "usable_until",
    )

    def __init__(self, backend: "Backend") -> None:
        self.backend = backend
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.exchange: Exchange | None = None
        self.take: Callable[[bytes], None] = self._unasked
        self._head = b""
        self.is_open = False
        self.reused = False
        self.released_at = 0.0
        self.usable_until = 0.0
        self._sent = 0
        self._sent_before = 0
        self._acked_first = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.is_open = True
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
            if not self.backend.secure:
                self._acked_first = self._acked()

    def send(self, exchange: "Exchange", head: bytes, body: bytes) -> None:
        """Sends one request and hands the answer to the exchange."""
        self.exchange = exchange
        self.take = self._answer
        self._sent_before = self._sent
        self._sent += len(head) + len(body)
        if len(body) < 16384:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def _unasked(self, _: bytes) -> None:
        """Bytes that no request asked for: nothing on this connection can be trusted any more."""
        self.drop()

    def _answer(self, data: bytes) -> None:
        if self._head:
            data = self._head + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            if len(data) > LONGEST_HEAD:
                self._bad()
            return
        self._head = b""
        try:
            reply = read_reply(data[:end])
        except ReplyError:
            self._bad()
            return
        rest = data[end + 4 :]
        if reply.status < 200:  # 100 Continue and 103 Early Hints come before the answer
            if rest:
                self._answer(rest)
            return
        assert self.exchange is not None
        self.exchange.answered(self, reply, rest)

    def _bad(self) -> None:
        exchange = self.drop()
        if exchange:
            exchange.misanswered()

    def release(self, keep_s: float, now: float) -> None:
        """The exchange is over.

        The connection is kept for `keep_s` seconds, or closed where that is not above 0.
        """
        if self._is_kept(keep_s, now):
            self.backend.idle.append(self)

    def rest(self, keep_s: float, now: float) -> None:
        """As release, but the connection has a rest first, in which an engine that will close it does so."""
        if self._is_kept(keep_s, now):
            self.backend.resting.append(self)

    def _is_kept(self, keep_s: float, now: float) -> bool:
        self.exchange = None
        self.take = self._unasked
        if keep_s <= 0 or not self.is_open or self.backend.left_at:
            self.drop()
            return False
        self.reused = True
        self.released_at = now
        self.usable_until = now + keep_s
        return True

    def drop(self) -> "Exchange | None":
        """Closes at once, which is how an engine learns that nobody waits any more; gives the exchange it had."""
        exchange, self.exchange = self.exchange, None
        self.take = _ignore
        self.is_open = False
        self.transport.abort()
        return exchange

    def pause_writing(self) -> None:
        """The engine reads slowly: what it is sent is one request, which is held in any case."""

    def resume_writing(self) -> None:
        """It has read it."""

    def eof_received(self) -> bool:
        self._lost(untaken=self._is_untaken())
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._lost(untaken=False)

    def _is_untaken(self) -> bool:
        """Whether the engine closed before its kernel had any byte of the request.

        A FIN carries an acknowledgement of all that had arrived by then. Where it acknowledges nothing of the
        request, the request came to a closed socket and no engine can have read it.
        """
        if not self.reused or self._acked_first < 0:
            return False
        acked = self._acked()
        return 0 <= acked - self._acked_first <= self._sent_before

    def _lost(self, *, untaken: bool) -> None:
        """The engine is gone."""
        self.is_open = False
        self.take = _ignore
        self.backend.forget(self)
        exchange, self.exchange = self.exchange, None
        if exchange:
            if self.reused:
                self.backend.keeps_streams = False
            exchange.lost(untaken=untaken)

    def _acked(self) -> int:
        """Bytes of ours that the engine's kernel has acknowledged; -1 where that cannot be told."""
        raw = self.transport.get_extra_info("socket")
        if raw is None:
            return -1
        try:
            value = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        except OSError:
            return -1
        return int(_BYTES_ACKED.unpack(value)[0]) if len(value) == 128 else -1
