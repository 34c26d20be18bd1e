"""The head of an engine's answer: read strictly, and turned into the head that the client gets."""

import re
from dataclasses import dataclass
from http import HTTPStatus

LONGEST_HEAD = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n\x00]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*)")
_SECONDS = re.compile(rb"timeout=([0-9]{1,6})")
_PASSED = frozenset((b"content-type", b"content-encoding", b"content-language", b"cache-control", b"retry-after"))
_REASONS = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in HTTPStatus}


class ReplyError(ValueError):
    """What came is not the head of an HTTP/1.1 answer, or two answers could be read from it."""


@dataclass(slots=True)
class ReplyHead:
    """An answer's head. `length` is None where the body is chunked or ends with the connection.

    `passed` are the header lines that the client gets as they came, each with its CRLF. `kept_s` is how long the
    engine says that it keeps an idle connection (Keep-Alive: timeout=).
    """

    status: int
    passed: bytes = b""
    length: int | None = None
    chunked: bool = False
    keeps: bool = True
    event_stream: bool = False
    encoded: bool = False
    retry_after: bytes = b""
    kept_s: float | None = None

    @property
    def has_body(self) -> bool:
        return self.status not in (204, 304) and self.length != 0


def read_reply(head: bytes) -> ReplyHead:
    """The head up to, not with, its empty line. ReplyError where it can be read in two ways or not at all."""
    lines = head.split(b"\r\n")
    status = _STATUS.fullmatch(lines[0])
    if not status:
        raise ReplyError("no status line")
    reply = ReplyHead(int(status[2]), keeps=status[1] == b"1")
    passed: list[bytes] = []
    for line in lines[1:]:
        field = _FIELD.fullmatch(line)
        if not field:
            raise ReplyError("a line that is no header")
        name = field[1].lower()
        if name in _PASSED:
            passed.append(line)
        if name in _READERS:
            _READERS[name](reply, field[2].strip(b" \t"))
    if reply.chunked and reply.length is not None:
        raise ReplyError("both a length and chunks")
    reply.passed = b"\r\n".join((*passed, b"")) if passed else b""
    return reply


def _content_length(reply: ReplyHead, value: bytes) -> None:
    if reply.length is not None or not value.isdigit() or len(value) > 18:
        raise ReplyError("a length that is no number, or two of them")
    reply.length = int(value)


def _transfer_encoding(reply: ReplyHead, value: bytes) -> None:
    if reply.chunked or value.lower() != b"chunked":
        raise ReplyError("a transfer coding other than chunked")
    reply.chunked = True


def _connection(reply: ReplyHead, value: bytes) -> None:
    words = value.lower()
    if b"close" in words:
        reply.keeps = False


def _keep_alive(reply: ReplyHead, value: bytes) -> None:
    seconds = _SECONDS.search(value.lower())
    if seconds:
        reply.kept_s = float(seconds[1])


def _content_type(reply: ReplyHead, value: bytes) -> None:
    reply.event_stream = value[:17].lower() == b"text/event-stream"


def _content_encoding(reply: ReplyHead, value: bytes) -> None:
    reply.encoded = value.lower() != b"identity"


def _retry_after(reply: ReplyHead, value: bytes) -> None:
    reply.retry_after = value


_READERS = {
    b"content-length": _content_length,
    b"transfer-encoding": _transfer_encoding,
    b"connection": _connection,
    b"keep-alive": _keep_alive,
    b"content-type": _content_type,
    b"content-encoding": _content_encoding,
    b"retry-after": _retry_after,
}


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its CRLF; a status that nobody has named gets a phrase of its class."""
    return _REASONS.get(status) or b"HTTP/1.1 %d Status\r\n" % status
