"""How a running replica really is: by its processes, by one token, and by whether its token counter moves.

An engine's own health page is not asked: engines of several nodes go on saying that they are well when a rank has
died. One that is busy is never called stalled while its counter moves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from llmgw.base import duration
from llmgw.observed import Incarnation

SUSPECT_LOOKS = 2
"""How many looks in a row, without a token and without any progress, make a stall."""


class Health(StrEnum):
    """starting: not ready yet, within its time. stalled: it runs, but gives no token and makes no progress.
    unreachable, lost: a node of it does not answer, for how long. failed: a rank has ended, or it was never ready."""

    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    FAILED = "failed"


SERVING = frozenset({Health.READY})
BROKEN = frozenset({Health.STALLED, Health.FAILED})


@dataclass(frozen=True, slots=True)
class Reading:
    """What a replica's head said when it was asked. `tokens` is its counter of tokens made, None where it has none."""

    ready: bool
    why: str = ""
    in_flight: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """How a copy of a replica is, and since when. `suspect` counts looks in a row without a token."""

    health: Health
    since: datetime
    why: str = ""
    tokens: int | None = None
    suspect: int = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what may last, seconds."""

    start_s: float
    unreachable_after_s: float
    lost_after_s: float


def judge(
    copy: Incarnation,
    reading: Reading | None,
    before: Condition | None,
    *,
    silent_since: Mapping[str, datetime | None],
    patience: Patience,
    now: datetime,
) -> Condition:
    """The copy's condition at `now`. `reading` is None where its head was not asked or did not answer.

    `silent_since` has the nodes that do not answer and when they last did.
    """
    health, why, suspect = _health(copy, reading, before, silent_since, patience, now)
    since = before.since if before and before.health is health else now
    tokens = reading.tokens if reading and reading.tokens is not None else before.tokens if before else None
    return Condition(health, since, why, tokens, suspect)


_Verdict = tuple[Health, str, int]


def _health(
    copy: Incarnation,
    reading: Reading | None,
    before: Condition | None,
    silent_since: Mapping[str, datetime | None],
    patience: Patience,
    now: datetime,
) -> _Verdict:
    dead = _dead_rank(copy)
    if dead:
        return Health.FAILED, dead, 0
    away = _silence(copy, before, silent_since, patience, now)
    if away:
        return away
    if reading is not None and reading.ready:
        return Health.READY, "", 0
    why = reading.why if reading else "its head was not heard"
    if before is None or before.health in (Health.STARTING, Health.UNREACHABLE, Health.LOST):
        return _starting(copy, why, patience, now)
    if before.health is Health.FAILED:
        return Health.FAILED, before.why, 0
    return _doubtful(reading, before, why)


def _dead_rank(copy: Incarnation) -> str:
    for rank, node in enumerate(copy.nodes):
        if node in copy.silent:
            continue
        run = copy.ranks[rank][1] if rank in copy.ranks else None
        if run is None:
            return f"rank {rank} is gone from {node}"
        if run.state == "exited":
            return f"rank {rank} on {node} has ended" + (f" ({run.exit_status})" if run.exit_status else "")
    return ""


def _silence(
    copy: Incarnation,
    before: Condition | None,
    silent_since: Mapping[str, datetime | None],
    patience: Patience,
    now: datetime,
) -> _Verdict | None:
    """Of a copy with silent nodes: unreachable or lost after their times, until then what it was."""
    waits = {
        node: (now - since).total_seconds() if (since := silent_since.get(node)) else float("inf")
        for node in copy.silent
    }
    if not waits:
        return None
    node, longest = max(waits.items(), key=lambda item: (item[1], item[0]))
    why = (
        f"{node} has not answered for {duration(longest)}" if longest != float("inf") else f"{node} never answered"
    )
    if longest > patience.lost_after_s:
        return Health.LOST, why, 0
    if longest > patience.unreachable_after_s or before is None:
        return Health.UNREACHABLE, why, 0
    return before.health, before.why or why, before.suspect


def _starting(copy: Incarnation, why: str, patience: Patience, now: datetime) -> _Verdict:
    began = copy.started_at
    if began and (now - began).total_seconds() > patience.start_s:
        return Health.FAILED, f"not ready in {duration(patience.start_s)}: {why}", 0
    return Health.STARTING, why, 0


def _doubtful(reading: Reading | None, before: Condition, why: str) -> _Verdict:
    """One that was ready and gave no token now: suspect at first, stalled when it makes no progress either."""
    moved = reading is not None and None not in (reading.tokens, before.tokens) and reading.tokens != before.tokens
    if moved:
        return Health.READY, "busy: no token for the probe, but its counter moves", 0
    suspect = before.suspect + 1
    if before.health is Health.STALLED or suspect >= SUSPECT_LOOKS:
        return Health.STALLED, why, suspect
    return Health.READY, f"suspect: {why}", suspect
