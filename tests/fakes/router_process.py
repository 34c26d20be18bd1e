"""A router as a process of its own, started by its command."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MAIN = "from llmgw.cli.router import router_command; router_command()"


def free_port() -> int:
    """A port that nobody listens on, for now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RouterProcess:
    """A started router. Its events are in `log`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def events(self, name: str) -> int:
        return self.log.read_text().count(f'"event": "{name}"')

    def wait_for(self, name: str, count: int = 1, limit_s: float = 20.0) -> None:
        end = time.monotonic() + limit_s
        while self.events(name) < count:
            assert self.process.poll() is None or self.events(name) >= count, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def stop(self, limit_s: float = 40.0) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(limit_s)


@contextmanager
def router_process(
    folder: Path,
    *options: str,
    port: int = 0,
    workers: int = 1,
    python: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    listen: bool = True,
) -> Iterator[RouterProcess]:
    """`llmgw router` with those options on a port of its own; stopped at the end."""
    port = port or free_port()
    log = folder / f"router-{time.monotonic_ns()}.log"
    address = ("--listen", f"127.0.0.1:{port}") if listen else ()
    words = [*(python or (sys.executable, "-c", _MAIN)), *address, "--workers", str(workers), *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            stderr=file,
            cwd=ROOT,
            pass_fds=tuple(pass_fds),
            env={"PYTHONPATH": str(ROOT), **os.environ, **(env or {})},
        )
    started = RouterProcess(process, port, log)
    try:
        started.wait_for("router_serving", workers)
        yield started
    finally:
        started.stop()


def get(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Status and body of one plain request."""
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/json", **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
