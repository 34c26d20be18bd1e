"""Which headers go where: a client's that an engine may see, and nothing that a client could forge."""

import re
from collections.abc import Mapping

FORWARDED = (
    b"traceparent",
    b"tracestate",
    b"anthropic-version",
    b"anthropic-beta",
    b"openai-beta",
)
"""What an engine gets of a client's headers. All else is dropped: hop-by-hop and X-Forwarded-* among it."""
READ = frozenset(
    (
        *FORWARDED,
        b"host",
        b"authorization",
        b"x-api-key",
        b"content-type",
        b"content-encoding",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"connection",
        b"upgrade",
        b"x-request-id",
        b"x-session-id",
    )
)
"""What the router looks at. Each may stand once only."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# W3C Trace Context, level 1: version-traceid-parentid-flags, none of the ids zero.
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?")


_FORWARDED = frozenset(FORWARDED)


def forwarded(headers: Mapping[bytes, bytes]) -> bytes:
    """Header lines for the engine, from the client's. A trace context that is not well-formed goes nowhere."""
    if _FORWARDED.isdisjoint(headers):
        return b""
    lines = b""
    for name in FORWARDED:
        value = headers.get(name)
        if value is not None and (name not in _TRACED or traced(headers)):
            lines += name + b": " + value + b"\r\n"
    return lines


_TRACED = (b"traceparent", b"tracestate")


def traced(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request carries a usable trace context."""
    return _TRACE.fullmatch(headers.get(b"traceparent", b"")) is not None


def usable_request_id(value: bytes | None) -> bool:
    """Whether a client's own request id can stand in headers and logs."""
    return value is not None and _REQUEST_ID.fullmatch(value) is not None


def bearer(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key that the request shows.

    Authorization: Bearer, or Anthropic's x-api-key. None where there is none.
    """
    value = headers.get(b"authorization")
    if value is None:
        return headers.get(b"x-api-key")
    if value[:7].lower() == b"bearer ":
        return value[7:].strip(b" \t")
    return b""


def is_json(content_type: bytes | None) -> bool:
    """application/json, or another type that is JSON by its suffix (RFC 6839)."""
    if content_type is None:
        return False
    kind = content_type.partition(b";")[0].strip(b" \t").lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
