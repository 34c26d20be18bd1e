"""The chunked coding of HTTP/1.1 (RFC 9112, 7.1): followed, taken apart, put together."""

import re

_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})(?:[ \t]*;[^\r\n]*)?\r\n")
_size_line = _SIZE.match
_HEX = b"0123456789abcdefABCDEF"
_LONGEST_LINE = 4096
END = b"0\r\n\r\n"


def whole_chunks(data: bytes) -> int:
    """1 where the bytes are whole chunks and more follow.

    2 where the end of the body is their end; 0 otherwise.
    """
    length = len(data)
    at = 0
    while at < length:
        line = _size_line(data, at)
        if line is None:
            return 0
        size = int(line[1], 16)
        if size == 0:
            return 2 if data[line.end() :] == b"\r\n" else 0
        at = line.end() + size + 2
        if not data.startswith(b"\r\n", at - 2):
            return 0
    return 1 if at == length and at else 0


def is_one_chunk(data: bytes) -> bool:
    """Whether the bytes are exactly one chunk, and not the last: nearly every token. No with chunk extensions."""
    end = data.find(b"\r\n", 1, 12)
    size = data[:end]
    if end < 0 or size.strip(_HEX):
        return False
    return end + 4 < len(data) == int(size, 16) + end + 4 and data.endswith(b"\r\n")


def chunk(payload: bytes) -> bytes:
    """One chunk. Nothing for an empty payload, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""


class FramingError(ValueError):
    """The bytes are not the chunked coding."""


class Dechunker:
    """Takes a chunked body apart, cut anywhere.

    `done` after the last chunk and its trailers; `clean` between chunks.
    """

    __slots__ = ("_left", "_line", "_trailer", "done")

    def __init__(self) -> None:
        self._left = 0  # bytes of the open chunk and its CRLF still to come
        self._line = b""  # a size line or trailer that was cut
        self._trailer = False
        self.done = False

    @property
    def clean(self) -> bool:
        return not self._left and not self._line and not self._trailer and not self.done

    def feed(self, data: bytes) -> bytes:
        """The payload in the next bytes. FramingError where they break the rules or go on after the end."""
        if self._line:
            data, self._line = self._line + data, b""
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            if self.done:
                raise FramingError("bytes after the last chunk")
            at = self._inside(data, at, parts) if self._left else self._between(data, at)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inside(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Takes payload, then the CRLF behind it."""
        left = self._left
        if left > 2:
            piece = data[at : at + left - 2]
            parts.append(piece)
            self._left -= len(piece)
            return at + len(piece)
        expected = b"\r\n"[2 - left]
        if data[at] != expected:
            raise FramingError("a chunk is longer than its size")
        self._left -= 1
        return at + 1

    def _between(self, data: bytes, at: int) -> int:
        """Takes a size line, or a line of the trailer section."""
        end = data.find(b"\n", at)
        if end < 0:
            self._line = data[at:]
            if len(self._line) > _LONGEST_LINE:
                raise FramingError("a line without an end")
            return len(data)
        if self._trailer:
            self.done = data[at : end + 1] == b"\r\n"
            return end + 1
        line = _SIZE.fullmatch(data, at, end + 1)
        if line is None:
            raise FramingError("a chunk without a size")
        size = int(line[1], 16)
        self._trailer = size == 0
        self._left = size + 2 if size else 0
        return end + 1
