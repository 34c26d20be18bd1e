"""Carrying out a plan from the command line: journal, nodes, progress on stderr, and the table of what became of it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import click

from llmgw.base import ExitCode, LlmgwError, count, duration, natural, replica_parts, visible
from llmgw.cli.interrupts import Interrupts
from llmgw.cli.planning import World
from llmgw.cli.publishing import fleet
from llmgw.cli.wiring import SiteSecrets, StoreJournal, StoreRegistry
from llmgw.cli.workspace import Workspace, operator, say
from llmgw.plan import Action, Op, Phase, Plan, Progress, Rules
from llmgw.plan.progress import ActionState
from llmgw.remote.apply import apply
from llmgw.remote.asking import Desk
from llmgw.remote.nodes import PlaybookNodes
from llmgw.remote.observe import observe
from llmgw.remote.playbook import Session
from llmgw.remote.publish import Publisher, deliver
from llmgw.site import select
from llmgw.store import Lock
from llmgw.store.history import record
from llmgw.store.journal import finish
from llmgw.store.nodes import save_facts

STILL_S = 30.0
_WORDS = {"done": "ok", "left": "starting", "failed": "FAILED", "unreachable": "UNREACHABLE", "skipped": "-"}
_DID: dict[Op, str] = {
    Op.START: "started on {new}, answers on :{port}, published",
    Op.STOP: "{drained}, stopped, gone from {old}",
    Op.REPLACE: "{drained}, stopped, started on {new}, answers on :{port}, published",
    Op.MOVE: "started on {new}, answers on :{port}, published; {drained} and gone from {old}",
    Op.PUBLISH: "published",
    Op.ADOPT: "answers on :{port}, published",
    Op.FORGET: "no longer published",
    Op.DRAIN: "{drained}",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the operator wants a plan carried out."""

    parallel: int = 10
    stop_on_error: bool = False
    patient: bool = True


@dataclass(slots=True)
class Reporter:
    """Says what changes: a line when an action ends, one now and then for what takes long."""

    actions: Mapping[str, Action]
    names: int
    said: set[str] = field(default_factory=set)
    heard: float = field(default_factory=time.monotonic)
    live: bool = False

    def show(self, progress: Progress) -> None:
        for action_id, state in progress.states.items():
            if state.status not in ("waiting", "running") and action_id not in self.said:
                self.said.add(action_id)
                self._clear()
                for line in result_lines(self.actions[action_id], state, names=self.names):
                    say(line)
                self.heard = time.monotonic()
        self._still(progress)

    def _still(self, progress: Progress) -> None:
        """What is under way: on a terminal in place, elsewhere a line each half minute."""
        running = [
            f"{action_id} {self.actions[action_id].replica} {state.phase}"
            for action_id, state in progress.states.items()
            if state.status == "running"
        ]
        if not running:
            return
        text = "  ".join(running)[:110]
        if sys.stderr.isatty():
            self._clear()
            self.live = True
            click.echo(click.style(text, dim=True), err=True, nl=False)
        elif time.monotonic() - self.heard > STILL_S:
            self.heard = time.monotonic()
            say(f"still: {text}")

    def _clear(self) -> None:
        if self.live:
            click.echo("\r" + " " * 112 + "\r", err=True, nl=False)
            self.live = False


def result_lines(action: Action, state: ActionState, *, names: int) -> list[str]:
    """What became of an action: one line, and after a failure the reason and the rank's last lines."""
    took = duration(state.ended - state.began) if state.status != "skipped" else ""
    word = _WORDS[state.status]
    text = _did(action, state) if state.status == "done" else state.why
    lines = [f"{action.id:<4} {action.replica:<{names}}  {visible(text)}  {word} {took}".rstrip()]
    lines += [f"       {line}" for line in state.log[-12:]]
    lines += [f"       {visible(note)}" for note in state.notes if state.status != "done" and note]
    return lines


def _did(action: Action, state: ActionState) -> str:
    new = natural(seat.n for seat in action.starts.nodes) if action.starts else []
    old = natural(seat.n for seat in action.ends.nodes) if action.ends else []
    drained = next((note for note in state.notes if "drained" in note or "in flight" in note), "drained")
    return _DID.get(action.op, "done").format(
        new=" ".join(new), old=" ".join(old), port=action.starts.port if action.starts else "", drained=drained
    )


