"""GGUF's layout: a header, keys and values, tensors. Source: llama.cpp, ggml/include/gguf.h."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_F16 = 0, 1
_FORMATS = {U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """`shape` is GGUF's own: the length of a row first."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes

    @property
    def padded(self) -> int:
        return -(-len(self.data) // ALIGNMENT) * ALIGNMENT


def text(value: str) -> bytes:
    """A string: its length in bytes and its UTF-8."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: object) -> bytes:
    return text(str(value)) if kind == STRING else struct.pack(_FORMATS[kind], value)


def key(name: str, kind: int, value: object) -> bytes:
    """A key with one value."""
    return text(name) + struct.pack("<i", kind) + _value(kind, value)


def array(name: str, kind: int, values: Sequence[object]) -> bytes:
    """A key with a list of values of one kind."""
    head = text(name) + struct.pack("<iiQ", ARRAY, kind, len(values))
    return head + b"".join(_value(kind, value) for value in values)


def write_file(file: BinaryIO, keys: Sequence[bytes], tensors: Sequence[Tensor]) -> None:
    """One whole file."""
    file.write(MAGIC + struct.pack("<Iqq", VERSION, len(tensors), len(keys)) + b"".join(keys))
    offset = 0
    for tensor in tensors:
        dimensions = struct.pack(f"<I{len(tensor.shape)}q", len(tensor.shape), *tensor.shape)
        file.write(text(tensor.name) + dimensions + struct.pack("<iQ", tensor.kind, offset))
        offset += tensor.padded
    file.write(bytes(-file.tell() % ALIGNMENT))
    for tensor in tensors:
        file.write(tensor.data.ljust(tensor.padded, b"\0"))
