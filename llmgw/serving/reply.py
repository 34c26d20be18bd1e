"""The head of an engine's answer: read strictly, and turned into the head that the client gets."""

import re
from functools import lru_cache
from http import HTTPStatus

import msgspec

LONGEST_HEAD = 64 * 1024
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?").fullmatch
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\x00]*)").fullmatch
_SECONDS = re.compile(rb"timeout=([0-9]{1,6})")
_REASONS = {int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in HTTPStatus}


class ReplyError(ValueError):
    """What came is not the head of an HTTP/1.1 answer, or two answers could be read from it."""


class ReplyHead(msgspec.Struct, gc=False):
    """An answer's head. `length` is None where the body is chunked or ends with the connection.

    `passed` are the header lines that the client gets as they came, each with its CRLF. `kept_s` is how long the
    engine says that it keeps an idle connection (Keep-Alive: timeout=). A msgspec struct, since one is made for
    every answer.
    """

    status: int
    passed: bytes = b""
    length: int | None = None
    chunked: bool = False
    keeps: bool = True
    event_stream: bool = False
    encoded: bool = False
    kept_s: float = 5.0

    @property
    def has_body(self) -> bool:
        return self.length != 0 and self.status not in (204, 304)


_NOTHING, _LENGTH, _CODING, _CONNECTION, _KEPT, _TYPE, _ENCODING = range(7)
_KINDS = {
    b"content-length": _LENGTH,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"keep-alive": _KEPT,
    b"content-type": _TYPE,
    b"content-encoding": _ENCODING,
}
_PASSED = frozenset((b"content-type", b"content-encoding", b"content-language", b"cache-control", b"retry-after"))


def read_reply(head: bytes) -> ReplyHead:
    """The head up to, not with, its empty line. ReplyError where it can be read in two ways or not at all."""
    lines = head.split(b"\r\n")
    if head.count(b"\n") >= len(lines):
        raise ReplyError("a line that does not end in CRLF")
    reply = ReplyHead(200) if lines[0] == b"HTTP/1.1 200 OK" else _read_status(lines[0])
    del lines[0]
    passed = b""
    for line in lines:
        meaning = _meaning(line)
        if meaning is None:
            continue
        kind, also, value = meaning
        if also:
            passed += also
        if kind == _LENGTH:
            if reply.length is not None or not value.isdigit() or len(value) > 18:
                raise ReplyError("a length that is no number, or two of them")
            reply.length = int(value)
        elif kind:
            _NOTES[kind](reply, value)
    if reply.chunked and reply.length is not None:
        raise ReplyError("both a length and chunks")
    reply.passed = passed
    return reply


def _read_status(line: bytes) -> ReplyHead:
    status = _STATUS(line)
    if status is None:
        raise ReplyError("no status line")
    return ReplyHead(int(status[2]), keeps=status[1] == b"1")


@lru_cache(1024)
def _meaning(line: bytes) -> tuple[int, bytes, bytes] | None:
    """What a header line is about, the line where a client gets it, and its value; None where it does not matter.

    Remembered, since engines send the same lines again and again.
    """
    field = _FIELD(line)
    if field is None:
        raise ReplyError("a line that is no header")
    name = field[1].lower()
    kind, passed = _KINDS.get(name, _NOTHING), name in _PASSED
    if kind == _NOTHING and not passed:
        return None
    return kind, line + b"\r\n" if passed else b"", field[2].strip(b" \t")


def _coding(reply: ReplyHead, value: bytes) -> None:
    if reply.chunked or value.lower() != b"chunked":
        raise ReplyError("a transfer coding other than chunked")
    reply.chunked = True


def _connection(reply: ReplyHead, value: bytes) -> None:
    reply.keeps = reply.keeps and b"close" not in value.lower()


def _kept(reply: ReplyHead, value: bytes) -> None:
    seconds = _SECONDS.search(value.lower())
    reply.kept_s = float(seconds[1]) if seconds else reply.kept_s


def _type(reply: ReplyHead, value: bytes) -> None:
    reply.event_stream = value[:17].lower() == b"text/event-stream"


def _encoding(reply: ReplyHead, value: bytes) -> None:
    reply.encoded = value.lower() != b"identity"


_NOTES = {
    _CODING: _coding,
    _CONNECTION: _connection,
    _KEPT: _kept,
    _TYPE: _type,
    _ENCODING: _encoding,
}


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its CRLF; a status that nobody has named gets a phrase of its class."""
    return _REASONS.get(status) or b"HTTP/1.1 %d Status\r\n" % status
