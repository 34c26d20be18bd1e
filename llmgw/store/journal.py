"""Plans that were applied, and the journal of their steps: a row before a step, its outcome after it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from llmgw.base import LlmgwError, RefusedError, moment
from llmgw.plan import PHASES, Plan, Spec
from llmgw.store.database import State, count_change

PlanState = Literal["running", "done", "unfinished", "superseded"]


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """A plan that an apply has begun; it can be begun once, and resumed until another is."""

    plan: Plan
    state: PlanState
    by: str
    consumed_at: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One step of an action. `outcome` is None while nobody knows it."""

    plan: str
    action: str
    phase: str
    begun_at: str
    ended_at: str | None
    outcome: str | None
    message: str | None


def consume(state: State, plan: Plan, *, by: str, supersede: bool = True) -> None:
    """Record that the plan is being applied, and count the change. RefusedError where it has been before.

    An unfinished apply of another plan can be resumed no longer, where the new one is to `supersede` it.
    """
    with state.change() as database:
        before = state.one("SELECT consumed_at, by FROM plans WHERE id = ?", plan.id)
        if before:
            raise RefusedError(
                f"plan {plan.id} was applied before, at {before[0]} by {before[1]}",
                hint="llmgw apply --resume goes on with an unfinished one; llmgw plan makes a new one",
            )
        if supersede:
            database.conn.execute("UPDATE plans SET state = 'superseded' WHERE state IN ('running', 'unfinished')")
        database.conn.execute(
            "INSERT INTO plans VALUES (?, ?, ?, 'running', ?)",
            (plan.id, moment(datetime.now(UTC)), by, plan.text()),
        )
        database.conn.executemany(
            "INSERT OR IGNORE INTO specs VALUES (?, ?)",
            [(mark, spec.model_dump_json()) for mark, spec in plan.body.specs.items()],
        )
        count_change(state)


def consumed(state: State) -> set[str]:
    """The ids of all plans that were ever applied."""
    return {row[0] for row in state.rows("SELECT id FROM plans")}


def specs(state: State) -> dict[str, Spec]:
    """The specs that applied plans spoke of, by their digest."""
    return {mark: Spec.model_validate_json(text) for mark, text in state.rows("SELECT mark, spec FROM specs")}


def finish(state: State, plan: str, outcome: PlanState) -> None:
    """Record how the apply of a plan ended."""
    with state.change() as database:
        database.conn.execute("UPDATE plans SET state = ? WHERE id = ?", (outcome, plan))


def applied(state: State, plan: str) -> AppliedPlan | None:
    """An applied plan by its id."""
    return next(_plans(state.rows("SELECT plan, state, by, consumed_at FROM plans WHERE id = ?", plan)), None)


def resumable(state: State) -> AppliedPlan:
    """The plan whose apply was not finished. LlmgwError where there is none."""
    rows = state.rows("""SELECT plan, state, by, consumed_at FROM plans WHERE state IN ('running', 'unfinished')
                         ORDER BY consumed_at DESC LIMIT 1""")
    found = next(_plans(rows), None)
    if found is None:
        raise LlmgwError("there is no unfinished apply to resume", hint="llmgw plan shows what is to do")
    return found


def _plans(rows: Iterable[tuple[Any, ...]]) -> Iterator[AppliedPlan]:
    return (AppliedPlan(Plan.read(text, "the store"), state, by, at) for text, state, by, at in rows)


def begin(state: State, plan: str, action: str, phase: str) -> int:
    """Write down that a step is about to be taken; the row's number. Committed when this returns."""
    with state.change() as database:
        cursor = database.conn.execute(
            "INSERT INTO journal (plan, action, phase, begun_at) VALUES (?, ?, ?, ?)",
            (plan, action, phase, moment(datetime.now(UTC))),
        )
    return int(cursor.lastrowid or 0)


def end(state: State, row: int, outcome: str, message: str) -> None:
    """Write down how a step ended."""
    with state.change() as database:
        database.conn.execute(
            "UPDATE journal SET ended_at = ?, outcome = ?, message = ? WHERE id = ?",
            (moment(datetime.now(UTC)), outcome, message, row),
        )


def finished_actions(state: State, plan: Plan) -> set[str]:
    """The actions of a plan whose last phase ended well, in whichever apply of it that was."""
    ended = {
        (row[0], row[1])
        for row in state.rows("SELECT action, phase FROM journal WHERE plan = ? AND outcome = 'ok'", plan.id)
    }
    return {action.id for action in plan.body.actions if (action.id, PHASES[action.op][-1].value) in ended}


def entries(state: State, plan: str) -> list[JournalEntry]:
    """The steps of a plan, in the order in which they were begun."""
    rows = state.rows(
        """SELECT plan, action, phase, begun_at, ended_at, outcome, message FROM journal WHERE plan = ?
           ORDER BY id""",
        plan,
    )
    return [JournalEntry(*row) for row in rows]
