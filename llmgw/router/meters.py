"""The numbers behind the keys' limits, and the decisions made on them."""

from collections.abc import MutableSequence
from contextlib import AbstractContextManager
from typing import Protocol

from llmgw.serving.faults import Fault
from llmgw.serving.keys import Caller
from llmgw.serving.limits import Ticket, add, fresh_window, has_room, roll, settle, wait_for_room

_KIND = "rate_limit_error"


class Meters(Protocol):
    """Where the numbers are. With a lock, all of them are read and changed while it is held."""

    lock: AbstractContextManager[object] | None

    def window(self, key_id: str) -> MutableSequence[int]:
        """The key's window (llmgw.serving.limits), made when first asked for."""
        ...

    def under_way(self, key_id: str) -> int:
        """Requests of the key under way, in every process."""
        ...

    def change(self, key_id: str, by: int) -> None:
        """Counts requests of the key in this process."""
        ...


class OwnMeters:
    """The numbers of a router that is one process."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[object] | None = None
        self._windows: dict[str, list[int]] = {}
        self._under_way: dict[str, int] = {}

    def window(self, key_id: str) -> MutableSequence[int]:
        found = self._windows.get(key_id)
        if found is None:
            found = self._windows[key_id] = fresh_window()
        return found

    def under_way(self, key_id: str) -> int:
        return self._under_way.get(key_id, 0)

    def change(self, key_id: str, by: int) -> None:
        self._under_way[key_id] = self._under_way.get(key_id, 0) + by


class Limits:
    """Admission by key. A caller without limits never comes here."""

    def __init__(self, meters: Meters) -> None:
        self.meters = meters

    def enter(self, caller: Caller, wanted: int, second: int) -> Ticket | Fault:
        """A ticket, to be given back when the request is over, or why there is none now. `second`: since 1970."""
        lock = self.meters.lock
        if lock is None:
            return self._enter(caller, wanted, second)
        with lock:
            return self._enter(caller, wanted, second)

    def _enter(self, caller: Caller, wanted: int, second: int) -> Ticket | Fault:
        meters, key, most = self.meters, caller.key_id, caller.max_in_flight
        if most is not None and meters.under_way(key) >= most:
            return Fault(429, "key_busy", f"this key has {most} requests under way, as many as it may", _KIND, 1)
        requests, tokens = caller.requests_per_minute, caller.tokens_per_minute
        reserved = 0
        if requests is not None or tokens is not None:
            cells = meters.window(key)
            if cells[0] != second:
                roll(cells, second)
            if not has_room(cells, requests, tokens, wanted):
                return _limited(cells, caller, wanted)
            reserved = wanted if tokens is not None else 0
            add(cells, 1, reserved)
        if most is not None:
            meters.change(key, 1)
        return Ticket(caller, second, reserved)

    def leave(self, ticket: Ticket, used: int, second: int) -> None:
        """The request is over and took `used` tokens."""
        lock = self.meters.lock
        if lock is None:
            self._leave(ticket, used, second)
            return
        with lock:
            self._leave(ticket, used, second)

    def _leave(self, ticket: Ticket, used: int, second: int) -> None:
        meters, caller = self.meters, ticket.caller
        if caller.max_in_flight is not None:
            meters.change(caller.key_id, -1)
        if ticket.reserved and used != ticket.reserved:
            cells = meters.window(caller.key_id)
            if cells[0] != second:
                roll(cells, second)
            settle(cells, ticket.second, reserved=ticket.reserved, used=used)


def _limited(cells: MutableSequence[int], caller: Caller, wanted: int) -> Fault:
    requests, tokens = caller.requests_per_minute, caller.tokens_per_minute
    wait = wait_for_room(cells, requests=requests, tokens=tokens, wanted=wanted)
    if requests is not None and cells[1] >= requests:
        return Fault(429, "requests_per_minute", f"this key may make {requests} requests a minute", _KIND, wait)
    return Fault(429, "tokens_per_minute", f"this key may take {tokens} tokens a minute", _KIND, wait)
