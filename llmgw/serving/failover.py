"""Whether a request may be tried again elsewhere: only where no engine can have begun it."""

import re
from dataclasses import dataclass
from enum import Enum


class Trouble(Enum):
    """What went wrong with one attempt, before the client got a byte."""

    UNREACHABLE = "no connection could be made"
    NOT_TAKEN = "the engine closed a kept connection before it took the request"
    DECLINED = "the engine says that it did not start"
    LOST = "the engine had the request"


MOST_ATTEMPTS = 3
# llama.cpp while it loads: 503 {"error":{"message":"Loading model","type":"unavailable_error","code":503}}.
_LOADING = re.compile(rb'"message"\s*:\s*"Loading model"')


@dataclass(slots=True)
class RetryBudget:
    """How many declined requests may be sent on: a part of the requests seen, so that overload is not doubled.

    Both counts halve when `requests` reaches 1,000, so that the past fades. Source of the rule: Envoy's retry
    budgets (budget_percent 20, min_retry_concurrency 3).
    """

    part: float = 0.2
    least: int = 3
    requests: int = 0
    retries: int = 0

    def fade(self) -> None:
        """To be called now and then."""
        if self.requests >= 1000:
            self.requests //= 2
            self.retries //= 2

    def take(self) -> bool:
        """Whether one more is allowed; if so it is counted."""
        if self.retries >= self.least + self.requests * self.part:
            return False
        self.retries += 1
        return True


def may_try_again(trouble: Trouble, attempts: int, budget: RetryBudget) -> bool:
    """Whether another attempt may be made after `attempts` of them.

    A declined one also needs the budget's leave.
    """
    if attempts >= MOST_ATTEMPTS or trouble is Trouble.LOST:
        return False
    return trouble is not Trouble.DECLINED or budget.take()


def says_not_started(status: int, body: bytes) -> bool:
    """Whether an answer is an engine's own word that it has not begun: only llama.cpp's while it loads is one."""
    return status == 503 and _LOADING.search(body[:4096]) is not None
