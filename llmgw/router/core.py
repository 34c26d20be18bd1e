"""What all connections of one router process share. One event loop owns it, so there are no locks."""

import asyncio
import itertools
import logging
import os
import random
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmgw.router.backends import Backend, Backends, Group, SharedCounts
from llmgw.router.books import Books
from llmgw.router.config import Policy, RouterConfig
from llmgw.router.exchange import ANSWERING, QUEUED, WAITING
from llmgw.router.meters import Limits, Meters, OwnMeters
from llmgw.router.tallies import Tallies, count
from llmgw.serving import choose
from llmgw.serving.body import prompt_key
from llmgw.serving.catalog import EMPTY, Catalog
from llmgw.serving.ejection import EjectionRules, after_failure, after_success
from llmgw.serving.failover import RetryBudget, Trouble
from llmgw.serving.faults import (
    ENGINE_SILENT,
    ENGINE_STALLED,
    ENGINE_WITHDRAWN,
    QUEUE_FULL,
    QUEUE_SLOW,
    STOPPING,
    Fault,
)
from llmgw.serving.headers import bearer, usable_request_id
from llmgw.serving.keys import OPEN, KeyTable
from llmgw.serving.limits import Ticket
from llmgw.serving.queue import FairQueue

if TYPE_CHECKING:
    from llmgw.router.accesslog import AccessLog
    from llmgw.router.exchange import Exchange
    from llmgw.router.front import Front
    from llmgw.router.request import Request
    from llmgw.router.valkey import ValkeyLimits

log = logging.getLogger("llmgw.router")


