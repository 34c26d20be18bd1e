"""How each copy of a replica was at the last look, and the failures that back-off counts."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from llmgw.base import moment
from llmgw.plan.judge import Condition, Health
from llmgw.store.database import State

if TYPE_CHECKING:
    from llmgw.plan.repair import CopyKey, Retry


def conditions(state: State) -> "dict[CopyKey, Condition]":
    """The last condition of every copy."""
    rows = state.rows("SELECT replica, plan, action, health, since, why, tokens, suspect FROM conditions")
    return {
        (replica, plan, action): Condition(Health(health), datetime.fromisoformat(since), why, tokens, suspect)
        for replica, plan, action, health, since, why, tokens, suspect in rows
    }


def save_conditions(state: State, found: "Mapping[CopyKey, Condition]") -> None:
    """Replace what is remembered by what was found; copies that are gone are forgotten."""
    with state.change() as connection:
        connection.execute("DELETE FROM conditions")
        connection.executemany(
            "INSERT INTO conditions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (*key, one.health.value, moment(one.since), one.why, one.tokens, one.suspect)
                for key, one in found.items()
            ],
        )


def retries(state: State) -> "dict[str, Retry]":
    """The failures that are counted now, by replica."""
    from llmgw.plan.repair import Retry

    rows = state.rows("SELECT replica, count, last, next FROM failures ORDER BY replica")
    return {
        replica: Retry(count, datetime.fromisoformat(last), datetime.fromisoformat(after))
        for replica, count, last, after in rows
    }


def save_retries(state: State, found: "Mapping[str, Retry]") -> None:
    """Replace what is counted."""
    with state.change() as connection:
        connection.execute("DELETE FROM failures")
        connection.executemany(
            "INSERT INTO failures VALUES (?, ?, ?, ?)",
            [(replica, one.count, moment(one.last), moment(one.next)) for replica, one in found.items()],
        )
