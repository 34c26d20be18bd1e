"""Carrying out a plan from the command line: journal, nodes, what is said meanwhile, and the exit code."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from llmgw.base import ExitCode, LlmgwError, count, replica_parts
from llmgw.cli.interrupts import Interrupts
from llmgw.cli.planning import World
from llmgw.cli.publishing import fleet
from llmgw.cli.voices import Table, Voice, short, tell
from llmgw.cli.wiring import SiteSecrets, StoreJournal, StoreRegistry
from llmgw.cli.workspace import Workspace, operator
from llmgw.plan import Action, Phase, Plan, Progress, Rules, begin
from llmgw.plan.text import Serving
from llmgw.remote.apply import apply
from llmgw.remote.asking import Desk
from llmgw.remote.nodes import PlaybookNodes
from llmgw.remote.observe import observe
from llmgw.remote.playbook import Session
from llmgw.remote.publish import Publisher, deliver, endpoint_texts, engine_keys_of
from llmgw.site import select
from llmgw.store import Lock, serial
from llmgw.store.history import record
from llmgw.store.journal import finish
from llmgw.store.nodes import save_facts
from llmgw.store.published import endpoints


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a plan is to be carried out. `kind` is what the history calls it."""

    kind: str = "apply"
    parallel: int = 10
    stop_on_error: bool = False
    patient: bool = True


def carry_out(
    workspace: Workspace,
    world: World,
    plan: Plan,
    wishes: Wishes,
    *,
    lock: Lock,
    phases: Mapping[str, Phase | None] | None = None,
    voice: Voice | None = None,
) -> int:
    """Carry the plan out; the exit code. The caller holds the lock and has consumed the plan."""
    voice = voice or Table()
    site, actions = world.site, {action.id: action for action in plan.body.actions}
    rules = Rules(
        parallel=wishes.parallel,
        stop_on_error=wishes.stop_on_error,
        router_s=site.settings.timeouts.router_s,
        silence_s=site.settings.unreachable_after_s,
        patient=wishes.patient,
    )
    journal = StoreJournal(workspace.store, plan.id, lock.lost)
    starting = {replica_parts(action.replica)[0] for action in actions.values() if action.starts}
    registry = StoreRegistry(workspace.store, site, starting=starting)
    progress = begin(plan.body.actions, rules, phases=phases)
    voice.begin(progress)
    said = {action for action, state in progress.states.items() if state.status == "done"}
    with workspace.session() as session, Interrupts() as interrupts:
        nodes = PlaybookNodes(
            session,
            Desk(site, plan.id, actions, SiteSecrets.of(workspace, site)),
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
                tell(voice, progress, said)
        except (LlmgwError, OSError):
            with suppress(LlmgwError):  # the store may be what is broken
                finish(workspace.store, plan.id, "unfinished")
            raise
        finally:
            nodes.leave()
        if not interrupts.leaving():
            _look_again(workspace, world, session, progress, registry)
    _remember(workspace, plan, progress, wishes.kind)
    voice.end(progress, _serving(workspace), serial(workspace.store))
    if interrupts.terminated:
        return ExitCode.TERMINATED
    return ExitCode.INTERRUPTED if interrupts.count else _code(progress, plan)


def _look_again(
    workspace: Workspace, world: World, session: Session, progress: Progress, registry: StoreRegistry
) -> None:
    """Remember how the touched nodes are now, and tell routers and dashboards, so that none waits for the next look."""
    touched = {node for action in progress.actions.values() for node in action.nodes}
    seen = observe(session, world.site, select(world.site.nodes, touched))
    save_facts(workspace.store, seen.answered, (*seen.unreachable, *seen.failed), now=datetime.now(UTC))
    texts = fleet(workspace)
    registry.starting = _models(progress, "left")
    registry.failed = _models(progress, "failed", "unreachable")
    if registry.outdated():
        file = registry.publish(lambda before: before)
        texts = [*endpoint_texts(file, engine_keys_of(registry, file)), *texts]
    deliver(session, world.site, texts)


def _models(progress: Progress, *statuses: str) -> set[str]:
    """The models of which an action stands so."""
    return {
        replica_parts(progress.actions[one].replica)[0]
        for one, state in progress.states.items()
        if state.status in statuses
    }


def _remember(workspace: Workspace, plan: Plan, progress: Progress, kind: str) -> None:
    """How the apply ended, in the journal and, an event for each action, in the history."""
    states = progress.states
    whole = all(state.status in ("done", "left") for state in states.values())
    finish(workspace.store, plan.id, "done" if whole else "unfinished")
    for action_id, state in states.items():
        if state.status not in ("waiting", "running", "skipped") and state.ended:
            action = progress.actions[action_id]
            message = f"{short(action, state)} [{plan.id} {action_id}]"
            record(workspace.store, kind, action.replica, message, by=operator())


def _serving(workspace: Workspace) -> dict[str, Serving]:
    """How each model of the catalogue serves, by what was last published."""
    file = endpoints(workspace.store)
    ready = [one.model for one in (file.endpoints if file else ()) if one.state == "ready"]
    return {
        name: Serving(ready.count(name), sum(model.counts().values()))
        for name, model in workspace.catalogue.models.items()
    }


def _code(progress: Progress, plan: Plan) -> int:
    statuses = {state.status for state in progress.states.values()}
    if "failed" in statuses:
        return ExitCode.STEPS_FAILED
    if "unreachable" in statuses:
        return ExitCode.UNREACHABLE
    return ExitCode.UNPLACED if plan.body.unplaced else ExitCode.DONE


def outages(actions: Sequence[Action]) -> str:
    """The replicas whose change takes their model below its minimum; empty where there are none."""
    names = [action.replica for action in actions if action.outage]
    return f"{count(len(names), 'replica')}: {', '.join(names[:8])}" if names else ""