class Router:
    """Endpoints, keys, counts, and every connection."""

    def __init__(
        self,
        config: RouterConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        shared: SharedCounts | None = None,
        meters: Meters | None = None,
    ) -> None:
        self.config = config
        self.loop = loop
        self.time = loop.time
        self.now = loop.time()
        self.wall = time.time()
        self.catalog: Catalog = EMPTY
        self.keys: KeyTable = OPEN
        self.problem = ""
        self.loaded_at = 0.0
        self.shares_counts = shared is not None
        self.backends = Backends(slow_start_s=config.slow_start_s, cap=config.default_max_in_flight, shared=shared)
        self.budget = RetryBudget()
        self.rules = EjectionRules()
        self.tallies = Tallies()
        self.books = Books(self.tallies)
        self.limits = Limits(meters or OwnMeters())
        self.queues: dict[str, FairQueue[Exchange]] = {}
        self.access: AccessLog | None = None
        self.remote_limits: ValkeyLimits | None = None
        self.tls: ssl.SSLContext | None = None
        self.first_byte_s = config.deadlines.first_byte_s
        self.stopping = False
        self.fronts: set[Front] = set()
        self.exchanges: set[Exchange] = set()
        self.addresses: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._boot = os.urandom(6).hex().encode()
        self._draw = random.Random(os.urandom(16)).random  # noqa: S311 - spreads load, guards nothing

    def load(self, catalog: Catalog, engine_keys: Mapping[str, str]) -> None:
        """Serves by this generation from now on; nothing that is under way is touched."""
        self.catalog = catalog
        self.loaded_at = self.wall
        self.books.close_pages()
        self.backends.apply(catalog, engine_keys, now=self.time())

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
        """Sets the request's caller, or says why it may not call. Some pages are open to anybody."""
        if request.is_open:
            return None
        caller = self.keys.check(bearer(request.headers), self.wall)
        if isinstance(caller, Fault):
            return caller
        request.caller = caller
        return None

    def admit(self, exchange: "Exchange", wanted: int) -> None:
        """Lets a request of a limited key go on, or answers why not."""
        if self.remote_limits is not None:
            exchange.dialing = self.loop.create_task(self._admit_remotely(exchange, wanted))
            return
        self._admitted(exchange, self.limits.enter(exchange.request.caller, wanted, int(self.wall)))

    async def _admit_remotely(self, exchange: "Exchange", wanted: int) -> None:
        assert self.remote_limits is not None
        caller = exchange.request.caller
        ticket = await self.remote_limits.enter(caller, wanted)
        exchange.dialing = None
        if ticket is None:
            ticket = self.limits.enter(caller, wanted, int(self.wall))
        elif isinstance(ticket, Ticket):
            exchange.remote_ticket = True
        self._admitted(exchange, ticket)

    def _admitted(self, exchange: "Exchange", ticket: Ticket | Fault) -> None:
        if isinstance(ticket, Fault):
            exchange.refuse(ticket)
            return
        exchange.ticket = ticket
        exchange.forward()

    def choose(self, group: Group, exchange: "Exchange") -> Backend | None:
        """The endpoint for a request; None where none is in or all are at their cap."""
        candidates = group.open
        if exchange.tried:
            candidates = tuple(b for b in candidates if b.url not in exchange.tried)
        else:
            self.budget.requests += 1
        group.turn = turn = group.turn + 1
        if self.shares_counts:
            for backend in candidates:
                backend.look_elsewhere()
        policy = self.config.policy
        if policy is Policy.LEAST or len(candidates) < 2:
            return choose.least_in_flight(candidates, turn)
        if policy is Policy.TWO:
            return choose.power_of_two(candidates, self._draw(), self._draw())
        key = self._affinity(policy, exchange)
        if not key:
            return choose.least_in_flight(candidates, turn)
        return choose.by_affinity(candidates, choose.hashed(key), self.config.affinity_bound)

    def _affinity(self, policy: Policy, exchange: "Exchange") -> bytes:
        if policy is Policy.PREFIX:
            return b"" if exchange.route.multipart else prompt_key(exchange.body)
        return exchange.request.headers.get(b"x-session-id") or exchange.ask.session.encode()

    # -- waiting for an endpoint

    def enqueue(self, exchange: "Exchange") -> None:
        """A place in the model's queue; whoever that turns away gets a 429 at once."""
        name = exchange.group.name
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = FairQueue(self.config.limits.queue)
        exchange.phase = QUEUED
        exchange.deadline = self.time() + self.config.deadlines.queue_s
        gone = queue.put(exchange.request.caller.key_id, exchange)
        if gone is not None:
            gone.refuse(QUEUE_FULL)

    def unqueue(self, exchange: "Exchange") -> None:
        """One that waits no longer."""
        if exchange.phase == QUEUED and self.queues:
            queue = self.queues.get(exchange.group.name)
            if queue is not None:
                queue.remove(exchange.request.caller.key_id, exchange)

    def serve_waiting(self) -> None:
        """Sends on those who wait, as far as there is room."""
        for name, queue in tuple(self.queues.items()):
            while queue:
                group = self.backends.groups.get(name)
                if (
                    group is not None
                    and group.open
                    and not any(b.in_flight + b.elsewhere < b.cap for b in group.open)
                ):
                    break
                exchange = queue.pop()
                if exchange is not None:
                    exchange.group = group or exchange.group
                    exchange.forward()
            if not queue:
                self.queues.pop(name, None)

    # -- what answers say

    def judge(self, exchange: "Exchange", status: int) -> None:
        """An answer says something about its endpoint; one of class 4xx says nothing."""
        backend = exchange.backend
        if backend is None:
            return
        if status >= 500:
            self.condemn(backend, exchange.group)
        elif status < 400 and backend.standing.failures:
            backend.standing = after_success(backend.standing)

    def condemn(self, backend: Backend, group: Group) -> None:
        """One more failure of an endpoint."""
        now = self.time()
        was_out = backend.is_out(now)
        out = sum(other.is_out(now) for other in group.all)
        backend.standing = after_failure(backend.standing, self.rules, now=now, out=out, total=len(group.all))
        backend.suspect = True
        if backend.standing.is_out(now) and not was_out:
            backend.held = self.config.check_s > 0
            count(self.tallies.ejections, backend.url)
            log.warning("endpoint_ejected", extra={"endpoint": backend.service.id, "url": backend.url})
            self.backends.sweep(now)

    def note_trouble(self, trouble: Trouble) -> None:
        count(self.tallies.retries, trouble.name.lower())

    # -- the end of an exchange

    def finished(self, exchange: "Exchange", outcome: str) -> None:
        """The exchange is over; whatever counted it lets it go."""
        self.exchanges.discard(exchange)
        now = self.time()
        backend, usage = exchange.backend, exchange.usage
        if backend is not None:
            backend.leave()
            if (
                usage is None
                and exchange.phase >= WAITING
                and (exchange.stream is not None or outcome == "client_left")
            ):
                usage = self.books.estimate(exchange)
            self.books.enter(exchange, backend, usage, outcome, now)
        else:
            count(self.tallies.refused, outcome)
        if exchange.ticket is not None:
            used = 0 if usage is None else usage.prompt + usage.completion
            if exchange.remote_ticket and self.remote_limits is not None:
                self.remote_limits.leave(exchange.ticket, used)
            else:
                self.limits.leave(exchange.ticket, used, int(self.wall))
        if self.access is not None:
            self.access.write(exchange, outcome, now)
        if self.queues:
            self.serve_waiting()

    def refused(self, fault: Fault) -> None:
        """A request that never became an exchange."""
        count(self.tallies.refused, fault.code)

    def expire(self, exchange: "Exchange", now: float) -> None:
        """Ends what has waited too long: for an endpoint, for the first byte, for the next event."""
        if exchange.phase == QUEUED:
            self.unqueue(exchange)
            exchange.refuse(QUEUE_SLOW)
        elif exchange.phase == WAITING:
            exchange.condemn()
            exchange.drop_upstream()
            exchange.refuse(ENGINE_SILENT)
        elif exchange.phase == ANSWERING and exchange.relay is not None and not exchange.front.is_full:
            begun = exchange.stream is None or exchange.first_at
            if exchange.relay.progress != exchange.seen and begun:
                exchange.seen = exchange.relay.progress
                exchange.deadline = now + self.config.deadlines.idle_s
                return
            exchange.condemn()
            exchange.end_early(ENGINE_STALLED if begun else ENGINE_SILENT)

    def end_withdrawn(self, now: float) -> None:
        """Ends the requests at endpoints that were dropped from the file longer ago than a drain may take."""
        limit = self.config.deadlines.dropped_s
        for exchange in tuple(self.exchanges):
            backend = exchange.backend
            if backend is not None and backend.left_at and now - backend.left_at > limit:
                exchange.stop(ENGINE_WITHDRAWN)

    def close_quiet(self, *, now: float, quiet_since: float) -> None:
        """While draining: closes connections on which nothing has come for a while.

        A client may be about to send on a kept connection; it gets two seconds to do so, and its answer says that
        the connection closes.
        """
        for front in tuple(self.fronts):
            if front.exchange is None and now - max(quiet_since, front.since) > 2.0:
                front.close()

    def end_all(self) -> None:
        """The drain has taken as long as it may: what is left ends with an error."""
        for exchange in tuple(self.exchanges):
            exchange.stop(STOPPING)

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
        if self.backends.has_left:
            self.end_withdrawn(now)
        self.budget.fade()
        if self.queues:
            self.serve_waiting()
