"""What the router reads of a request's JSON body, and the two changes that it may make in the bytes."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from llmgw.serving.faults import BAD_JSON, NO_MODEL, Fault

PREFIX_BYTES = 1024
"""How much of a prompt's beginning decides by prefix affinity."""


class _Head(msgspec.Struct):
    """The few keys that matter; all others are skipped, not decoded."""

    model: Any = None
    stream: Any = False
    stream_options: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = 1
    user: Any = None
    prompt_cache_key: Any = None


class _Prompt(msgspec.Struct):
    """Where a prompt stands, as the bytes that came."""

    system: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


_head = msgspec.json.Decoder(_Head).decode
_prompt = msgspec.json.Decoder(_Prompt).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
# A body whose first key is model, with nothing escaped in its value.
_FIRST_KEY = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\\x00-\x1f]*")')


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for.

    `wants_usage`: the client itself asked for a stream's usage event. `most_tokens`: the longest answer that it
    allows, over all choices; None where it says nothing. `session`: what keeps a conversation together.
    """

    model: str
    stream: bool = False
    wants_usage: bool = False
    most_tokens: int | None = None
    session: str = ""


def read_ask(body: bytes) -> Ask | Fault:
    """What the body asks for, or why it cannot be read. Values of other types than expected count as absent."""
    try:
        head = _head(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BAD_JSON
    model = head.model
    if type(model) is not str or not model:
        return NO_MODEL
    if head.stream is True or head.max_tokens is not None or head.n != 1 or head.user is not None:
        return _full_ask(model, head)
    return Ask(model, False, False, _whole(head.max_completion_tokens, head.max_output_tokens), _text(head.prompt_cache_key))


def _full_ask(model: str, head: _Head) -> Ask:
    options = head.stream_options
    most = _whole(head.max_completion_tokens, head.max_output_tokens, head.max_tokens)
    choices = _whole(head.n) or 1
    return Ask(
        model,
        head.stream is True,
        isinstance(options, dict) and options.get("include_usage") is True,
        None if most is None else most * choices,
        _text(head.prompt_cache_key, head.user),
    )


def _whole(*values: object) -> int | None:
    return next((value for value in values if type(value) is int and 0 < value < 1 << 40), None)


def _text(*values: object) -> str:
    return next((value for value in values if type(value) is str and value), "")


def repeated_model(body: bytes) -> bool:
    """Whether `model` may stand twice at the top, where engines and routers could read different ones."""
    if body.count(b'"model"') < 2 and b"\\u00" not in body:
        return False
    names: list[str] = []
    try:
        _pairs(body, names)
    except (ValueError, RecursionError):
        return True
    return names.count("model") > 1


def _pairs(body: bytes, names: list[str]) -> None:
    """Puts the top level's keys, as they stand, into `names`."""
    import json

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names[:] = [name for name, _ in pairs]  # the outermost object is closed last
        return {}

    json.loads(body, object_pairs_hook=note)


def prompt_key(body: bytes) -> bytes:
    """The first bytes of the prompt, system text first: what prefix affinity hashes."""
    found = _prompt(body)
    joined = b""
    for part in (found.system, found.messages, found.input, found.prompt):
        joined += bytes(part)[: PREFIX_BYTES - len(joined)]
    return joined


def with_model(body: bytes, model: str) -> bytes:
    """The body with another model name, all else byte for byte the same.

    Where `model` is the first key and stands nowhere else, its value is cut out and replaced. Otherwise the top level
    is written again: its order and all values stay as they came, blanks between them do not.
    """
    match = _FIRST_KEY.match(body)
    if match and not repeated_model(body):
        return body[: match.start(1)] + _encode(model) + body[match.end(1) :]
    members = _members(body)
    members["model"] = msgspec.Raw(_encode(model))
    return _encode(members)


def with_usage(body: bytes) -> bytes:
    """The body of a stream request with stream_options.include_usage set; other stream options stay.

    Where there are no stream options, one member is added before the closing brace and nothing else changes.
    """
    if b'"stream_options"' not in body and b"\\u00" not in body:
        end = body.rindex(b"}")
        return body[:end] + b',"stream_options":{"include_usage":true}' + body[end:]
    members = _members(body)
    options = msgspec.json.decode(members.get("stream_options", b"null"))
    merged = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    members["stream_options"] = msgspec.Raw(_encode(merged))
    return _encode(members)
