"""The live endpoints.

Kept connections and requests under way, by URL, across generations of the published file.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping, MutableSequence
from typing import Protocol, cast
from urllib.parse import urlsplit

from llmgw.router.upstream import Upstream
from llmgw.serving.catalog import Catalog, Service, Target
from llmgw.serving.choose import UNBOUNDED, hashed, warmth
from llmgw.serving.ejection import GOOD, Standing
from llmgw.serving.routes import Route

REST_S = 1.0
"""How long a connection rests after a stream. llama-server b10434 with a tenth of a processor was seen to close within
13 ms of the next request."""


class SharedCounts(Protocol):
    """Requests under way at each endpoint by process, in memory that all of them see."""

    own: int

    def row(self, label: str) -> MutableSequence[int]:
        """One number for each process; `own` is the place of this one."""
        ...


class Backend:
    """One endpoint's connections and counts. Lives as long as its URL is published or has requests under way.

    `elsewhere` are requests that other processes and routers have there, as far as that is known. `held`: its time
    out is over, and it comes back when a probe has found it well. `suspect`: something went wrong since the last
    probe.
    """

    __slots__ = (
        "_row", "_shared", "cap", "elsewhere", "foreign", "heads", "held", "host", "idle", "in_flight", "joined",
        "keeps_streams", "key", "left_at", "port", "probed_at", "resting", "secure", "seed", "service", "share",
        "standing", "suspect", "url",
    )  # fmt: skip

    def __init__(self, service: Service, *, now: float, shared: SharedCounts | None) -> None:
        parts = urlsplit(service.url)
        self.url = service.url
        self.host = parts.hostname or ""
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.seed = hashed(service.url.encode())
        self.idle: list[Upstream] = []
        self.resting: list[Upstream] = []
        self.keeps_streams = False
        self.in_flight = 0
        self.elsewhere = 0
        self.foreign = 0
        self.standing: Standing = GOOD
        self.joined = now
        self.left_at = 0.0
        self.probed_at = 0.0
        self.suspect = False
        self.held = False
        self.key = ""
        self.heads: dict[Route, bytes] = {}
        self.service = service
        self.share = float(service.weight)
        self.cap = UNBOUNDED
        self._shared = shared
        self._row = shared.row(service.url) if shared else None

    def serve(self, service: Service, *, key: str, cap: int | None) -> None:
        """What a new generation says of this URL."""
        self.service = service
        self.cap = service.max_in_flight or cap or UNBOUNDED
        self.left_at = 0.0
        self.key = key
        self.heads.clear()

    def enter(self) -> None:
        """One more request under way here."""
        self.in_flight += 1
        if self._row is not None and self._shared is not None:
            self._row[self._shared.own] = self.in_flight

    def leave(self) -> None:
        self.in_flight -= 1
        if self._row is not None and self._shared is not None:
            self._row[self._shared.own] = self.in_flight

    def look_elsewhere(self) -> None:
        """Brings `elsewhere` up to date with the other processes."""
        others = sum(self._row) - self.in_flight if self._row is not None else 0
        self.elsewhere = max(others, self.foreign)

    def is_out(self, now: float) -> bool:
        """Whether it gets no new requests for the time being."""
        return self.held or self.standing.is_out(now)

    def head_for(self, route: Route) -> bytes:
        """The request line and the headers that every request of the route to this endpoint has."""
        head = self.heads.get(route)
        if head is None:
            head = self.heads[route] = self._head_of("POST", route.path_at(self.service.engine))
        return head

    def _head_of(self, method: str, path: str) -> bytes:
        authority = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        authorization = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{method} {path} HTTP/1.1\r\nhost: {authority}\r\n{authorization}".encode()

    def kept(self, now: float) -> Upstream | None:
        """A kept connection that the engine has not closed, the youngest first; None where there is none."""
        while self.idle:
            upstream = self.idle.pop()
            if upstream.usable_until > now and upstream.is_open:
                return upstream
            upstream.drop()
        return None

    async def connect(self, tls: ssl.SSLContext | None) -> Upstream:
        """A new connection; OSError where none can be made."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: cast("asyncio.Protocol", Upstream(self)),
            self.host,
            self.port,
            ssl=tls if self.secure else None,
        )
        return cast("Upstream", made)

    def forget(self, upstream: Upstream) -> None:
        """A connection is gone."""
        if upstream in self.idle:
            self.idle.remove(upstream)
        elif upstream in self.resting:
            self.resting.remove(upstream)

    def close_idle(self, now: float) -> None:
        """Closes the kept connections that will not be used again, and lets those be used that have had their rest.

        llama-server promises after every answer to keep the connection, and closes it after a stream: a request that
        arrives between the two is lost, and nobody can tell whether it was begun. So a connection rests after a
        stream, until one has outlived its rest: then the engine keeps them.
        """
        for upstream in tuple(self.resting):
            if upstream.released_at + REST_S <= now:
                self.keeps_streams = True
                self.resting.remove(upstream)
                self.idle.append(upstream)
        for kept in (self.idle, self.resting):
            for upstream in tuple(kept):
                if self.left_at or upstream.usable_until <= now:
                    kept.remove(upstream)
                    upstream.drop()


class Group:
    """The endpoints that one name means, as the choice sees them: `open` are those that are in, file order."""

    __slots__ = ("all", "name", "open", "target", "turn")

    def __init__(self, target: Target, backends: Iterable[Backend]) -> None:
        self.target = target
        self.name = f"{target.model}:{target.profile}"
        self.all = tuple(backends)
        self.open = self.all
        self.turn = 0

    def sort(self, now: float) -> None:
        """Leaves out the ejected; with all of them out, none is: trying beats refusing."""
        self.open = tuple(b for b in self.all if not b.is_out(now)) or self.all


class Backends:
    """All endpoints by URL and all groups by name."""

    def __init__(self, *, slow_start_s: float, cap: int | None, shared: SharedCounts | None = None) -> None:
        self._slow_start_s = slow_start_s
        self._cap = cap
        self._shared = shared
        self.by_url: dict[str, Backend] = {}
        self.groups: dict[str, Group] = {}
        self.has_left = False

    def apply(self, catalog: Catalog, keys: Mapping[str, str], *, now: float) -> None:
        """Makes the catalogue's endpoints and names the live ones. Counts, connections and standings stay by URL.

        Endpoints of the first generation are taken to be warm: all of them have the same to catch up.
        """
        joined = now if self.by_url else now - self._slow_start_s
        for url, service in catalog.services.items():
            backend = self.by_url.get(url)
            if backend is None:
                backend = self.by_url[url] = Backend(service, now=joined, shared=self._shared)
            backend.serve(service, key=keys.get(service.id, ""), cap=self._cap)
        for url, backend in self.by_url.items():
            if url not in catalog.services and not backend.left_at:
                backend.left_at = now
                backend.close_idle(now)
        by_target = {id(t): Group(t, (self.by_url[url] for url in t.urls)) for t in catalog.targets.values()}
        self.groups = {name: by_target[id(target)] for name, target in catalog.targets.items()}
        self.sweep(now)

    def sweep(self, now: float) -> None:
        """Forgets what has left and has nothing under way; brings shares, counts and groups up to date."""
        for url in [u for u, b in self.by_url.items() if b.left_at and not b.in_flight]:
            del self.by_url[url]
        self.has_left = any(backend.left_at for backend in self.by_url.values())
        for backend in self.by_url.values():
            backend.share = backend.service.weight * warmth(now - backend.joined, self._slow_start_s)
            backend.look_elsewhere()
            backend.close_idle(now)
        for group in set(self.groups.values()):
            group.sort(now)
