"""Coverage-guided fuzzing of all that the router parses itself.

    python -m tests.fuzz.router_parsers CORPUS -max_total_time=600     (needs the package atheris)

The first byte of an input says what it is given to. Beyond not failing, each parser is held to what it promises:
bytes that pass for whole chunks come apart, a body's changes change one thing, heads hold no line that could be
split. tests/fuzz/corpus holds what was found worth keeping; tests/test_router_fuzz.py runs it without atheris.
"""

import json
import sys
from collections.abc import Callable

from llmgw.serving.body import Ask, for_engine, prompt_key, read_ask, repeated_model
from llmgw.serving.events import body_usage, count_events, event_end, is_complete, says_usage, sift, told
from llmgw.serving.faults import Fault
from llmgw.serving.framing import Dechunker, FramingError, is_one_chunk, whole_chunks
from llmgw.serving.headers import bearer, forwarded, is_json, usable_request_id
from llmgw.serving.load import parse_load
from llmgw.serving.multipart import FormModel, form_model, with_form_model
from llmgw.serving.reply import ReplyError, read_reply
from llmgw.serving.routes import Dialect


def framing(data: bytes) -> None:
    kind = whole_chunks(data)
    assert not is_one_chunk(data) or kind == 1
    pieces: list[tuple[bytes, bool]] = []
    for size in (len(data) or 1, 1, 3):
        frames, got = Dechunker(), b""
        try:
            for start in range(0, len(data), size):
                got += frames.feed(data[start : start + size])
        except FramingError:
            assert not kind
            return
        pieces.append((got, frames.done))
        assert not kind or frames.done == (kind == 2)
    assert len(set(pieces)) == 1, "however it is cut"


def body(data: bytes) -> None:
    ask = read_ask(data)
    if not isinstance(ask, Ask):
        return
    assert ask.model
    ask.most_tokens, ask.session, ask.wants_usage  # noqa: B018
    prompt_key(data)
    repeated_model(data, ask.model)
    changed = for_engine(data, model="other", usage=True)
    if isinstance(changed, Fault):
        return
    again = read_ask(changed)
    assert isinstance(again, Ask)
    assert (again.model, again.wants_usage, again.stream, again.n) == ("other", True, ask.stream, ask.n)
    try:
        old, new = json.loads(data), json.loads(changed)
    except (ValueError, RecursionError):
        return
    for value in (old, new):
        value.pop("model"), value.pop("stream_options", None)
    assert repr(old) == repr(new)


def reply(data: bytes) -> None:
    try:
        head = read_reply(data)
    except ReplyError:
        return
    assert 100 <= head.status < 600
    assert not (head.chunked and head.length is not None)
    for line in head.passed.split(b"\r\n"):
        assert b"\n" not in line
        assert b"\r" not in line
        assert b"\0" not in line


def events(data: bytes) -> None:
    end = event_end(data)
    whole = data[:end]
    usage, kept = sift(whole)
    assert len(kept) <= len(whole)
    assert usage is None or says_usage(whole), "what tells usage is never passed over"
    assert sift(kept)[1] == kept
    told(whole), body_usage(data), count_events(whole)
    for dialect in Dialect:
        is_complete(whole, dialect)


def form(data: bytes) -> None:
    kind, _, rest = data.partition(b"\n")
    found = form_model(kind, rest)
    if isinstance(found, FormModel):
        assert rest[found.start : found.end].decode() == found.model
        again = form_model(kind, with_form_model(rest, found, "other"))
        assert isinstance(again, FormModel)
        assert again.model == "other"


def headers(data: bytes) -> None:
    names = (b"authorization", b"traceparent", b"tracestate", b"x-request-id", b"content-type", b"openai-beta")
    values = dict(zip(names, data.replace(b"\r", b"").split(b"\n"), strict=False))
    lines = forwarded(values)
    assert lines.count(b"\r\n") <= 5
    bearer(values), is_json(values.get(b"content-type")), usable_request_id(values.get(b"x-request-id"))


def load(data: bytes) -> None:
    for engine in ("vllm", "sglang", "llama.cpp"):
        found = parse_load(engine, data.decode("utf-8", "replace"))
        assert found is None or (found.running >= 0 or found.waiting >= 0)


TARGETS: tuple[Callable[[bytes], None], ...] = (framing, body, reply, events, form, headers, load)


def one(data: bytes) -> None:
    """One input: the first byte chooses the target."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def main() -> None:
    import atheris  # only here: the corpus is run without it

    for module in [name for name in sys.modules if name.startswith("llmgw.serving")]:
        for value in vars(sys.modules[module]).values():
            if callable(value) and str(getattr(value, "__module__", "")).startswith("llmgw.serving"):
                with_coverage(atheris, value)
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


def with_coverage(atheris: object, value: object) -> None:
    """Instruments a function, or the methods of a class, in place."""
    functions = [value, *vars(value).values()] if isinstance(value, type) else [value]
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            function.__code__ = atheris.instrument_func(function).__code__  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
