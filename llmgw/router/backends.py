"""The live endpoints: kept connections and requests under way, by URL, across generations of the published file."""

import asyncio
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from llmgw.router.upstream import Upstream
from llmgw.serving.catalog import Catalog, Service, Target
from llmgw.serving.choose import UNBOUNDED, hashed, warmth
from llmgw.serving.ejection import GOOD, Standing
from llmgw.serving.routes import Route

KEPT_S = 4.0
"""How long an idle connection is used again. uvicorn (vLLM, SGLang) and cpp-httplib close theirs after 5 s."""


class Backend:
    """One endpoint's connections and counts. Lives as long as its URL is published or has requests under way."""

    __slots__ = (
        "cap", "heads", "host", "idle", "in_flight", "joined", "key", "left_at", "port", "secure", "seed", "service",
        "share", "standing", "suspect", "url",
    )  # fmt: skip

    def __init__(self, service: Service, *, now: float) -> None:
        parts = urlsplit(service.url)
        self.url = service.url
        self.host = parts.hostname or ""
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.seed = hashed(service.url.encode())
        self.idle: list[Upstream] = []
        self.in_flight = 0
        self.standing: Standing = GOOD
        self.joined = now
        self.left_at = 0.0
        self.suspect = False
        self.key = ""
        self.heads: dict[Route, bytes] = {}
        self.service = service
        self.share = float(service.weight)
        self.cap = UNBOUNDED

    def serve(self, service: Service, *, key: str, cap: int | None) -> None:
        """What a new generation says of this URL."""
        self.service = service
        self.share = float(service.weight)
        self.cap = service.max_in_flight or cap or UNBOUNDED
        self.left_at = 0.0
        self.key = key
        self.heads.clear()

    def head_for(self, route: Route) -> bytes:
        """The request line and the headers that every request of the route to this endpoint has."""
        head = self.heads.get(route)
        if head is None:
            authority = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
            authorization = f"authorization: Bearer {self.key}\r\n" if self.key else ""
            head = f"POST {route.path_at(self.service.engine)} HTTP/1.1\r\nhost: {authority}\r\n{authorization}".encode()
            self.heads[route] = head
        return head

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
        _, upstream = await loop.create_connection(
            lambda: Upstream(self), self.host, self.port, ssl=tls if self.secure else None
        )
        return upstream

    def close_idle(self) -> None:
        for upstream in self.idle:
            upstream.drop()
        self.idle.clear()


class Group:
    """The endpoints that one name means, as the choice sees them: those that are in, file order."""

    __slots__ = ("all", "name", "open", "target", "turn")

    def __init__(self, target: Target, backends: Iterable[Backend]) -> None:
        self.target = target
        self.name = f"{target.model}:{target.profile}"
        self.all = tuple(backends)
        self.open = self.all
        self.turn = 0

    def sort(self, now: float) -> None:
        """Leaves out the ejected; with all of them out, none is: trying beats refusing."""
        self.open = tuple(b for b in self.all if not b.standing.is_out(now)) or self.all


class Backends:
    """All endpoints by URL and all groups by name."""

    def __init__(self, *, slow_start_s: float, cap: int | None) -> None:
        self._slow_start_s = slow_start_s
        self._cap = cap
        self.by_url: dict[str, Backend] = {}
        self.groups: dict[str, Group] = {}
        self.has_left = False

    def apply(self, catalog: Catalog, keys: dict[str, str], *, now: float) -> None:
        """Makes the catalogue's endpoints and names the live ones. Counts, connections and standings stay by URL."""
        first = not self.by_url
        for url, service in catalog.services.items():
            backend = self.by_url.get(url)
            if backend is None:
                backend = self.by_url[url] = Backend(service, now=-1e9 if first else now)
            backend.serve(service, key=keys.get(service.id, ""), cap=self._cap)
        for url, backend in self.by_url.items():
            if url not in catalog.services and not backend.left_at:
                backend.left_at = now
                backend.close_idle()
        by_target = {id(t): Group(t, (self.by_url[url] for url in t.urls)) for t in catalog.targets.values()}
        self.groups = {name: by_target[id(target)] for name, target in catalog.targets.items()}
        self.sweep(now)

    def sweep(self, now: float) -> None:
        """Forgets what has left and has nothing under way; brings shares and groups up to date."""
        for url in [u for u, b in self.by_url.items() if b.left_at and not b.in_flight]:
            del self.by_url[url]
        self.has_left = any(backend.left_at for backend in self.by_url.values())
        for backend in self.by_url.values():
            backend.share = backend.service.weight * warmth(now - backend.joined, self._slow_start_s)
        for group in set(self.groups.values()):
            group.sort(now)
