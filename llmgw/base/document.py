"""Documents: every file that crosses a process, closed and frozen, and the bytes that stand for one."""

import hashlib
import json
from typing import Any, ClassVar, Self

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from llmgw.base.errors import DocumentError, Place
from llmgw.base.names import near


class Value(BaseModel):
    """A frozen part of a document; unknown keys are refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )


class Document(Value):
    """A whole file. Subclasses declare `format: Literal["llmgw-<kind>/<n>"]`."""

    @classmethod
    def read(cls, text: str | bytes, source: str) -> Self:
        """The document in `text`; DocumentError names `source` and the path of the first thing wrong in it."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise document_error(error, source, cls) from None

    def text(self) -> str:
        """What is written to the file: indented JSON, a line feed at the end."""
        return self.model_dump_json(indent=1) + "\n"


def document_error(
    error: ValidationError,
    source: str,
    kind: type[BaseModel],
    lines: "dict[tuple[int | str, ...], int] | None" = None,
) -> DocumentError:
    """The first thing wrong that pydantic found, with the line of the nearest enclosing key that `lines` has."""
    found = error.errors(include_url=False, include_input=False)
    first = min(found, key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key explains a missing one
    path = _written_path(first["loc"], lines)
    line = next((lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines), 0) if lines else 0
    return DocumentError(Place(source, "/".join(map(str, path)), line), _complaint(first, kind))


def _written_path(
    loc: tuple[int | str, ...], lines: "dict[tuple[int | str, ...], int] | None"
) -> tuple[int | str, ...]:
    """pydantic's location without the names of union members, which nobody wrote."""
    if not lines:
        return loc
    path: tuple[int | str, ...] = ()
    for part in loc:
        if (*path, part) in lines or part is loc[-1]:
            path = (*path, part)
    return path


def _complaint(first: Any, kind: type[BaseModel]) -> str:
    what = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        known = sorted({name for model in _models(kind) for name in model.model_fields})
        close = near(word, known)
        return f"unknown key{f', did you mean {close[0]}?' if close else ''}"
    return what[0].lower() + what[1:]


def _models(kind: type[BaseModel], seen: "set[type[BaseModel]] | None" = None) -> "set[type[BaseModel]]":
    """The model and every model that its fields mention."""
    found = seen if seen is not None else set()
    if kind in found:
        return found
    found.add(kind)
    waiting: list[Any] = [field.annotation for field in kind.model_fields.values()]
    while waiting:
        note = waiting.pop()
        waiting.extend(getattr(note, "__args__", ()))
        if isinstance(note, type) and issubclass(note, BaseModel):
            _models(note, found)
    return found


def canonical(value: Any) -> bytes:
    """The one byte string of a JSON value: sorted keys, no blanks, UTF-8, a line feed at the end.

    Refuses floats, whose text differs between writers; NaN and infinity with them.
    """
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _refuse_float(text: str) -> float:
    raise TypeError(f"a float in a canonical document: {text}")


_READER = msgspec.json.Decoder(float_hook=_refuse_float)


def canonical_of(model: BaseModel) -> bytes:
    """canonical(model.model_dump(mode="json")), for large models in a third of the time and little memory.

    Tuples of models are written one element after the other, so that their values are never all there at once.
    TypeError for a float, as there; but pydantic has written a NaN as null before it can be seen.
    """
    rows = {name: value for name, value in model if _is_rows(value)}
    whole = _decoded(model.model_dump_json(exclude=set(rows)))
    for name, row in rows.items():
        whole[name] = [msgspec.Raw(_sorted(_decoded(one.model_dump_json()))) for one in row]
    return _sorted(whole) + b"\n"


def _is_rows(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, BaseModel) for one in value)


def _decoded(text: str) -> Any:
    try:
        return _READER.decode(text)
    except msgspec.ValidationError as error:  # as msgspec says what _refuse_float raised
        raise TypeError(str(error)) from None


def _sorted(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _refuse_floats(value: Any) -> None:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is dict:
            waiting.extend(one.values())
        elif kind is list or kind is tuple:
            waiting.extend(one)
        elif kind not in _PLAIN and isinstance(one, float):
            raise TypeError(f"a float in a canonical document: {one!r}")


_PLAIN = frozenset({str, int, bool, type(None)})


def digest(value: Any) -> str:
    """`sha256:` and 64 hex digits of the canonical bytes of a JSON value."""
    return digest_of_bytes(canonical(value))


def digest_of_bytes(data: bytes) -> str:
    """`sha256:` and 64 hex digits of the bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
