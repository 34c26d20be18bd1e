"""Asking endpoints how they are: a cheap probe now and then, one token where something went wrong."""

import asyncio
import logging
import random
from collections.abc import Coroutine

import aiohttp

from llmgw.router.backends import Backend
from llmgw.router.core import Router
from llmgw.serving.ejection import after_probe
from llmgw.serving.load import metrics_names, parse_load

log = logging.getLogger("llmgw.router")
_PROBE_S = 5.0
_TOKEN_S = 30.0
_LONGEST_PAGE = 1 << 20


class Checks:
    """Probes every endpoint every `check_s` seconds, at times of its own.

    Reads its load every `load_s` seconds.
    """

    def __init__(self, router: Router, session: aiohttp.ClientSession) -> None:
        self._router = router
        self._session = session
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._loaded_at: dict[str, float] = {}
        self._jitter = random.Random(router.config.name).random  # noqa: S311 - spreads probes, guards nothing

    def look(self) -> None:
        """Starts the probes that are due; to be called every second or so."""
        config, now = self._router.config, self._router.time()
        for url, backend in self._router.backends.by_url.items():
            if url in self._busy or backend.left_at:
                continue
            if config.check_s and self._is_due(backend, now):
                self._start(url, self._probe(backend))
            elif config.load_s and now - self._loaded_at.get(url, 0.0) >= config.load_s and self._may_ask(backend):
                self._loaded_at[url] = now
                self._start(url, self._read_load(backend))

    def _is_due(self, backend: Backend, now: float) -> bool:
        if backend.standing.is_out(now):
            return False
        if backend.held:
            return True
        every = self._router.config.check_s * (0.8 + 0.4 * self._jitter())
        return now - backend.probed_at >= every

    def _may_ask(self, backend: Backend) -> bool:
        """Reading the metrics of a sleeping llama.cpp wakes it: only one with requests under way is asked."""
        engine = backend.service.engine
        return metrics_names(engine) is not None and (engine != "llama.cpp" or backend.in_flight > 0)

    def _start(self, url: str, probe: Coroutine[None, None, None]) -> None:
        task = self._router.loop.create_task(probe)
        self._busy[url] = task
        task.add_done_callback(lambda _: self._busy.pop(url, None))

    async def _probe(self, backend: Backend) -> None:
        router = self._router
        suspect = backend.suspect or backend.held
        backend.probed_at, backend.suspect = router.time(), False
        healthy = await self._answers(backend) and (not suspect or await self._gives_a_token(backend))
        now = router.time()
        if backend.held:
            backend.standing = after_probe(backend.standing, router.rules, now=now, healthy=healthy)
            if healthy:
                backend.held = False
                backend.joined = now
                log.info("endpoint_returned", extra={"endpoint": backend.service.id, "url": backend.url})
            router.backends.sweep(now)
        elif not healthy:
            for group in set(router.backends.groups.values()):
                if backend in group.all:
                    router.condemn(backend, group)
                    break

    async def _answers(self, backend: Backend) -> bool:
        path = "/ready" if backend.service.engine == "sglang" else "/health"
        status, _ = await self._ask("GET", backend, path, _PROBE_S)
        return 0 < status < 500

    async def _gives_a_token(self, backend: Backend) -> bool:
        """An engine that refuses the question (an embedding model, say) answers, which is what was asked."""
        body = {
            "model": backend.service.models[0],
            "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 1,
        }
        status, _ = await self._ask("POST", backend, "/v1/chat/completions", _TOKEN_S, body)
        return 0 < status < 500

    async def _ask(
        self, method: str, backend: Backend, path: str, limit_s: float, body: object = None
    ) -> tuple[int, bytes]:
        """Status and body; status 0 where no answer came."""
        headers = {"Authorization": f"Bearer {backend.key}"} if backend.key else {}
        limit = aiohttp.ClientTimeout(total=limit_s)
        try:
            async with self._session.request(
                method, backend.url + path, json=body, headers=headers, timeout=limit, allow_redirects=False,
                ssl=self._router.tls or True,
            ) as answer:  # fmt: skip
                return answer.status, await answer.content.read(_LONGEST_PAGE)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return 0, b""

    async def _read_load(self, backend: Backend) -> None:
        status, page = await self._ask("GET", backend, "/metrics", _PROBE_S)
        load = parse_load(backend.service.engine, page.decode("utf-8", "replace")) if status == 200 else None
        backend.foreign = max(0, load.running + load.waiting - backend.in_flight) if load else 0

    async def close(self) -> None:
        for task in tuple(self._busy.values()):
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)
