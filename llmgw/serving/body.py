"""What the router reads of a request's JSON body, and the two changes that it may make in the bytes."""

import re
from typing import Any

import msgspec

from llmgw.serving.faults import BAD_JSON, NO_MODEL, Fault

PREFIX_BYTES = 1024
"""How much of a prompt's beginning decides by prefix affinity."""


class Ask(msgspec.Struct, gc=False):
    """What a request asks for: the few keys that matter, all others skipped and not decoded.

    A msgspec struct, since it is made for every request: making it costs a tenth of what a dataclass costs. Values
    of other types than expected count as absent; `model` has been checked.
    """

    model: str = ""
    stream: Any = False
    stream_options: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = 1
    user: Any = None
    prompt_cache_key: Any = None

    @property
    def streams(self) -> bool:
        return self.stream is True

    @property
    def wants_usage(self) -> bool:
        """Whether the client itself asked for a stream's usage event."""
        options = self.stream_options
        return options is not None and type(options) is dict and options.get("include_usage") is True

    @property
    def most_tokens(self) -> int | None:
        """The longest answer that the request allows, over all choices; None where it says nothing."""
        most = self.max_completion_tokens or self.max_output_tokens or self.max_tokens
        if type(most) is not int or not 0 < most < 1 << 40:
            return None
        choices = self.n
        return most if choices == 1 or type(choices) is not int or not 0 < choices < 1 << 20 else most * choices

    @property
    def session(self) -> str:
        """What keeps a conversation together, where the request says it; or nothing."""
        for value in (self.prompt_cache_key, self.user):
            if type(value) is str and value:
                return value
        return ""


class _Loose(msgspec.Struct, gc=False):
    model: Any = None


class _Prompt(msgspec.Struct):
    """Where a prompt stands, as the bytes that came."""

    system: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


_ask = msgspec.json.Decoder(Ask).decode
_loose = msgspec.json.Decoder(_Loose).decode
_prompt = msgspec.json.Decoder(_Prompt).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
# A body whose first key is model, with nothing escaped in its value.
_FIRST_KEY = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"model"[ \t\r\n]*:[ \t\r\n]*("[^"\\\x00-\x1f]*")')


def read_ask(body: bytes) -> Ask | Fault:
    """What the body asks for, or why it cannot be read."""
    try:
        ask = _ask(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _why_unread(body)
    return ask if ask.model else NO_MODEL


def _why_unread(body: bytes) -> Fault:
    try:
        _loose(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BAD_JSON
    return NO_MODEL


def repeated_model(body: bytes, model: str) -> bool:
    """Whether `model` may stand more than once at the top, so that some parser could read another one than ours
    did.

    Ours takes the last. Where it is what stands first as well, no parser that takes the first or the last differs.
    """
    match = _FIRST_KEY.match(body)
    if match is not None and match[1] == b'"%b"' % model.encode():
        return False
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
    """The first bytes of the prompt, system text first: what prefix affinity hashes. Empty where there is none."""
    try:
        found = _prompt(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    joined = b""
    for part in (found.system, found.messages, found.input, found.prompt):
        joined += bytes(part)[: PREFIX_BYTES - len(joined)]
    return joined


def for_engine(body: bytes, *, model: str, usage: bool) -> bytes | Fault:
    """The body as the engine has to get it.

    By the model's own name, `model` (empty: it stands so already), and asking for a stream's usage. A fault where
    the body is no JSON after all: what is skipped when it is read first is looked at only here.
    """
    try:
        if model:
            body = with_model(body, model)
        return with_usage(body) if usage else body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BAD_JSON


def with_model(body: bytes, model: str) -> bytes:
    """The body with another model name, all else byte for byte the same.

    Where `model` is the first key and stands nowhere else, its value is cut out and replaced. Otherwise the top
    level is written again: its order and all values stay as they came, blanks between them do not.
    """
    match = _FIRST_KEY.match(body)
    if match and body.count(b'"model"') == 1 and b"\\u00" not in body:
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
