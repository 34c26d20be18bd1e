"""llmgw reconcile: one round of repair, for cron or a systemd timer, or round after round with --follow."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from llmgw.base import ExitCode, LlmgwError, LockedError, visible
from llmgw.cli.locking import change, lock_option
from llmgw.cli.workspace import Workspace, operator, pass_workspace, say

if TYPE_CHECKING:
    from llmgw.cli.planning import World
    from llmgw.observed import Incarnation
    from llmgw.plan.judge import Condition, Reading
    from llmgw.plan.repair import CopyKey, Retry
    from llmgw.remote.playbook import Session
    from llmgw.store import Lock


@click.command()
@click.option("--follow", is_flag=True, help="Go on, round after round, until SIGTERM or Ctrl-C.")
@click.option("--interval", default=30.0, show_default=True, help="Seconds between the rounds of --follow.")
@click.option("--if-free", is_flag=True, help="Exit 0 where another change holds the lock.")
@lock_option
@pass_workspace
def reconcile(workspace: Workspace, follow: bool, interval: float, if_free: bool, lock_timeout: float) -> int:
    """Repair: restart what died, withdraw what does not answer, start what is wanted and missing.

    Looks at every node, asks every replica for one token, and judges each starting, ready, stalled, unreachable, lost
    or failed. Endpoints that do not serve are withdrawn at once; failed and stalled replicas are started again whole,
    each failure waiting longer; replicas of lost nodes are placed elsewhere. A healthy replica is never touched: what
    else the catalogue would change waits for llmgw apply. Prints a line a change, and nothing when all is well.
    """
    from llmgw.cli.interrupts import Interrupts

    if not follow:
        return _locked_round(workspace, skip=if_free, wait_s=lock_timeout)
    from llmgw.cli.main import collect_as_usual

    collect_as_usual()
    with Interrupts() as interrupts:
        while not interrupts.asked():
            fresh = Workspace(workspace.folder, workspace.state_file, workspace.verbose, workspace.debug)
            code = _follow_round(fresh, wait_s=lock_timeout, ending=interrupts.asked)
            if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED) and not interrupts.asked():
                return code
            _sleep(interval, interrupts.asked)
    return ExitCode.TERMINATED if interrupts.terminated else ExitCode.INTERRUPTED


def _sleep(seconds: float, ended: Callable[[], int]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ended():
        time.sleep(0.2)


def _follow_round(workspace: Workspace, *, wait_s: float, ending: Callable[[], int]) -> int:
    """A round that ends no later ones: what an operator can mend is said, and mended by the time of the next."""
    try:
        return _locked_round(workspace, skip=True, wait_s=wait_s, ending=ending)
    except LlmgwError as error:
        say(f"llmgw: {visible(error.message)}")
        return error.exit_code
    finally:
        workspace.close()


def _locked_round(
    workspace: Workspace, *, skip: bool, wait_s: float, ending: Callable[[], int] = lambda: 0
) -> int:
    """One round under the lock; nothing is begun any more once `ending` counts a wish to end."""
    try:
        with change(workspace, "llmgw reconcile", wait_s=wait_s) as lock:
            found, tries = _round(workspace)
            return ExitCode.INTERRUPTED if ending() else _repair(workspace, found, tries, lock)
    except LockedError:
        if skip:
            return ExitCode.DONE
        raise


@dataclass(frozen=True, slots=True)
class Findings:
    """What one look found: the copies, their conditions now and before."""

    world: "World"
    copies: "Mapping[CopyKey, Incarnation]"
    before: "Mapping[CopyKey, Condition]"
    now: "Mapping[CopyKey, Condition]"


def _round(workspace: Workspace) -> "tuple[Findings, Mapping[str, Retry]]":
    with workspace.session() as session:
        found = _look(workspace, session)
        _tell_changes(workspace, found)
        tries = _count_failures(workspace, found)
        _withdraw(workspace, session, found)
    return found, tries


def _look(workspace: Workspace, session: "Session") -> Findings:
    from llmgw.cli.planning import look
    from llmgw.observed import incarnations
    from llmgw.remote.observe import observe
    from llmgw.remote.readings import key_of, take_readings
    from llmgw.store.health import conditions, save_conditions
    from llmgw.store.nodes import save_facts
    from llmgw.store.published import engine_key

    site = workspace.site
    seen = observe(session, site, site.nodes)
    save_facts(workspace.store, seen.answered, (*seen.unreachable, *seen.failed), now=datetime.now(UTC))
    world = look(workspace, refresh=False)
    copies = {key_of(copy): copy for copy in incarnations(world.facts)}
    readings = take_readings(
        session, site, copies.values(), engine_key=lambda replica: engine_key(workspace.store, replica)
    )
    before = conditions(workspace.store)
    now = {key: _judged(world, copy, readings.get(key), before.get(key)) for key, copy in copies.items()}
    save_conditions(workspace.store, now)
    return Findings(world, copies, before, now)


def _judged(
    world: "World", copy: "Incarnation", reading: "Reading | None", before: "Condition | None"
) -> "Condition":
    from llmgw.base import replica_parts
    from llmgw.plan.judge import Patience, judge

    settings = world.site.settings
    model, profile_name, _ = replica_parts(copy.replica)
    known = world.site.catalogue.models.get(model)
    profile = known.profiles.get(profile_name or known.default) if known else None
    patience = Patience(
        start_s=(profile.start_s if profile and profile.start_s else settings.timeouts.start_s),
        unreachable_after_s=settings.unreachable_after_s,
        lost_after_s=settings.lost_after_s,
    )
    return judge(copy, reading, before, silent_since=world.facts.silent, patience=patience, now=datetime.now(UTC))


def _tell_changes(workspace: Workspace, found: Findings) -> None:
    for key, condition in found.now.items():
        before = found.before.get(key)
        if before is None or before.health is not condition.health:
            was = f"{before.health} -> " if before else ""
            _tell(workspace, key[0], f"{was}{condition.health}" + (f": {condition.why}" if condition.why else ""))
    left = {key[0] for key in found.now}
    for key in sorted(found.before.keys() - found.now.keys()):
        if key[0] not in left:
            _tell(workspace, key[0], f"gone: the copy of plan {key[1]} {key[2]}")


def _tell(workspace: Workspace, replica: str, message: str) -> None:
    """A change: one line on stdout, one event in the history."""
    from llmgw.store.history import record

    click.echo(f"{replica}: {visible(message)}")
    record(workspace.store, "health", replica, message, by=operator())


def _count_failures(workspace: Workspace, found: Findings) -> "Mapping[str, Retry]":
    from llmgw.plan.judge import BROKEN
    from llmgw.plan.repair import after_failure, is_quiet
    from llmgw.store.health import retries, save_retries

    backoff, now = found.world.site.settings.backoff, datetime.now(UTC)
    tries = dict(retries(workspace.store))
    for key, condition in found.now.items():
        before = found.before.get(key)
        newly = condition.health in BROKEN and (before is None or before.health not in BROKEN)
        if newly:
            tries[key[0]] = after_failure(tries.get(key[0]), base_s=backoff.base_s, max_s=backoff.max_s, now=now)
        elif key[0] in tries and is_quiet(tries[key[0]], condition, reset_s=backoff.reset_s, now=now):
            del tries[key[0]]
    save_retries(workspace.store, tries)
    return tries


def _withdraw(workspace: Workspace, session: "Session", found: Findings) -> None:
    """Take the endpoints that do not serve out of the file, and give it to the routers."""
    from llmgw.cli.wiring import StoreRegistry
    from llmgw.remote.publish import deliver, endpoint_texts, engine_keys_of
    from llmgw.serving.publishing import url_of
    from llmgw.serving.withdrawing import to_withdraw
    from llmgw.store.published import endpoints

    file = endpoints(workspace.store)
    if file is None:
        return
    site = found.world.site
    known = {node.name for node in site.nodes}
    by_url = {
        url_of(site, copy.nodes[0], copy.port): found.now[key]
        for key, copy in found.copies.items()
        if copy.port is not None and copy.nodes[0] in known
    }
    gone = to_withdraw(file.endpoints, by_url, silent=found.world.facts.silent)
    if not gone:
        return
    urls = {one.endpoint.url for one in gone}
    registry = StoreRegistry(workspace.store, site, failed={one.endpoint.model for one in gone})
    after = registry.publish(lambda before: [endpoint for endpoint in before if endpoint.url not in urls])
    delivery = deliver(session, site, endpoint_texts(after, engine_keys_of(registry, after)))
    for one in gone:
        _tell(workspace, one.endpoint.id, f"endpoint withdrawn: {one.why}")
    _say_undelivered(delivery.failed)


def _say_undelivered(failed: Mapping[str, str]) -> None:
    for host, why in failed.items():
        say(f"router host {host} did not take what was published: {why.splitlines()[-1] if why else 'no answer'}")


def _repair(workspace: Workspace, found: Findings, tries: "Mapping[str, Retry]", lock: "Lock") -> int:
    from llmgw.cli.applying import Wishes, carry_out
    from llmgw.cli.planning import look
    from llmgw.cli.voices import Lines
    from llmgw.plan import Options, Plan
    from llmgw.plan.judge import BROKEN
    from llmgw.plan.repair import repairs
    from llmgw.site import wanted_replicas
    from llmgw.store.journal import consume

    world = look(workspace, refresh=False)
    broken = {key[0] for key, condition in found.now.items() if condition.health in BROKEN}
    wanted = {replica.name for replica in wanted_replicas(world.site.catalogue)}
    whole = world.plan(Options(replace=tuple(sorted(broken & wanted))))
    chosen = repairs(whole.body, found.now, tries, now=datetime.now(UTC))
    if workspace.verbose:
        for replica, why in chosen.waiting.items():
            say(f"{replica}: {why}")
    if not chosen.actions:
        return ExitCode.DONE
    plan = Plan.of(
        whole.body.model_copy(update={"actions": chosen.actions}),
        created=whole.created,
        by=f"reconcile {whole.by}",
    )
    consume(workspace.store, plan, by="reconcile", supersede=False)
    wishes = Wishes(kind="repair", patient=False)
    code = carry_out(workspace, world, plan, wishes, lock=lock, voice=Lines())
    return ExitCode.DONE if code == ExitCode.UNPLACED else code
