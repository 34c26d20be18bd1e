"""The model field of a multipart/form-data body (RFC 7578): found, and replaced in the bytes."""

import re
from dataclasses import dataclass

from llmgw.serving.faults import NO_MODEL, NOT_FORM, Fault

_BOUNDARY = re.compile(rb';[ \t]*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(
    rb'content-disposition:[ \t]*form-data[^\r\n]*?;[ \t]*name=(?:"model"|model)[ \t]*(?:;|$)', re.IGNORECASE
)
_MOST_PARTS = 64
_LONGEST_HEAD = 8192
BAD_FORM = Fault(400, "invalid_form", "the body is not well-formed multipart/form-data")
DOUBLE_MODEL = Fault(400, "model_repeated", "the body has more than one model")


@dataclass(frozen=True, slots=True)
class FormModel:
    """The model that a form names, and where its value stands in the body."""

    model: str
    start: int
    end: int


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary that a Content-Type names; None where it is missing or malformed."""
    found = _BOUNDARY.search(content_type)
    return (found[1] or found[2]) if found else None


def form_model(content_type: bytes, body: bytes) -> FormModel | Fault:
    """The field `model`, wherever it stands among the parts.

    A fault where it is missing, twice, or no short text.
    """
    boundary = boundary_of(content_type)
    if boundary is None:
        return NOT_FORM
    found: FormModel | Fault = NO_MODEL
    for start, end in _parts(body, b"--" + boundary):
        if start < 0:
            return BAD_FORM
        head_end = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD))
        if head_end < 0:
            return BAD_FORM
        if any(_NAME.match(line) for line in body[start:head_end].split(b"\r\n")):
            if isinstance(found, FormModel):
                return DOUBLE_MODEL
            found = _model(body, head_end + 4, end)
            if isinstance(found, Fault):
                return found
    return found


def _model(body: bytes, start: int, end: int) -> FormModel | Fault:
    value = body[start:end] if end - start <= 512 else b""
    try:
        model = value.decode()
    except UnicodeDecodeError:
        return NO_MODEL
    return FormModel(model, start, end) if model else NO_MODEL


def _parts(body: bytes, dash: bytes) -> "list[tuple[int, int]]":
    """Start and end of each part, head included; (-1, -1) last where the body breaks the form."""
    parts: list[tuple[int, int]] = []
    at = body.find(dash)
    if at < 0 or (at > 0 and body[at - 2 : at] != b"\r\n"):
        return [(-1, -1)]
    while len(parts) <= _MOST_PARTS:
        after = at + len(dash)
        if body[after : after + 2] == b"--":
            return parts
        line_end = body.find(b"\r\n", after)
        if line_end < 0 or body[after:line_end].strip(b" \t"):
            return [*parts, (-1, -1)]
        start = line_end + 2
        at = body.find(b"\r\n" + dash, start - 2) + 2
        if at < 2:
            return [*parts, (-1, -1)]
        parts.append((start, max(start, at - 2)))
    return [*parts, (-1, -1)]


def with_form_model(body: bytes, found: FormModel, model: str) -> bytes:
    """The body with another model name, all else byte for byte the same."""
    return body[: found.start] + model.encode() + body[found.end :]
