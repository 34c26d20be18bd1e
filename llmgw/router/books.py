"""The books: each exchange that reached an engine is counted at its endpoint and charged to its key."""

from typing import TYPE_CHECKING

from llmgw.router.backends import Backend, Group
from llmgw.router.tallies import Account, Tallies, Tally
from llmgw.serving.events import Usage
from llmgw.serving.keys import Caller
from llmgw.serving.routes import Route

if TYPE_CHECKING:
    from llmgw.router.exchange import Exchange

_MOST_PAGES = 10_000


class Books:
    """Finds where an exchange is counted by identity, which is one look-up for all of its names."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies
        self._pages: dict[tuple[Caller, Group, Route, Backend], tuple[Tally, Account]] = {}

    def close_pages(self) -> None:
        """The endpoints are others now; counts stay."""
        self._pages.clear()

    def estimate(self, exchange: "Exchange") -> Usage:
        """What was cut off is charged: one token an event, and the prompt at four bytes a token."""
        exchange.estimated = True
        events = 0 if exchange.stream is None else max(0, exchange.stream.progress)
        exchange.usage = Usage(exchange.body_bytes // 4, events)
        return exchange.usage

    def enter(self, exchange: "Exchange", backend: Backend, usage: Usage | None, outcome: str, now: float) -> None:
        """Counts the exchange at its endpoint, and for its key."""
        pages = self._pages.get((exchange.request.caller, exchange.group, exchange.route, backend))
        if pages is None:
            pages = self._open_pages(exchange, backend)
        tally, account = pages
        outcomes = tally.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        tally.whole.observe(now - exchange.started)
        if exchange.first_at:
            tally.first.observe(exchange.first_at - exchange.started)
            events = exchange.stream.progress if exchange.stream is not None else 0
            if events > 1:
                tally.between.observe((now - exchange.first_at) / (events - 1))
        account.requests += 1
        if outcome != "ok":
            account.failed += 1
        if usage is not None:
            account.prompt += usage.prompt
            account.completion += usage.completion
            if usage.cached:
                account.cached += usage.cached
            if exchange.estimated:
                account.estimated += usage.prompt + usage.completion

    def _open_pages(self, exchange: "Exchange", backend: Backend) -> tuple[Tally, Account]:
        """Where such an exchange is counted; looked up by identity next time, until the endpoints are others."""
        caller, target, operation = exchange.request.caller, exchange.group.target, exchange.route.operation
        if len(self._pages) > _MOST_PAGES:
            self._pages.clear()
        pages = (
            self._tallies.tally((backend.url, target.model, operation)),
            self._tallies.account((caller.tenant, caller.key_id, target.model, target.profile, operation)),
        )
        self._pages[caller, exchange.group, exchange.route, backend] = pages
        return pages
