"""How an answer's body goes from the engine to the client.

As it comes, and never further than the client reads.
"""

from typing import TYPE_CHECKING, Protocol

from llmgw.serving.events import (
    body_usage,
    count_events,
    event_end,
    is_complete,
    merged,
    says_nothing,
    says_usage,
    sift,
    told,
)
from llmgw.serving.failover import says_not_started
from llmgw.serving.framing import END, Dechunker, FramingError, chunk, is_one_chunk, whole_chunks

if TYPE_CHECKING:
    from llmgw.router.exchange import Exchange
    from llmgw.router.upstream import Upstream
    from llmgw.serving.reply import ReplyHead

_WHOLE_BODY = 256 * 1024
_TAIL = 8 * 1024
_LONGEST_EVENT = 4 << 20


class Relay(Protocol):
    """One answer's body.

    `feed` passes the next bytes on; `eof` says what the engine's end of sending means. `progress` changes whenever
    the engine has got further.
    """

    progress: int

    def feed(self, data: bytes) -> None: ...
    def eof(self) -> None: ...


class Collected:
    """An answer's body as far as its usage needs it: the whole of a short one, the end of a long one."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, payload: bytes) -> None:
        self._parts.append(payload)
        self._size += len(payload)
        if self._size > _WHOLE_BODY:
            tail = b"".join(self._parts[-2:])[-_TAIL:]
            self._parts = [tail]
            self._size = _WHOLE_BODY - len(tail)

    def tell(self, exchange: "Exchange") -> None:
        if exchange.status == 200:
            exchange.usage = body_usage(b"".join(self._parts))


class SizedBody:
    """A body of known length."""

    def __init__(self, exchange: "Exchange", length: int) -> None:
        self._exchange = exchange
        self._collected = Collected()
        self.progress = length

    def feed(self, data: bytes) -> None:
        if len(data) > self.progress:
            data = data[: self.progress]
            self._exchange.trusted = False
        self.progress -= len(data)
        self._collected.add(data)
        self._exchange.write(data)
        if not self.progress:
            self._collected.tell(self._exchange)
            self._exchange.complete()

    def eof(self) -> None:
        self._exchange.cut()


class ChunkedBody:
    """A chunked body that is no event stream. Its framing passes as it came, or is taken off for HTTP/1.0."""

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._frames = Dechunker()
        self._collected = Collected()
        self.progress = 0

    def feed(self, data: bytes) -> None:
        try:
            payload = self._frames.feed(data)
        except FramingError:
            self._exchange.misanswered()
            return
        self.progress += 1
        self._collected.add(payload)
        self._exchange.write(data if self._exchange.frames_pass else payload)
        if self._frames.done:
            self._collected.tell(self._exchange)
            self._exchange.complete()

    def eof(self) -> None:
        self._exchange.cut()


class BodyUntilClose:
    """A body that ends with the connection, from an engine that speaks HTTP/1.0."""

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._collected = Collected()
        self.progress = 0

    def feed(self, data: bytes) -> None:
        self.progress += 1
        self._collected.add(data)
        self._exchange.write(chunk(data) if self._exchange.frames_pass else data)

    def eof(self) -> None:
        self._collected.tell(self._exchange)
        self._exchange.write(END if self._exchange.frames_pass else b"")
        self._exchange.complete()


class EventStream:
    """Server-sent events. Whole chunks of whole events pass as they came; all else is cut at the ends of events.

    A client can do nothing with half an event, so half of one waits for its rest: then an engine's death leaves
    the client at the end of an event, where the error can be told. An event that only tells usage is taken out
    where the client had not asked for it. `progress` counts events: an engine that only sends comments does not
    get further.
    """

    __slots__ = (
        "_begun",
        "_exchange",
        "_flows",
        "_frames",
        "_held",
        "_last",
        "_left",
        "_plain",
        "_strip",
        "_write",
        "progress",
    )

    def __init__(self, exchange: "Exchange", reply: "ReplyHead", *, strip: bool) -> None:
        self._exchange = exchange
        self._frames = Dechunker() if reply.chunked else None
        self._left = reply.length
        self._strip = strip
        self._plain = not exchange.frames_pass
        self._begun = False
        self._flows = False  # whether the next read starts a chunk and an event, so that it may pass as it is
        self._held = b""  # the beginning of an event whose end is still to come
        self._last = b""  # what was passed on last, where the mark of the end is looked for
        self._write = exchange.front.write
        self.progress = 0

    def feed(self, data: bytes) -> None:
        if (
            self._flows
            and data.endswith(b"\n\n\r\n")
            and (is_one_chunk(data) or whole_chunks(data) == 1)
            and (b'"usage"' not in data or not says_usage(data))
        ):
            self.progress += data.count(b"data: {")
            self._last = data
            self._write(data)
        else:
            self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> None:
        """Takes the framing off, cuts at the end of an event, and frames again."""
        try:
            payload = self._payload(data)
        except FramingError:
            self._exchange.misanswered()
            return
        payload = self._held + payload
        end = len(payload) if len(payload) > _LONGEST_EVENT else event_end(payload)
        whole, self._held = payload[:end], payload[end:]
        if whole:
            self._pass(whole)
        if self._ended():
            self.eof()
            return
        if self._exchange.opening:
            self._exchange.write(b"")
        frames = self._frames
        self._flows = self._begun and not self._plain and not self._held and frames is not None and frames.clean

    def _payload(self, data: bytes) -> bytes:
        if self._frames is not None:
            return self._frames.feed(data)
        if self._left is not None:
            if len(data) > self._left:
                self._exchange.trusted = False
            data = data[: self._left]
            self._left -= len(data)
        return data

    def _ended(self) -> bool:
        return self._left == 0 if self._frames is None else self._frames.done

    def _pass(self, whole: bytes) -> None:
        events = count_events(whole)
        if events and not self._begun:
            self._begun = True
            self._exchange.first_event()
            events -= says_nothing(whole)
        self.progress += events
        self._last = self._last[-64:] + whole
        if says_usage(whole):
            usage, kept = (told(whole), whole) if not self._strip else sift(whole)
            self._exchange.usage = merged(self._exchange.usage, usage)
            whole = kept
        self._exchange.write(whole if self._plain else chunk(whole))

    def eof(self) -> None:
        """The engine has sent all that it will: well, if it said so in the dialect's way."""
        exchange = self._exchange
        ended = self._ended() or (self._frames is None and self._left is None)
        if ended and self._held and is_complete(self._last[-64:] + self._held, exchange.route.dialect):
            self._pass(self._held)
        if ended and is_complete(self._last, exchange.route.dialect):
            exchange.write(b"" if self._plain else END)
            exchange.complete()
        else:
            exchange.cut()


class HeldAnswer:
    """A short 503 kept back whole, to see whether the engine says that it has not begun."""

    def __init__(self, exchange: "Exchange", upstream: "Upstream", reply: "ReplyHead") -> None:
        self._exchange = exchange
        self._upstream = upstream
        self._reply = reply
        self._body = b""
        self.progress = 0

    def feed(self, data: bytes) -> None:
        self._body += data
        self.progress += 1
        reply, exchange = self._reply, self._exchange
        if len(self._body) < (reply.length or 0):
            return
        exchange.relay = None
        if says_not_started(reply.status, self._body):
            exchange.drop_upstream()
            exchange.declined(reply, self._body[: reply.length])
        else:
            exchange.pass_on(self._upstream, reply, self._body[: reply.length])

    def eof(self) -> None:
        self._exchange.relay = None
        self._exchange.lost(untaken=False)
