"""The keys' limits in Valkey or Redis, so that several router hosts share them.

Each decision is one script on the server, by the server's clock, so that two routers never spend the same
allowance. While the server does not answer, each router decides by its own numbers: the limits then hold for
each router alone.
"""

import asyncio
import logging
import secrets
from typing import Any

from llmgw.base import LlmgwError
from llmgw.serving.faults import Fault
from llmgw.serving.keys import Caller
from llmgw.serving.limits import Ticket

log = logging.getLogger("llmgw.router")
_ALIVE_S = 15
_RETRY_S = 1.0

# KEYS: window, under way. ARGV: router, most in flight, requests, tokens, wanted (-1: no limit).
# Returns {0, second} for a place, {1|2|3, wait} for: too many at a time, requests, tokens.
_ENTER = """
local now = tonumber(redis.call('TIME')[1])
local most, requests, tokens, wanted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if most >= 0 then
  local have = 0
  local rows = redis.call('HGETALL', KEYS[2])
  for i = 1, #rows, 2 do
    if redis.call('EXISTS', 'llmgw:alive:' .. rows[i]) == 1 then have = have + tonumber(rows[i + 1])
    else redis.call('HDEL', KEYS[2], rows[i]) end
  end
  if have >= most then return {1, 1} end
end
local r, t, by_second = 0, 0, {}
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local kind, second = string.sub(rows[i], 1, 1), tonumber(string.sub(rows[i], 2))
  if now - second >= 60 then redis.call('HDEL', KEYS[1], rows[i])
  else
    local number = tonumber(rows[i + 1])
    local s = by_second[second] or {0, 0}
    if kind == 'r' then r = r + number; s[1] = s[1] + number else t = t + number; s[2] = s[2] + number end
    by_second[second] = s
  end
end
local function fits(r, t)
  return (requests < 0 or r < requests) and (tokens < 0 or t + wanted <= tokens or t <= 0)
end
if not fits(r, t) then
  local why = (requests >= 0 and r >= requests) and 2 or 3
  for second = now - 59, now do
    local s = by_second[second]
    if s then r = r - s[1]; t = t - s[2] end
    if fits(r, t) then return {why, second + 60 - now} end
  end
  return {why, 60}
end
redis.call('HINCRBY', KEYS[1], 'r' .. now, 1)
if tokens >= 0 then redis.call('HINCRBY', KEYS[1], 't' .. now, wanted) end
redis.call('EXPIRE', KEYS[1], 120)
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
return {0, now}
"""
# KEYS as above. ARGV: router, second, change of tokens.
_LEAVE = """
if redis.call('HINCRBY', KEYS[2], ARGV[1], -1) <= 0 then redis.call('HDEL', KEYS[2], ARGV[1]) end
local change = tonumber(ARGV[3])
if change == 0 then return 0 end
local now, second = tonumber(redis.call('TIME')[1]), tonumber(ARGV[2])
if now - second >= 60 then
  if change < 0 then return 0 end
  second = now
end
redis.call('HINCRBY', KEYS[1], 't' .. second, change)
redis.call('EXPIRE', KEYS[1], 120)
return 0
"""
_KIND = "rate_limit_error"


def _keys(key_id: str) -> list[str]:
    return [f"llmgw:window:{key_id}", f"llmgw:under-way:{key_id}"]


class ValkeyLimits:
    """Limits that all routers with one server share. `enter` gives None where the server did not answer."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise LlmgwError(
                "limits in Valkey need the package redis", hint="pip install 'llmgw[valkey]'"
            ) from None
        self._server: Any = Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
        self._enter = self._server.register_script(_ENTER)
        self._leave = self._server.register_script(_LEAVE)
        self._router = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timeout_s = timeout_s
        self._down_until = 0.0
        self.failures = 0

    async def enter(self, caller: Caller, wanted: int) -> Ticket | Fault | None:
        """A ticket, why there is none now, or None: the server cannot be asked."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._down_until:
            return None
        limits = [caller.max_in_flight, caller.requests_per_minute, caller.tokens_per_minute]
        arguments: list[str | int] = [self._router, *(-1 if limit is None else limit for limit in limits), wanted]
        answer = await self._asked(self._enter(keys=_keys(caller.key_id), args=arguments))
        if answer is None:
            return None
        why, number = int(answer[0]), int(answer[1])
        if why:
            return _fault(why, caller, number)
        return Ticket(caller, number, wanted if caller.tokens_per_minute is not None else 0)

    def leave(self, ticket: Ticket, used: int) -> None:
        """Gives a ticket back; nobody waits for that."""
        change = used - ticket.reserved if ticket.reserved else 0
        self._later(
            self._asked(self._leave(keys=_keys(ticket.caller.key_id), args=[self._router, ticket.second, change]))
        )

    async def _asked(self, question: Any) -> Any:
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(self._timeout_s):
                return await question
        except (RedisError, OSError, TimeoutError) as error:
            self.failures += 1
            if self._down_until <= 0:
                log.error("valkey_unreachable", extra={"problem": type(error).__name__})
            self._down_until = asyncio.get_running_loop().time() + _RETRY_S
            return None

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def beat(self) -> None:
        """Says that this router lives, so that what it has under way counts; to be called every five seconds."""
        if await self._asked(self._server.set(f"llmgw:alive:{self._router}", 1, ex=_ALIVE_S)) is not None:
            if self._down_until > 0:
                log.info("valkey_reachable")
            self._down_until = 0.0

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self._asked(self._server.delete(f"llmgw:alive:{self._router}"))
        await self._server.aclose()


def _fault(why: int, caller: Caller, wait: int) -> Fault:
    if why == 1:
        most = caller.max_in_flight
        return Fault(429, "key_busy", f"this key has {most} requests under way, as many as it may", _KIND, wait)
    if why == 2:
        requests = caller.requests_per_minute
        return Fault(429, "requests_per_minute", f"this key may make {requests} requests a minute", _KIND, wait)
    tokens = caller.tokens_per_minute
    return Fault(429, "tokens_per_minute", f"this key may take {tokens} tokens a minute", _KIND, wait)