def carry_out(
    workspace: Workspace,
    world: World,
    plan: Plan,
    wishes: Wishes,
    *,
    lock: Lock,
    phases: Mapping[str, Phase | None] | None = None,
) -> int:
    """Carry the plan out; the exit code. The caller holds the lock and has consumed the plan."""
    site, actions = world.site, {action.id: action for action in plan.body.actions}
    rules = Rules(
        parallel=wishes.parallel,
        stop_on_error=wishes.stop_on_error,
        router_s=site.settings.timeouts.router_s,
        silence_s=site.settings.unreachable_after_s,
        patient=wishes.patient,
    )
    journal = StoreJournal(workspace.store, plan.id, lock.lost)
    reporter = Reporter(actions, max((len(action.replica) for action in actions.values()), default=0))
    starting = {replica_parts(action.replica)[0] for action in actions.values() if action.starts}
    registry = StoreRegistry(workspace.store, site, starting=starting)
    progress: Progress | None = None
    with workspace.session() as session, Interrupts() as interrupts:
        secrets = SiteSecrets(workspace.store, site, workspace.site_folder, _variables(workspace))
        nodes = PlaybookNodes(
            session,
            Desk(site, plan.id, actions, secrets),
            Publisher(session, site, actions, registry),
            stopped=interrupts.leaving,
        )
        try:
            for progress in apply(
                plan.body.actions,
                nodes,
                journal,
                rules,
                phases=phases,
                clock=time.monotonic,
                interrupted=interrupts.asked,
            ):
                reporter.show(progress)
        except (LlmgwError, OSError):
            finish(workspace.store, plan.id, "unfinished")
            raise
        finally:
            nodes.leave()
        if not interrupts.leaving():
            _look_again(workspace, world, session, plan)
    assert progress is not None
    return _ended(workspace, plan, progress, interrupts)


def _variables(workspace: Workspace) -> Mapping[str, Mapping[str, object]]:
    """The inventory's variables, secrets among them, where llmgw.yml has a secret that stands there."""
    if not any(source.inventory for source in workspace.settings.secrets.values()):
        return {}
    found: Mapping[str, Mapping[str, object]] = workspace.listing["_meta"]["hostvars"]
    return found


def _look_again(workspace: Workspace, world: World, session: Session, plan: Plan) -> None:
    """Remember how the touched nodes are now, and tell dashboards, so that neither waits for the next look."""
    touched = {node for action in plan.body.actions for node in action.nodes}
    seen = observe(session, world.site, select(world.site.nodes, touched))
    save_facts(workspace.store, seen.answered, (*seen.unreachable, *seen.failed), now=datetime.now(UTC))
    deliver(session, world.site, fleet(workspace))


def _ended(workspace: Workspace, plan: Plan, progress: Progress, interrupts: Interrupts) -> int:
    """Remember and say how it ended; the exit code."""
    tally = dict.fromkeys(("done", "left", "failed", "unreachable", "skipped", "waiting", "running"), 0)
    for state in progress.states.values():
        tally[state.status] += 1
    whole = tally["done"] + tally["left"] == len(progress.states)
    finish(workspace.store, plan.id, "done" if whole else "unfinished")
    words = [f"{number} {status}" for status, number in tally.items() if number]
    message = ", ".join(words) if words else "nothing to do"
    record(workspace.store, "apply", f"plan {plan.id}", message, by=operator())
    say(f"{message}." + ("" if whole else " Look at it, then:  llmgw apply --resume  or  llmgw plan"))
    if interrupts.terminated:
        return ExitCode.TERMINATED
    if interrupts.count:
        return ExitCode.INTERRUPTED
    return _code(tally, plan)


def _code(tally: Mapping[str, int], plan: Plan) -> int:
    if tally["failed"]:
        return ExitCode.STEPS_FAILED
    if tally["unreachable"]:
        return ExitCode.UNREACHABLE
    return ExitCode.UNPLACED if plan.body.unplaced else ExitCode.DONE


def outages(actions: Sequence[Action]) -> str:
    """The replicas whose change takes their model below its minimum; empty where there are none."""
    names = [action.replica for action in actions if action.outage]
    return f"{count(len(names), 'replica')}: {', '.join(names[:8])}" if names else ""
