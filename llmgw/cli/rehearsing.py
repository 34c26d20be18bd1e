"""llmgw apply --check: what the nodes say of a plan's steps, and nothing done."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import click

from llmgw.base import ExitCode, count, natural, visible
from llmgw.cli.planning import World
from llmgw.cli.wiring import SiteSecrets
from llmgw.cli.workspace import Workspace, say
from llmgw.plan import Action, Op, Plan
from llmgw.remote.asking import Desk
from llmgw.remote.rehearsal import Rehearsed, silent_routers
from llmgw.remote.rehearsal import rehearse as ask_all


def rehearse(workspace: Workspace, world: World, plan: Plan) -> int:
    """A line for each action: what it would do, or why a node or router host would not let it. The exit code."""
    if not plan.body.actions:
        say("Nothing to do.")
        return ExitCode.DONE
    actions = {action.id: action for action in plan.body.actions}
    desk = Desk(world.site, plan.id, actions, SiteSecrets.of(workspace, world.site))
    with workspace.session() as session:
        heard = list(ask_all(session, desk, plan.body.actions))
        silent = silent_routers(session, desk)
    by_action: dict[str, list[Rehearsed]] = defaultdict(list)
    for one in heard:
        by_action[one.action].append(one)
    for action in plan.body.actions:
        for text in _lines(action, by_action[action.id]):
            click.echo(text)
    for host, why in sorted(silent.items()):
        click.echo(f"router host {host} does not answer: {visible(why.splitlines()[-1] if why else '')}")
    return _ended(heard, silent)


def _lines(action: Action, heard: Sequence[Rehearsed]) -> list[str]:
    head = f"{action.id:<4} {action.replica}: "
    wrong = [one for one in heard if one.outcome != "ok"]
    if wrong:
        word = {"failed": "REFUSED", "unreachable": "UNREACHABLE"}
        return [f"{head}{one.kind} on {one.node}: {visible(one.why)}  {word[one.outcome]}" for one in wrong]
    said = [f"would {kind} on {' '.join(nodes)}" for kind, nodes in _by_kind(heard).items()]
    return [head + ("; ".join([*said, *_unasked(action)]) or f"would {action.op}")]


def _by_kind(heard: Sequence[Rehearsed]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in ("stop", "start"):
        nodes = natural(one.node for one in heard if one.kind == kind)
        if nodes:
            found[kind] = nodes
    return found


def _unasked(action: Action) -> list[str]:
    """What cannot be asked about before something else is done."""
    if action.op is Op.REPLACE:
        return ["then start in its place"]
    if action.starts and action.after:
        return [
            f"would start on {' '.join(seat.n for seat in action.starts.nodes)} after {', '.join(action.after)}"
        ]
    return []


def _ended(heard: Sequence[Rehearsed], silent: Mapping[str, str]) -> int:
    outcomes = [one.outcome for one in heard]
    refused, unreachable = outcomes.count("failed"), outcomes.count("unreachable") + len(silent)
    say(
        f"{count(len(heard), 'step')} asked about, {refused} refused, {unreachable} not answered; nothing was changed."
    )
    if refused:
        return ExitCode.STEPS_FAILED
    return ExitCode.UNREACHABLE if unreachable else ExitCode.DONE
