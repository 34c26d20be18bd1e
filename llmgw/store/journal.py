"""Plans that were applied, and the journal of their steps: a row before a step, its outcome after it."""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from llmgw.base import LlmgwError, RefusedError, moment
from llmgw.plan import PHASES, Plan, Spec
from llmgw.store.database import State, count_change

if TYPE_CHECKING:
    from llmgw.plan.progress import Step

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
    with state.change() as connection:
        before = state.one("SELECT consumed_at, by FROM plans WHERE id = ?", plan.id)
        if before:
            raise RefusedError(
                f"plan {plan.id} was applied before, at {before[0]} by {before[1]}",
                hint="llmgw apply --resume goes on with an unfinished one; llmgw plan makes a new one",
            )
        if supersede:
            connection.execute("UPDATE plans SET state = 'superseded' WHERE state IN ('running', 'unfinished')")
        connection.execute(
            "INSERT INTO plans VALUES (?, ?, ?, 'running', ?)",
            (plan.id, moment(datetime.now(UTC)), by, plan.text()),
        )
        connection.executemany(
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
    with state.change() as connection:
        connection.execute("UPDATE plans SET state = ? WHERE id = ?", (outcome, plan))


def applied(state: State, plan: str) -> AppliedPlan | None:
    """An applied plan by its id."""
    return next(_plans(state.rows("SELECT plan, state, by, consumed_at FROM plans WHERE id = ?", plan)), None)


def unfinished(state: State) -> AppliedPlan | None:
    """The last plan whose apply was broken off or had failures; None where none was since."""
    rows = state.rows("""SELECT plan, state, by, consumed_at FROM plans WHERE state IN ('running', 'unfinished')
                         ORDER BY consumed_at DESC LIMIT 1""")
    return next(_plans(rows), None)


def resumable(state: State) -> AppliedPlan:
    """The plan whose apply was not finished. LlmgwError where there is none."""
    found = unfinished(state)
    if found is None:
        raise LlmgwError("there is no unfinished apply to resume", hint="llmgw plan shows what is to do")
    return found


def _plans(rows: Iterable[tuple[Any, ...]]) -> Iterator[AppliedPlan]:
    return (AppliedPlan(Plan.read(text, "the store"), state, by, at) for text, state, by, at in rows)


def write(
    state: State, plan: str, steps: "Iterable[Step]", open_rows: MutableMapping[tuple[str, str], int]
) -> None:
    """Write down steps that are about to be taken and how others ended, all or none; committed when this returns.

    `open_rows` has the row of each action's phase that was begun and has not ended: kept for the caller, changed here.
    """
    now = moment(datetime.now(UTC))
    with state.change() as connection:
        for step in steps:
            key = step.action, step.phase.value
            if step.outcome:
                connection.execute(
                    "UPDATE journal SET ended_at = ?, outcome = ?, message = ? WHERE id = ?",
                    (now, step.outcome, step.message, open_rows.pop(key)),
                )
                continue
            cursor = connection.execute(
                "INSERT INTO journal (plan, action, phase, begun_at) VALUES (?, ?, ?, ?)", (plan, *key, now)
            )
            open_rows[key] = int(cursor.lastrowid or 0)


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
