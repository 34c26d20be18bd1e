"""One router process, from its sockets to its last answer."""

import asyncio
import contextlib
import gc
import signal

from llmgw.router.config import RouterConfig
from llmgw.router.core import Router
from llmgw.router.front import Front
from llmgw.router.published import Published

_SWEEP_S = 0.25


async def serve(config: RouterConfig) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what is under way."""
    loop = asyncio.get_running_loop()
    router = Router(config, loop)
    published = Published(router, config.published)
    published.look()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    servers = []
    for address in config.listen:
        host, _, port = address.rpartition(":")
        servers.append(await loop.create_server(lambda: Front(router), host, int(port), backlog=4096))
    tasks = [loop.create_task(_every(_SWEEP_S, router.sweep)), loop.create_task(_every(config.poll_s, published.look))]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    await stop.wait()
    router.stopping = True
    for server in servers:
        server.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(config.deadlines.drain_s):
            while router.exchanges:
                await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()


async def _every(seconds: float, action: "object") -> None:
    while True:
        await asyncio.sleep(seconds)
        action()  # type: ignore[operator]


def run(config: RouterConfig) -> None:
    """Serves on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(config))
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config))
