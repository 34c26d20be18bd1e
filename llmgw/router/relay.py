"""How an answer's body goes from the engine to the client: as it comes, and never further than the client reads."""

from typing import TYPE_CHECKING, Protocol

from llmgw.serving.events import (
    Usage,
    body_usage,
    count_events,
    event_end,
    is_complete,
    merged,
    says_usage,
    sift,
    told,
)
from llmgw.serving.framing import END, Dechunker, FramingError, chunk, whole_chunks

if TYPE_CHECKING:
    from llmgw.router.exchange import Exchange
    from llmgw.serving.reply import ReplyHead

_WHOLE_BODY = 256 * 1024
_TAIL = 8 * 1024
_LONGEST_EVENT = 4 << 20


class Relay(Protocol):
    """One answer's body. `feed` passes the next bytes on; `eof` says what the engine's end of sending means."""

    usage: Usage | None

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
            self._size = max(len(tail), _TAIL)

    def usage(self) -> Usage | None:
        return body_usage(b"".join(self._parts))


class SizedBody:
    """A body of known length."""

    __slots__ = ("_collected", "_exchange", "_left", "usage")

    def __init__(self, exchange: "Exchange", length: int) -> None:
        self._exchange = exchange
        self._left = length
        self._collected = Collected()
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> None:
        if len(data) > self._left:
            data = data[: self._left]
            self._exchange.distrust()
        self._left -= len(data)
        self._collected.add(data)
        self._exchange.write(data)
        if not self._left:
            self.usage = self._collected.usage()
            self._exchange.complete()

    def eof(self) -> None:
        self._exchange.cut()


class ChunkedBody:
    """A chunked body that is no event stream. Its framing passes as it came, or is taken off for HTTP/1.0."""

    __slots__ = ("_collected", "_exchange", "_frames", "usage")

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._frames = Dechunker()
        self._collected = Collected()
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> None:
        try:
            payload = self._frames.feed(data)
        except FramingError:
            self._exchange.misanswered()
            return
        self._collected.add(payload)
        self._exchange.write(data if self._exchange.frames_pass else payload)
        if self._frames.done:
            self.usage = self._collected.usage()
            self._exchange.complete()

    def eof(self) -> None:
        self._exchange.cut()


class BodyUntilClose:
    """A body that ends with the connection, from an engine that speaks HTTP/1.0."""

    __slots__ = ("_collected", "_exchange", "usage")

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._collected = Collected()
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> None:
        self._collected.add(data)
        self._exchange.write(chunk(data) if self._exchange.frames_pass else data)

    def eof(self) -> None:
        self.usage = self._collected.usage()
        self._exchange.write(END if self._exchange.frames_pass else b"")
        self._exchange.complete()


class EventStream:
    """Server-sent events. Whole chunks of whole events pass as they came; all else is cut at the ends of events.

    A client can do nothing with half an event, so half of one waits for its rest: then an engine's death leaves the
    client at the end of an event, where the error can be told. An event that only tells usage is taken out where the
    client had not asked for it.
    """

    __slots__ = ("_exchange", "_frames", "_held", "_last", "_left", "_plain", "_strip", "events", "usage")

    def __init__(self, exchange: "Exchange", reply: "ReplyHead", *, strip: bool) -> None:
        self._exchange = exchange
        self._frames = Dechunker() if reply.chunked else None
        self._left = reply.length
        self._strip = strip
        self._plain = not exchange.frames_pass
        self._held = b""  # the beginning of an event whose end is still to come
        self._last = b""  # what was passed on last, where the mark of the end is looked for
        self.events = 0
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> None:
        frames = self._frames
        if frames is None or self._plain or self._held or not frames.clean:
            self._feed_slowly(data)
            return
        kind = whole_chunks(data)
        if kind == 1 and data.endswith(b"\n\n\r\n") and (b'"usage"' not in data or not says_usage(data)):
            if not self.events:
                self._exchange.first_byte()
            self.events += data.count(b"data: {")
            self._last = data
            self._exchange.write(data)
        else:
            self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> None:
        try:
            payload = self._payload(data)
        except FramingError:
            self._exchange.misanswered()
            return
        if not self.events:
            self._exchange.first_byte()
        payload = self._held + payload
        end = len(payload) if len(payload) > _LONGEST_EVENT else event_end(payload)
        whole, self._held = payload[:end], payload[end:]
        if whole:
            self._pass(whole)
        if (self._frames is not None and self._frames.done) or self._left == 0:
            self.eof()

    def _payload(self, data: bytes) -> bytes:
        if self._frames is not None:
            return self._frames.feed(data)
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return data

    def _pass(self, whole: bytes) -> None:
        self.events += count_events(whole)
        self._last = self._last[-64:] + whole
        if says_usage(whole):
            if self._strip:
                sifted = sift(whole)
                whole, usage = sifted.kept, sifted.usage
            else:
                usage = told(whole)
            self.usage = merged(self.usage, usage)
        self._exchange.write(whole if self._plain else chunk(whole))

    def eof(self) -> None:
        """The engine has sent all that it will: well, if it said so in the dialect's way."""
        ended = self._frames is None or self._frames.done
        if self._held and ended and not is_complete(self._last, self._exchange.route.dialect):
            self._pass(self._held)
            self._held = b""
        if ended and self._left in (None, 0) and is_complete(self._last, self._exchange.route.dialect):
            self._exchange.write(b"" if self._plain else END)
            self._exchange.complete()
        else:
            self._exchange.cut()
