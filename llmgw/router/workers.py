"""`llmgw router`: one process, or a supervisor with several workers that share sockets and limits."""

import asyncio
import dataclasses
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from llmgw.base import LlmgwError
from llmgw.router.config import RouterConfig
from llmgw.router.listen import activated, listening, release, taken_over
from llmgw.router.logs import log_to_stderr
from llmgw.router.serve import Service, Sockets, run_on_best_loop
from llmgw.router.shared import SharedMemory, make_memory
from llmgw.router.snapshot import Snapshot, snapshot

log = logging.getLogger("llmgw.router")
_LONGEST_WAIT_S = 2.0


def run(config: RouterConfig) -> None:
    """Serves until SIGTERM or SIGINT."""
    log_to_stderr()
    sockets, link = _sockets(config)
    try:
        if config.workers == 1:
            run_on_best_loop(lambda: _serve_alone(config, sockets, link))
        else:
            Supervisor(config, sockets).run(link)
    finally:
        for socks in sockets.values():
            for sock in socks:
                sock.close()


def _sockets(config: RouterConfig) -> tuple[Sockets, socket.socket | None]:
    """Those of the router that is being replaced, systemd's, or new ones.

    And the link to the old router, if any.
    """
    taken = taken_over(config.handover) if config.handover else None
    if taken is not None:
        return taken
    given = activated(os.environ, os.getpid())
    sockets: dict[str, list[socket.socket]] = dict(given)
    if "public" not in sockets:
        sockets["public"] = [listening(text, reuse_port=config.reuse_port) for text in config.listen]
    for role, text in (("admin", config.admin_listen), ("metrics", config.metrics_listen)):
        if text and role not in sockets:
            sockets[role] = [listening(text, reuse_port=config.reuse_port)]
    return sockets, None


async def _serve_alone(config: RouterConfig, sockets: Sockets, link: socket.socket | None) -> None:
    service = Service(config, sockets)
    await _run_and_release(service, link)


async def _run_and_release(service: Service, link: socket.socket | None) -> None:
    """Runs; tells the replaced router to go once this one accepts."""

    async def tell() -> None:
        await service.ready.wait()
        if link is not None:
            release(link)
        _notify_systemd()

    telling = asyncio.get_running_loop().create_task(tell())
    try:
        await service.run()
    finally:
        telling.cancel()


def _notify_systemd() -> None:
    """READY=1 for units of Type=notify (sd_notify(3))."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        try:
            line.connect("\0" + path[1:] if path.startswith("@") else path)
            line.sendall(f"READY=1\nMAINPID={os.getpid()}\n".encode())
        except OSError as error:
            log.warning("systemd_not_notified", extra={"problem": error.strerror})


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker is told through its standard input; descriptors are inherited."""

    config: RouterConfig
    number: int
    memory: int
    folder: str
    descriptors: dict[str, list[int]]


class Supervisor:
    """Starts workers, starts again those that die, passes SIGTERM and SIGINT on, and does nothing else."""

    def __init__(self, config: RouterConfig, sockets: Sockets) -> None:
        self._config = config
        self._sockets = sockets
        self._memory = make_memory(config.workers)
        self._folder = tempfile.TemporaryDirectory(prefix="llmgw-router-")
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}
        self._stopping = False

    def run(self, link: socket.socket | None) -> None:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)
        with self._folder:
            for number in range(self._config.workers):
                self._start(number)
            if link is not None:
                self._wait_until_ready()
                release(link)
            self._watch()
        os.close(self._memory)

    def _start(self, number: int) -> None:
        descriptors = {
            role: [sock.fileno() for sock in socks] for role, socks in self._sockets.items()
        }  # fmt: skip
        order = WorkerOrder(self._config, number, self._memory, self._folder.name, descriptors)
        inherited = [self._memory, *(number for numbers in descriptors.values() for number in numbers)]
        worker = subprocess.Popen(
            [sys.executable, "-c", "from llmgw.router.workers import work; work()"],
            stdin=subprocess.PIPE, pass_fds=inherited, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert worker.stdin is not None
        worker.stdin.write(pickle.dumps(order))
        worker.stdin.close()
        self._workers[number] = worker
        self._started[number] = time.monotonic()

    def _wait_until_ready(self) -> None:
        waiting = {str(Path(self._folder.name) / str(number)) for number in range(self._config.workers)}
        for _ in range(300):
            waiting = {path for path in waiting if not Path(path).exists()}
            if not waiting:
                return
            time.sleep(0.1)

    def _watch(self) -> None:
        """Until every worker has ended after a stop.

        One that dies otherwise is started again, at most once a second. LlmgwError where one cannot start at all.
        """
        failed = False
        while self._workers:
            time.sleep(0.1)
            for number, worker in tuple(self._workers.items()):
                if worker.poll() is None:
                    continue
                if self._stopping or not self._was_ready(number):
                    failed = failed or not self._stopping
                    del self._workers[number]
                    self._pass_on(signal.SIGTERM, None)
                elif time.monotonic() - self._started[number] > 1.0:
                    log.error("worker_died", extra={"worker": number, "status": worker.returncode})
                    self._start(number)
        if failed:
            raise LlmgwError("a worker could not start; it has said why")

    def _was_ready(self, number: int) -> bool:
        return (Path(self._folder.name) / str(number)).exists()

    def _pass_on(self, number: int, _: object) -> None:
        self._stopping = True
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.send_signal(number)


def work() -> None:
    """A worker's own main: its order comes on standard input."""
    order: WorkerOrder = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from the supervisor, over a pipe
    log_to_stderr()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_on_best_loop(lambda: _serve_order(order))
    except LlmgwError as error:
        log.error("worker_failed", extra={"problem": error.message})  # what an operator can mend: no traceback
        sys.exit(error.exit_code)


async def _serve_order(order: WorkerOrder) -> None:
    config = order.config
    memory = SharedMemory(order.memory, workers=config.workers, own=order.number)
    sockets = {
        role: [listening(f"fd:{number}", reuse_port=False) for number in numbers]
        for role, numbers in order.descriptors.items()
    }
    leads = order.number == 0
    folder = Path(order.folder)
    siblings = {
        number: _asking(folder / str(number)) for number in range(config.workers) if number != order.number
    }
    service = Service(
        config,
        sockets,
        leads=leads,
        shared=memory,
        meters=memory,
        siblings=siblings if leads else None,
        gone=lambda: os.kill(os.getppid(), signal.SIGTERM),
    )
    door = await asyncio.start_unix_server(_telling(service), path=folder / f"{order.number}.draft")
    ready = asyncio.get_running_loop().create_task(
        _open_door(service, folder / f"{order.number}.draft", folder / str(order.number))
    )
    try:
        await service.run()
    finally:
        ready.cancel()
        door.close()


async def _open_door(service: Service, draft: Path, path: Path) -> None:
    await service.ready.wait()
    draft.rename(path)
    if service.leads:
        _notify_systemd()


def _telling(service: Service) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Answers the leading worker with this one's snapshot."""

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(snapshot(service.router)).encode())
        await writer.drain()
        writer.close()

    return tell


def _asking(path: Path) -> Callable[[], Awaitable[Snapshot | None]]:
    """Asks another worker for its snapshot; None where it does not answer in time."""

    async def ask() -> Snapshot | None:
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                reader, writer = await asyncio.open_unix_connection(path)
                text = await reader.read()
                writer.close()
            return json.loads(text)  # type: ignore[no-any-return]
        except (OSError, ValueError):
            return None

    return ask
