"""What reconcile may do of a plan: repair what is broken and start what is missing, and leave what is well alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from llmgw.base import duration
from llmgw.plan.document import Action, Body, Op
from llmgw.plan.judge import BROKEN, Condition, Health

_WELL = frozenset({Health.READY, Health.STARTING})
CopyKey = tuple[str, str, str]
"""Replica, plan and action: what tells one start of a replica from another."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a replica has failed in a row, when last, and when it may be started again."""

    count: int
    last: datetime
    next: datetime


def after_failure(before: Retry | None, *, base_s: int, max_s: int, now: datetime) -> Retry:
    """One failure more: the wait doubles from `base_s` up to `max_s`."""
    number = before.count + 1 if before else 1
    wait = min(max_s, base_s * 2 ** min(number - 1, 30))
    return Retry(number, now, now + timedelta(seconds=wait))


def is_quiet(retry: Retry, condition: Condition, *, reset_s: int, now: datetime) -> bool:
    """Whether a replica has been ready for so long that its failures are forgotten."""
    return condition.health is Health.READY and (now - max(condition.since, retry.last)).total_seconds() >= reset_s


@dataclass(frozen=True, slots=True)
class Repair:
    """The actions to carry out now, and what is left for later, in words by replica."""

    actions: tuple[Action, ...]
    waiting: Mapping[str, str]


def repairs(
    body: Body, conditions: Mapping[CopyKey, Condition], retries: Mapping[str, Retry], *, now: datetime
) -> Repair:
    """Of a plan what may be done without anybody asking.

    Kept: starts of what is missing, once their back-off is over; replacements of copies that failed, stalled or are
    lost; ends of duplicates; publishing what is ready; forgetting what is lost. Dropped: whatever would touch a copy
    that is well, and what comes after something dropped.
    """
    waiting: dict[str, str] = {}
    kept: dict[str, Action] = {}
    for action in body.actions:
        why = _later(action, conditions, retries, now)
        if not why and any(before not in kept for before in action.after):
            why = "comes after something that is not done now"
        if why:
            waiting[action.replica] = why
        else:
            kept[action.id] = _hurried(action)
    return Repair(tuple(kept.values()), waiting)


def _later(
    action: Action, conditions: Mapping[CopyKey, Condition], retries: Mapping[str, Retry], now: datetime
) -> str:
    """Why an action is not done now; empty where it is."""
    if action.op is Op.FORGET:
        return ""
    if action.op in (Op.PUBLISH, Op.ADOPT):
        return "" if _is_ready(action, conditions) else "not ready yet"
    if action.ends is not None:
        condition = conditions.get((action.replica, action.ends.plan, action.ends.action))
        well = condition is not None and condition.health not in BROKEN | {Health.LOST}
        if well and not _is_duplicate(action, conditions):
            return "it is well; llmgw plan shows what else would change"
    retry = retries.get(action.replica)
    if action.starts is not None and retry is not None and now < retry.next:
        left = (retry.next - now).total_seconds()
        return f"failed {retry.count} times, is started again in {duration(left)}"
    return ""


def _is_ready(action: Action, conditions: Mapping[CopyKey, Condition]) -> bool:
    return any(
        key[0] == action.replica and condition.health is Health.READY for key, condition in conditions.items()
    )


def _is_duplicate(action: Action, conditions: Mapping[CopyKey, Condition]) -> bool:
    """Whether the copy that an action ends, and starts nothing for, is one of two: another of it is well."""
    return action.op is Op.STOP and any(
        key[0] == action.replica
        and key[1:] != (action.ends.plan, action.ends.action)
        and condition.health in _WELL
        for key, condition in conditions.items()
        if action.ends is not None
    )


def _hurried(action: Action) -> Action:
    """An action whose old copy is broken waits for no requests: they have nowhere to go on."""
    return action.model_copy(update={"drain_s": 0, "outage": False}) if action.op is Op.REPLACE else action
