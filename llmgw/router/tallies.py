"""What is counted, as plain numbers: the hot path adds, and whoever is asked for metrics reads."""

from bisect import bisect_left
from dataclasses import dataclass, field

# Seconds. The bounds of vLLM's own histograms of the same times, thinned.
FIRST_TOKEN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
BETWEEN_TOKENS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
WHOLE = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Histogram:
    """Counts of values by the smallest bound that is not below them, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tally:
    """Requests of one operation at one endpoint, for one model."""

    __slots__ = ("between", "first", "outcomes", "whole")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.first = Histogram(FIRST_TOKEN)
        self.between = Histogram(BETWEEN_TOKENS)
        self.whole = Histogram(WHOLE)


class Account:
    """What one key took of one model by one operation. `written` is how much of it the ledger has."""

    __slots__ = ("cached", "completion", "estimated", "failed", "prompt", "requests", "written")

    def __init__(self) -> None:
        self.requests = 0
        self.failed = 0
        self.prompt = 0
        self.completion = 0
        self.cached = 0
        self.estimated = 0
        self.written = (0, 0, 0, 0, 0, 0)

    def values(self) -> tuple[int, int, int, int, int, int]:
        return self.requests, self.failed, self.prompt, self.completion, self.cached, self.estimated


AccountName = tuple[str, str, str, str, str]
"""Tenant, key id, model, profile, operation."""
TallyName = tuple[str, str, str]
"""Endpoint URL, model, operation."""


@dataclass(slots=True)
class Tallies:
    """All counts of one process since it started."""

    by_endpoint: dict[TallyName, Tally] = field(default_factory=dict)
    accounts: dict[AccountName, Account] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    ejections: dict[str, int] = field(default_factory=dict)
    reloads: dict[str, int] = field(default_factory=dict)
    connections: int = 0

    def tally(self, name: TallyName) -> Tally:
        found = self.by_endpoint.get(name)
        if found is None:
            found = self.by_endpoint[name] = Tally()
        return found

    def account(self, name: AccountName) -> Account:
        found = self.accounts.get(name)
        if found is None:
            found = self.accounts[name] = Account()
        return found


def count(counts: dict[str, int], name: str) -> None:
    """One more."""
    counts[name] = counts.get(name, 0) + 1
