"""One router process, from its sockets to its last answer."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
from aiohttp import web

from llmgw.base import LlmgwError
from llmgw.router.accesslog import AccessLog
from llmgw.router.admin import Gate, Look, admin_app, look_at, metrics_app
from llmgw.router.backends import SharedCounts
from llmgw.router.checks import Checks
from llmgw.router.config import RouterConfig
from llmgw.router.core import Router
from llmgw.router.front import Front
from llmgw.router.ledger import LedgerWriter
from llmgw.router.listen import Handover
from llmgw.router.meters import Meters
from llmgw.router.published import Published
from llmgw.router.snapshot import Snapshot, snapshot
from llmgw.router.status import StatusFile
from llmgw.router.valkey import ValkeyLimits
from llmgw.store.usage import UsageLedger

log = logging.getLogger("llmgw.router")
_SWEEP_S = 0.25
_FLUSH_S = 2.0
_BEAT_S = 5.0
Sockets = Mapping[str, Sequence[socket.socket]]


class Service:
    """A router process with everything around it.

    `leads`: it has the admin and metrics listeners and the status.
    """

    def __init__(
        self,
        config: RouterConfig,
        sockets: Sockets,
        *,
        leads: bool = True,
        shared: SharedCounts | None = None,
        meters: Meters | None = None,
        siblings: Mapping[int, Callable[[], Awaitable[Snapshot | None]]] | None = None,
        gone: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self.sockets = sockets
        self.leads = leads
        self.loop = asyncio.get_running_loop()
        self.router = Router(config, self.loop, shared=shared, meters=meters)
        self.published = Published(self.router, config.published)
        self.look: Look = look_at(lambda: snapshot(self.router), siblings or {})
        self.stop = asyncio.Event()
        self._gone = gone or self.stop.set
        self.ready = asyncio.Event()
        self._servers: list[asyncio.AbstractServer] = []

    async def run(self) -> None:
        """Serves until told to stop, then finishes what is under way, for as long as a drain may take."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stop.set)
        self.router.tls = _engine_tls(self.config)
        self.published.look()
        async with contextlib.AsyncExitStack() as around:
            for part in (self._files(), self._limits(), self._checks(), self._pages()):
                await around.enter_async_context(part)
            around.push_async_callback(self._drain)
            await self._listen(around)
            _settle_memory()
            self.ready.set()
            log.info("router_serving", extra={"listen": list(self.config.listen), "leads": self.leads})
            await self.stop.wait()

    # -- listeners

    async def _listen(self, around: contextlib.AsyncExitStack) -> None:
        context = _client_tls(self.config)
        for sock in self.sockets.get("public", ()):
            kind = self.loop.create_unix_server if sock.family == socket.AF_UNIX else self.loop.create_server
            self._servers.append(await kind(self._front, sock=sock, ssl=context))
        if self.config.handover is not None and self.leads:
            await around.enter_async_context(self._handover(self.config.handover))

    def _front(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", Front(self.router))

    @asynccontextmanager
    async def _handover(self, path: Path) -> AsyncIterator[None]:
        named = [(role, sock) for role, socks in self.sockets.items() for sock in socks]
        handover = Handover(path, named, self._gone)
        watch = self.loop.create_task(self._answer_door(handover))
        try:
            yield
        finally:
            watch.cancel()
            handover.close()

    async def _answer_door(self, handover: Handover) -> None:
        while True:
            link, _ = await self.loop.sock_accept(handover.door)
            if await asyncio.to_thread(handover.answer, link):
                log.info("sockets_handed_over")
                handover.taken()
                return

    @asynccontextmanager
    async def _pages(self) -> AsyncIterator[None]:
        """The admin and metrics listeners."""
        if not self.leads:
            yield
            return
        clock = self.loop.time
        token = _token(self.config.admin_token_file)
        gate = Gate(token=token, trusted_hosts=frozenset(self.config.trusted_hosts), secure=False, clock=clock)
        apps = {
            "admin": admin_app(gate, self.look, self.published.look),
            "metrics": metrics_app(self.look, lambda: self.published.nodes, time.time),
        }
        runners = []
        for role, app in apps.items():
            for sock in self.sockets.get(role, ()):
                runner = web.AppRunner(app, access_log=None, handle_signals=False)
                await runner.setup()
                await web.SockSite(runner, sock).start()
                runners.append(runner)
        try:
            yield
        finally:
            for runner in runners:
                await runner.cleanup()

    # -- what runs beside

    @asynccontextmanager
    async def _files(self) -> AsyncIterator[None]:
        """Sweeps, the published folder, the status, the access log and the ledger."""
        router, config = self.router, self.config
        if config.access_log:
            router.access = AccessLog(config.access_log)
        writer = None
        if config.usage is not None:
            ledger = UsageLedger(config.usage)
            ledger.prepare()
            writer = LedgerWriter(ledger, router.tallies)
        status = StatusFile(router, config.published, leads=self.leads) if config.published else None
        tasks = [
            self._every(_SWEEP_S, self._sweep),
            self._every_async(config.poll_s, self.published.look_gently),
            self._every_async(_FLUSH_S, lambda: self._write_usage(writer)),
            self._every_async(config.poll_s, lambda: self._write_status(status)),
        ]
        try:
            yield
        finally:
            await _end(tasks)
            await self._write_usage(writer)
            if router.access is not None:
                await asyncio.to_thread(router.access.close)
            if status is not None:
                await self._write_status(status)
                status.remove()

    def _sweep(self) -> None:
        self.router.sweep()
        if self.router.access is not None:
            self.router.access.flush()

    async def _write_usage(self, writer: LedgerWriter | None) -> None:
        if writer is not None:
            await asyncio.to_thread(writer.write, writer.batch(int(self.router.wall) // 60))

    async def _write_status(self, status: StatusFile | None) -> None:
        if status is not None:
            await asyncio.to_thread(status.write, status.part())

    @asynccontextmanager
    async def _limits(self) -> AsyncIterator[None]:
        if not self.config.valkey:
            yield
            return
        limits = ValkeyLimits(self.config.valkey, timeout_s=self.config.valkey_timeout_s)
        await limits.beat()
        self.router.remote_limits = limits
        tasks = [self._every_async(_BEAT_S, limits.beat)]
        try:
            yield
        finally:
            await _end(tasks)
            await limits.close()

    @asynccontextmanager
    async def _checks(self) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=64, force_close=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            checks = Checks(self.router, session)
            tasks = [self._every(min(1.0, self.config.check_s or 1.0), checks.look)]
            try:
                yield
            finally:
                await _end(tasks)
                await checks.close()

    def _every(self, seconds: float, action: Callable[[], None]) -> "asyncio.Task[None]":
        async def once() -> None:
            action()

        return self._every_async(seconds, once)

    def _every_async(self, seconds: float, action: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        async def forever() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await action()
                except Exception:
                    log.exception("round_failed")

        return self.loop.create_task(forever())

    # -- the end

    async def _drain(self) -> None:
        """Takes no more connections, answers what is under way and what comes on open ones, then ends them."""
        router, limit = self.router, self.config.deadlines.drain_s
        router.stopping = True
        log.info("router_draining", extra={"under_way": len(router.exchanges), "limit_s": limit})
        for server in self._servers:
            server.close()
        until = self.loop.time() + limit
        quiet_since = self.loop.time()
        while self.loop.time() < until and (router.exchanges or router.fronts):
            await asyncio.sleep(0.05)
            if router.exchanges:
                quiet_since = self.loop.time()
            router.close_quiet(now=self.loop.time(), quiet_since=quiet_since)
        router.end_all()
        await asyncio.sleep(0.1)
        for front in tuple(router.fronts):
            front.transport.abort()
        log.info("router_stopped", extra={"cut_off": len(router.exchanges)})


def _settle_memory() -> None:
    """What lives as long as the process is not looked at by the collector, and the rest seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _end(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _token(file: Path | None) -> str:
    """What the admin listener asks for; nothing where no file is named. LlmgwError where the file holds none."""
    if file is None:
        return ""
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise LlmgwError(f"{file}: the admin token cannot be read: {error}") from None
    if not token:
        raise LlmgwError(f"{file}: holds no admin token", hint=f"openssl rand -hex 24 > {file}")
    return token


def _client_tls(config: RouterConfig) -> ssl.SSLContext | None:
    if config.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise LlmgwError(f"{config.tls_certificate}: cannot be used as a certificate: {error}") from None
    return context


def _engine_tls(config: RouterConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(config.engine_ca) if config.engine_ca else None)


def raise_file_limit() -> None:
    """As many open files as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_on_best_loop(main: Callable[[], Coroutine[object, object, None]]) -> None:
    """Runs on uvloop where it is installed, else on asyncio's own loop.

    Without uvloop glibc gives the loop's read buffer back to the kernel at every read; the environment variables
    MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ stop that (docs/router.md).
    """
    raise_file_limit()
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
