"""Files replaced whole: a reader sees the old text or the new one, never part of either."""

import os
import tempfile
from pathlib import Path

from llmgw.base import LlmgwError


def write_whole(path: Path, text: str | bytes, *, mode: int = 0o600) -> None:
    """Write beside `path`, flush to the disk, rename over it, flush the folder. LlmgwError where that fails.

    A symbolic link stays one: what it names is replaced. A device, pipe or socket gets the text and stays.
    """
    content = text.encode() if isinstance(text, str) else text
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        _write_into(path, content)
        return
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise LlmgwError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        Path(beside).unlink(missing_ok=True)
        raise LlmgwError(f"{path}: cannot be written: {error.strerror}") from None


def _write_into(path: Path, content: bytes) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            file.write(content)
    except OSError as error:
        raise LlmgwError(f"{path}: cannot be written: {error.strerror}") from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: Path, *, hint: str = "") -> str:
    """A text file of the site or of llmgw. LlmgwError, with `hint` as what to do, where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LlmgwError(f"{path}: there is no such file", hint=hint) from None
    except UnicodeDecodeError as error:
        raise LlmgwError(f"{path}: is not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise LlmgwError(f"{path}: cannot be read: {error.strerror}") from None
