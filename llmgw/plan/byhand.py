"""One action that an operator asked for by name, past the catalogue."""

from llmgw.base import UsageError, near, replica_parts
from llmgw.engines import ENGINES
from llmgw.plan.copies import Copy, CopyState, seats_of
from llmgw.plan.document import Action, Incumbent, Op
from llmgw.plan.think import Thought


def copy_of(thought: Thought, replica: str) -> Copy:
    """The copy of a replica that runs, or of which something is left over; the one that is published where there are
    two. UsageError where there is none."""
    alive = [copy for copy in thought.found if copy.state is not CopyState.ENDED]
    alive += [copy for copy in thought.found if copy not in alive and _left_over(thought, copy)]
    found = [copy for copy in alive if copy.name == replica]
    if not found:
        close = near(replica, sorted({copy.name for copy in alive}))
        raise UsageError(f"no replica {replica} runs", hint=f"did you mean {close[0]}?" if close else "")
    return found[0]


def _left_over(thought: Thought, copy: Copy) -> bool:
    """Whether processes of a copy outlived it: an orphan of its replica on one of its nodes."""
    facts = thought.asked.facts.nodes
    return any(
        orphan.replica == copy.name for node in copy.nodes if node in facts for orphan in facts[node].orphans
    )


def by_hand(thought: Thought, replica: str, op: Op) -> Action:
    """An action that stops the replica, or only drains it, as the operator asked."""
    copy, settings = copy_of(thought, replica), thought.asked.site.settings
    model, written, _ = replica_parts(replica)
    known = thought.asked.site.catalogue.models.get(model)
    profile = known.profiles.get(written or known.default) if known else None
    seats = seats_of(copy) or seats_of(copy, copy.last_runs())
    return Action(
        id="a1",
        op=op,
        replica=replica,
        nodes=tuple(seat.n for seat in seats),
        why="asked for by the operator",
        ends=Incumbent(
            plan=copy.started.plan,
            action=copy.started.action,
            spec=copy.started.spec,
            nodes=seats,
            load=ENGINES[profile.engine].LOAD if profile else None,
        ),
        drain_s=profile.drain_s if profile and profile.drain_s is not None else settings.timeouts.drain_s,
        stop_s=settings.timeouts.stop_s,
    )
