"""Server-sent events as engines stream them.

Where they end, what they say of usage, whether the answer is complete.
"""

from typing import Any

import msgspec

from llmgw.serving.routes import Dialect


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one request. `cached` are those of the prompt that a prefix cache had."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


class _Details(msgspec.Struct):
    cached_tokens: Any = 0


class _Counts(msgspec.Struct):
    """OpenAI's and Anthropic's names for the same."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _Nested(msgspec.Struct):
    usage: _Counts | None = None


_answer = msgspec.json.Decoder(_Nested).decode


class _Event(msgspec.Struct):
    usage: _Counts | None = None
    choices: list[msgspec.Raw] | None = None
    message: _Nested | None = None
    response: _Nested | None = None


_event = msgspec.json.Decoder(_Event).decode
_counts = msgspec.json.Decoder(_Counts).decode
_USAGE = b'"usage"'
_ENDS = {
    Dialect.OPENAI: (b"data: [DONE]", b"data:[DONE]"),
    Dialect.RESPONSES: (
        b"event: response.completed",
        b"event: response.incomplete",
        b"event: response.failed",
        b"data: [DONE]",
    ),
    Dialect.ANTHROPIC: (b"event: message_stop", b"event: error"),
}  # fmt: skip


def event_end(payload: bytes) -> int:
    """Where the last whole event of the payload ends; 0 where none is whole. Lines may end in LF or CRLF."""
    at = payload.rfind(b"\n\n")
    crlf = payload.rfind(b"\n\r\n", max(at, 0))
    if crlf >= 0:
        return crlf + 3
    return at + 2 if at >= 0 else 0


def is_complete(payload: bytes, dialect: Dialect) -> bool:
    """Whether the end of a stream's payload has the dialect's mark of a complete answer at the start of a line."""
    return any(payload.startswith(mark) or b"\n" + mark in payload for mark in _ENDS[dialect])


def count_events(payload: bytes) -> int:
    """About how many events with JSON the bytes hold, at the price of one search."""
    return payload.count(b"data: {") or payload.count(b"data:{")


def says_usage(payload: bytes) -> bool:
    """Whether an event may hold token counts: a `"usage"` that is not null. Cheap, and never wrongly no."""
    at = payload.find(_USAGE)
    while at >= 0:
        if payload[at + 7 : at + 13].replace(b" ", b"")[:5] != b":null":
            return True
        at = payload.find(_USAGE, at + 7)
    return False


def usage_of(value: _Counts | None) -> Usage | None:
    """The counts; None where there are none. What is no whole number counts as 0."""
    if value is None:
        return None
    prompt, completion = value.prompt_tokens, value.completion_tokens
    if type(prompt) is int and type(completion) is int and value.prompt_tokens_details is None:
        return Usage(prompt, completion) if prompt >= 0 <= completion else None
    return _usage_of_any(value)


def _usage_of_any(value: _Counts) -> Usage | None:
    prompt = value.prompt_tokens if value.prompt_tokens is not None else value.input_tokens
    completion = value.completion_tokens if value.completion_tokens is not None else value.output_tokens
    if type(prompt) is not int and type(completion) is not int:
        return None
    details = value.prompt_tokens_details or value.input_tokens_details
    cached = details.cached_tokens if details is not None else value.cache_read_input_tokens
    return Usage(_count(prompt), _count(completion), _count(cached))


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 50 else 0


def merged(before: Usage | None, new: Usage | None) -> Usage | None:
    """Counts grow while a stream runs and come in parts: Anthropic's begin with the prompt's."""
    if before is None or new is None:
        return new or before
    return Usage(
        *(
            max(pair)
            for pair in zip(
                (before.prompt, before.completion, before.cached),
                (new.prompt, new.completion, new.cached),
                strict=True,
            )
        )
    )


def says_nothing(payload: bytes) -> int:
    """1 where a stream's first event only names the role, so that it is no token; otherwise 0."""
    first = payload[: payload.find(b"\n\n")]
    return 1 if b'"role"' in first and (b'"content":""' in first or b'"content":null' in first) else 0


def sift(payload: bytes) -> tuple[Usage | None, bytes]:
    """The usage that whole events tell, and the events without those that tell nothing else (`choices` empty).

    Everything else stays byte for byte. An event that is no JSON is passed on.
    """
    kept: list[bytes] = []
    found: Usage | None = None
    for event in _split(payload):
        value = _decoded(event) if _USAGE in event else None
        usage = usage_of(value.usage) if value else None
        found = merged(found, usage)
        if usage is None or value is None or value.choices != []:
            kept.append(event)
    return found, b"".join(kept)


def told(payload: bytes) -> Usage | None:
    """The usage that whole events tell, in any dialect."""
    found: Usage | None = None
    for event in _split(payload):
        value = _decoded(event) if _USAGE in event else None
        if value:
            for part in (value, value.message, value.response):
                found = merged(found, usage_of(part.usage) if part else None)
    return found


def _split(payload: bytes) -> list[bytes]:
    """The events, each with the empty line that ends it."""
    if b"\r\n" in payload:
        events, at = [], 0
        while at < len(payload):
            ends = [
                end
                for end in (payload.find(b"\n\n", at) + 2, payload.find(b"\n\r\n", at) + 3)
                if end > 3 or end > at + 1
            ]
            after = min((end for end in ends if end > at), default=len(payload))
            events.append(payload[at:after])
            at = after
        return events
    parts = payload.split(b"\n\n")
    return [part + b"\n\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _decoded(event: bytes) -> _Event | None:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    try:
        return _event(b"\n".join(lines))
    except (msgspec.DecodeError, RecursionError):
        return None


def body_usage(body: bytes) -> Usage | None:
    """The usage in a whole JSON answer, or in the end of one whose beginning was not kept."""
    try:
        return usage_of(_answer(body).usage)
    except (msgspec.DecodeError, RecursionError):
        return _tail_usage(body)


def _tail_usage(tail: bytes) -> Usage | None:
    """The last object in the bytes that stands behind a key `usage`."""
    at = tail.rfind(_USAGE)
    start = tail.find(b"{", at) if at >= 0 else -1
    if start < 0 or tail[at + 7 : start].strip() != b":":
        return None
    depth = 0
    for index in range(start, min(len(tail), start + 4096)):
        depth += {123: 1, 125: -1}.get(tail[index], 0)
        if not depth:
            try:
                return usage_of(_counts(tail[start : index + 1]))
            except msgspec.DecodeError:
                return None
    return None
