"""The admin and metrics listeners: aiohttp applications beside the request path, never on its port."""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from llmgw.router.metrics import exposition
from llmgw.router.snapshot import Snapshot
from llmgw.serving.endpoints import NodesFile

Look = Callable[[], Awaitable[Snapshot]]
_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]
_COOKIE = "llmgw_session"
_SESSION_S = 12 * 3600
_TRIES, _TRIES_S = 5, 60.0
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1", "[::1]"))
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'",
}


class Gate:
    """Who may use the admin listener.

    Host names other than loopback's and the trusted ones are refused, which stops DNS rebinding; writes from other
    sites are refused by Sec-Fetch-Site and Origin; where a token is set, a session is needed for everything.
    """

    def __init__(
        self, *, token: str, trusted_hosts: frozenset[str], secure: bool, clock: Callable[[], float]
    ) -> None:
        self._token = hashlib.sha256(token.encode()).digest() if token else b""
        self._hosts = _LOOPBACK | trusted_hosts
        self._secure = secure
        self._clock = clock
        self._sessions: dict[str, float] = {}
        self._tries: list[float] = []

    def refusal(self, request: web.Request) -> str:
        """Why the request is refused, or nothing."""
        host = request.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() not in self._hosts:
            return "foreign_host"
        if request.method not in ("GET", "HEAD") and not self._is_same_site(request, host):
            return "cross_site"
        return ""

    @staticmethod
    def _is_same_site(request: web.Request, host: str) -> bool:
        """Browsers say where a request comes from; one that says nothing at all is none, and must send JSON."""
        site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
        if site is not None and site not in ("same-origin", "none"):
            return False
        if origin is not None and origin.partition("://")[2] != host:
            return False
        return request.content_type == "application/json"

    def is_known(self, request: web.Request) -> bool:
        """Whether there is a session, or none is needed."""
        if not self._token:
            return True
        name = request.cookies.get(_COOKIE, "")
        return self._sessions.get(hashlib.sha256(name.encode()).hexdigest(), 0.0) > self._clock()

    def log_in(self, request: web.Request, token: str) -> web.Response:
        """A new session for the right token; the one that the browser had, if any, ends. Five tries a minute."""
        now = self._clock()
        self._tries = [at for at in self._tries if now - at < _TRIES_S]
        if len(self._tries) >= _TRIES:
            return web.json_response({"error": "too_many_tries"}, status=429, headers={"Retry-After": "60"})
        if not self._token or not hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._token):
            self._tries.append(now)
            return web.json_response({"error": "wrong_token"}, status=403)
        self._sessions = {name: until for name, until in self._sessions.items() if until > now}
        self._sessions.pop(hashlib.sha256(request.cookies.get(_COOKIE, "").encode()).hexdigest(), None)
        name = secrets.token_urlsafe(32)
        self._sessions[hashlib.sha256(name.encode()).hexdigest()] = now + _SESSION_S
        answer = web.json_response({"ok": True})
        answer.set_cookie(
            _COOKIE, name, max_age=_SESSION_S, httponly=True, samesite="Strict", secure=self._secure, path="/"
        )
        return answer


def admin_app(
    gate: Gate, look: Look, reload: Callable[[], None], pages: Callable[[web.Application], None] | None = None
) -> web.Application:
    """`GET /status`, `POST /api/v1/reload`, `POST /login`, health pages. `pages` adds a dashboard's own routes."""

    @web.middleware
    async def guard(request: web.Request, handler: _Next) -> web.StreamResponse:
        refusal = gate.refusal(request)
        if refusal:
            return web.json_response({"error": refusal}, status=403, headers=_HEADERS)
        if request.path not in ("/login", "/health") and not gate.is_known(request):
            return web.json_response({"error": "login_needed"}, status=401, headers=_HEADERS)
        answer = await handler(request)
        answer.headers.update({name: text for name, text in _HEADERS.items() if name not in answer.headers})
        return answer

    async def status(_: web.Request) -> web.Response:
        return web.json_response(shown(await look()))

    async def login(request: web.Request) -> web.Response:
        try:
            value = await request.json()
        except ValueError:
            value = None
        token = value.get("token") if isinstance(value, dict) else None
        return gate.log_in(request, token if isinstance(token, str) else "")

    async def read_again(_: web.Request) -> web.Response:
        reload()
        return web.json_response(shown(await look()))

    app = web.Application(middlewares=[guard], client_max_size=64 * 1024)
    app.router.add_get("/status", status)
    app.router.add_post("/login", login)
    app.router.add_post("/api/v1/reload", read_again)
    app.router.add_get("/health", _health)
    if pages is not None:
        pages(app)
    return app


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def shown(shot: Snapshot) -> dict[str, Any]:
    """The snapshot as the admin listener shows it: without the histograms, endpoints as a list by id."""
    endpoints = [{"url": url, **endpoint} for url, endpoint in shot["endpoints"].items()]
    value = {name: shot[name] for name in shot if name not in ("tallies", "accounts", "endpoints")}
    return {**value, "endpoints": sorted(endpoints, key=lambda one: (one["id"], one["url"]))}


def metrics_app(look: Look, nodes: Callable[[], NodesFile | None], clock: Callable[[], float]) -> web.Application:
    """`GET /metrics` and `/health`, and nothing else."""

    async def metrics(_: web.Request) -> web.Response:
        page = exposition(await look(), nodes(), clock())
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/health", _health)
    return app


def look_at(own: Callable[[], Snapshot], siblings: Mapping[int, Callable[[], Awaitable[Snapshot | None]]]) -> Look:
    """One process's snapshot, or with its siblings' all of theirs put together."""
    from llmgw.router.snapshot import together

    async def look() -> Snapshot:
        parts = [own(), *[part for ask in siblings.values() if (part := await ask()) is not None]]
        return together(parts)

    return look
