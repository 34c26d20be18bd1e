"""What all connections of one router process share. One event loop owns it, so there are no locks."""

import asyncio
import itertools
import json
import os
import random
import ssl
import time
from typing import TYPE_CHECKING

from llmgw.router.backends import Backend, Backends, Group
from llmgw.router.config import Policy, RouterConfig
from llmgw.serving import choose
from llmgw.serving.body import prompt_key
from llmgw.serving.catalog import EMPTY, Catalog, model_listing
from llmgw.serving.ejection import EjectionRules, after_failure, after_success, counts_as_failure
from llmgw.serving.failover import RetryBudget
from llmgw.serving.faults import ENGINE_SILENT, ENGINE_STALLED, Fault, fault_value, unknown_model
from llmgw.serving.headers import bearer, usable_request_id
from llmgw.serving.keys import OPEN, KeyTable
from llmgw.serving.routes import HEALTH, MODELS, READY, Dialect, path_of

if TYPE_CHECKING:
    from llmgw.router.exchange import Exchange, Request
    from llmgw.router.front import Front

_JSON = b"application/json"


class Router:
    """Endpoints, keys, counts, and every connection."""

    def __init__(self, config: RouterConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.time = loop.time
        self.now = loop.time()
        self.wall = time.time()
        self.catalog: Catalog = EMPTY
        self.keys: KeyTable = OPEN
        self.problem = ""
        self.loaded_at = 0.0
        self.backends = Backends(slow_start_s=config.slow_start_s, cap=config.default_max_in_flight)
        self.budget = RetryBudget()
        self.rules = EjectionRules()
        self.tls: ssl.SSLContext | None = None
        self.stopping = False
        self.fronts: set[Front] = set()
        self.exchanges: set[Exchange] = set()
        self.addresses: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._boot = os.urandom(6).hex().encode()
        self._draw = random.Random(os.urandom(16)).random

    # -- connections

    def welcome(self, front: "Front") -> bool:
        """Counts a new connection; False where its address has too many."""
        self.fronts.add(front)
        count = self.addresses[front.address] = self.addresses.get(front.address, 0) + 1
        return count <= self.config.limits.connections_per_address

    def farewell(self, front: "Front") -> None:
        self.fronts.discard(front)
        left = self.addresses.get(front.address, 1) - 1
        if left:
            self.addresses[front.address] = left
        else:
            self.addresses.pop(front.address, None)

    def request_id(self, given: bytes | None) -> bytes:
        """The client's own id where it can be used, or a new one."""
        if given is not None and usable_request_id(given):
            return given
        return b"req-%b-%x" % (self._boot, next(self._numbers))

    # -- decisions

    def identify(self, request: "Request") -> Fault | None:
        """Sets the request's caller, or says why it may not call."""
        caller = self.keys.check(bearer(request.headers), self.wall)
        if isinstance(caller, Fault):
            return caller
        request.caller = caller
        return None

    def choose(self, group: Group, exchange: "Exchange") -> Backend | None:
        candidates = group.open
        if exchange.tried:
            candidates = tuple(b for b in candidates if b.url not in exchange.tried)
        group.turn += 1
        policy = self.config.policy
        if policy is Policy.LEAST or len(candidates) < 2:
            return choose.least_in_flight(candidates, group.turn)
        if policy is Policy.TWO:
            return choose.power_of_two(candidates, self._draw(), self._draw())
        key = self._affinity(policy, exchange)
        if not key:
            return choose.least_in_flight(candidates, group.turn)
        return choose.by_affinity(candidates, choose.hashed(key), self.config.affinity_bound)

    def _affinity(self, policy: Policy, exchange: "Exchange") -> bytes:
        if policy is Policy.PREFIX:
            return prompt_key(exchange.body)
        return exchange.request.headers.get(b"x-session-id") or exchange.ask.session.encode()

    def judge(self, exchange: "Exchange", status: int) -> None:
        """An answer says something about its endpoint."""
        backend = exchange.backend
        if counts_as_failure(status):
            self.condemn(exchange)
        elif backend.standing.failures:
            backend.standing = after_success(backend.standing)

    def condemn(self, exchange: "Exchange") -> None:
        """One more failure of the exchange's endpoint."""
        backend, group, now = exchange.backend, exchange.group, self.time()
        out = self.backends.count_out(group, now)
        backend.standing = after_failure(backend.standing, self.rules, now=now, out=out, total=len(group.all))
        if backend.standing.is_out(now):
            self.backends.sweep(now)

    def finished(self, exchange: "Exchange", outcome: str) -> None:
        """The exchange is over; whatever counted it lets it go."""
        self.exchanges.discard(exchange)
        backend = getattr(exchange, "backend", None)
        if backend is not None:
            backend.in_flight -= 1

    def refused(self, fault: Fault) -> None:
        """A request that never became an exchange."""

    def expire(self, exchange: "Exchange", now: float) -> None:
        """Ends what has waited too long: for the connection, for the first byte, for the next one."""
        stream = exchange.stream
        if exchange.front.is_full:
            return
        if stream is not None and stream.events != exchange.seen:
            exchange.seen = stream.events
            exchange.deadline = now + self.config.deadlines.idle_s
            return
        self.condemn(exchange)
        if exchange.relay is None:
            exchange._drop_upstream()
            exchange.refuse(ENGINE_SILENT)
        else:
            exchange.end_early(ENGINE_STALLED, "engine_stalled")

    # -- the router's own pages

    def own_page(self, request: "Request") -> tuple[int, bytes, bytes]:
        """Status, content type and body of /health, /ready, /v1/models and /v1/models/NAME."""
        path = path_of(request.target)
        if path == HEALTH:
            return 200, _JSON, b'{"status":"ok"}'
        if path == READY:
            return self._ready()
        listing = model_listing(self.catalog, request.caller.models)
        if path == MODELS:
            return 200, _JSON, json.dumps({"object": "list", "data": listing}).encode()
        name = path[len(MODELS) + 1 :].decode("ascii", "replace")
        entry = next((entry for entry in listing if entry["id"] == name), None)
        if entry is None:
            return 404, _JSON, json.dumps(fault_value(unknown_model(name), Dialect.OPENAI, "")).encode()
        return 200, _JSON, json.dumps(entry).encode()

    def _ready(self) -> tuple[int, bytes, bytes]:
        loaded = self.catalog is not EMPTY
        state = "stopping" if self.stopping else "stale" if self.problem and loaded else "ready" if loaded else "empty"
        body = {"status": state, "generation": self.catalog.generation, "problem": self.problem}
        return 200 if state in ("ready", "stale") else 503, _JSON, json.dumps(body).encode()

    # -- time

    def sweep(self) -> None:
        """Runs a few times a second: deadlines, slow clients, warming endpoints."""
        now = self.now = self.time()
        self.wall = time.time()
        for exchange in tuple(self.exchanges):
            if exchange.deadline and now > exchange.deadline:
                exchange.expire(now)
        for front in tuple(self.fronts):
            front.expire(now)
        self.backends.sweep(now)
