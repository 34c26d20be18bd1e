"""Times as operators type them: so long ago, so long from now, or a date."""

from datetime import UTC, datetime, timedelta

from llmgw.base import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def ago(text: str, *, now: datetime) -> datetime:
    """`30m`, `2h`, `7d` before now, or an ISO 8601 time, UTC where it names no zone. UsageError for anything else."""
    span = _span(text)
    return _date(text) if span is None else now - span


def ahead(text: str, *, now: datetime) -> datetime:
    """`30m`, `2h`, `7d` from now, or an ISO 8601 time. UsageError for anything else, and where that time is past."""
    span = _span(text)
    found = _date(text) if span is None else now + span
    if found <= now:
        raise UsageError(f"{text} is past", hint="like 12h, 90d or a date to come")
    return found


def _span(text: str) -> timedelta | None:
    """The time that so much and a unit is; a thousand years and more are none."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > 5:
        return None
    return timedelta(seconds=int(number) * _UNITS[unit])


def _date(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time", hint="like 30m, 2h, 7d or 2026-12-01T08:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
