"""The last sentences of a plan: how many changes, the floor that holds, the longest chain, what stays free."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmgw.base import count, natural_key, replica_parts
from llmgw.plan.document import Action, Body, Op, Plan
from llmgw.plan.text.spans import folded

_VERBS = {
    Op.START: "to start", Op.REPLACE: "to replace", Op.MOVE: "to move", Op.STOP: "to stop", Op.FORGET: "to forget",
    Op.ADOPT: "to publish", Op.PUBLISH: "to publish", Op.DRAIN: "to drain", Op.FETCH: "to fetch",
}  # fmt: skip


def summary(plan: Plan) -> str:
    """`Plan 5c1e0c: 3 to start, 1 to stop. No model goes below 1 ready replica. Longest chain: …`"""
    body = plan.body
    counts: dict[str, int] = {}
    for op, verb in _VERBS.items():
        number = sum(action.op is op for action in body.actions)
        if number:
            counts[verb] = counts.get(verb, 0) + number
    changes = ", ".join(f"{number} {verb}" for verb, number in counts.items()) or "nothing to change"
    if body.unplaced:
        changes += f", {len(body.unplaced)} without a place"
    sentences = [f"Plan {plan.id[:6]}: {changes}.", readiness(body), longest_chain(body.actions)]
    return " ".join(filter(None, sentences))


def readiness(body: Body) -> str:
    """Which models lose their last ready replica, or that none does; empty where none is disturbed."""
    lowest: dict[str, int] = {}
    last: dict[str, int] = {}
    for action in body.actions:
        if len(action.ready) > 1:
            model = replica_parts(action.replica)[0]
            lowest[model] = min(lowest.get(model, action.ready[0]), *action.ready)
            last[model] = action.ready[-1]
    disturbed = {
        replica_parts(action.replica)[0]
        for action in body.actions
        if action.op in (Op.STOP, Op.REPLACE, Op.MOVE, Op.FORGET) and action.ready and action.ready[0]
    }
    if not disturbed:
        return ""
    outages = {replica_parts(action.replica)[0] for action in body.actions if action.outage}
    removed = {model for model in disturbed if last.get(model) == 0 and model not in outages}
    parts = []
    if outages:
        parts.append(
            f"{_list(outages)} {'goes' if len(outages) == 1 else 'go'} below the minimum: needs --allow-outage."
        )
    others = disturbed - outages - removed
    none_left = {model for model in others if lowest[model] == 0}
    others -= none_left
    if none_left:
        verb = "has" if len(none_left) == 1 else "have"
        parts.append(f"{_list(none_left)} {verb} no ready replica for a while, as min_ready allows.")
    if others:
        least = min(lowest[model] for model in others)
        parts.append(
            f"No {'other ' if outages or none_left else ''}model goes below {count(least, 'ready replica')}"
        )
        parts[-1] += (
            f" except {_list(removed)}, which {'is' if len(removed) == 1 else 'are'} removed." if removed else "."
        )
    elif removed:
        parts.append(f"{_list(removed)} {'is' if len(removed) == 1 else 'are'} removed.")
    return " ".join(parts)


def _list(names: set[str]) -> str:
    ordered = sorted(names, key=natural_key)
    return ", ".join(ordered) if len(ordered) <= 4 else ", ".join(ordered[:3]) + f" and {len(ordered) - 3} more"


def longest_chain(actions: Sequence[Action]) -> str:
    """The chain of actions that takes longest if every one takes all its time."""
    took: dict[str, int] = {}
    path: dict[str, list[str]] = {}
    for action in actions:
        first = max(action.after, key=lambda one: took.get(one, 0), default="")
        own = action.drain_s + action.start_s
        took[action.id] = took.get(first, 0) + own
        path[action.id] = [*path.get(first, []), action.id]
    if not took:
        return ""
    last = max(took, key=lambda one: (took[one], -len(path[one])))
    if not took[last]:
        return ""
    by_id = {action.id: action for action in actions}
    drain = sum(by_id[one].drain_s for one in path[last])
    start = sum(by_id[one].start_s for one in path[last])
    chain = path[last] if len(path[last]) <= 6 else [*path[last][:2], "…", *path[last][-2:]]
    parts = " + ".join(
        filter(None, (f"drain {_minutes(drain)}" if drain else "", f"start {_minutes(start)}" if start else ""))
    )
    return f"Longest chain: {' > '.join(chain)}, at most {_minutes(drain + start)} ({parts})."


def _minutes(seconds: int) -> str:
    return f"{(seconds + 59) // 60} min" if seconds >= 60 else f"{seconds} s"


def not_used(notes: Mapping[str, Any]) -> str:
    """`Not used  gpu11 cordoned (mk, "psu"); gpu07 kept for one-node models: …`; empty where all is in use."""
    closed: dict[tuple[str, str], list[str]] = {}
    for name, state, note in notes.get("closed", ()):
        closed.setdefault((state, note), []).append(name)
    parts = [f"{folded(names)} {state}{f' ({note})' if note else ''}" for (state, note), names in closed.items()]
    taken: dict[tuple[str, str], list[int]] = {}
    for name, index, who in notes.get("taken", ()):
        taken.setdefault((name, who), []).append(index)
    parts += [f"{name} GPU {','.join(map(str, gpus))}: held by {who}" for (name, who), gpus in taken.items()]
    parts += [f"{name} kept for one-node models: {cable}" for name, cable in notes.get("short", ())]
    shown = parts if len(parts) <= 8 else [*parts[:7], f"and {len(parts) - 7} more"]
    return "Not used  " + "; ".join(shown) if shown else ""


def left_free(notes: Mapping[str, Any]) -> str:
    """`Left free 60 of 88 schedulable GPUs; whole nodes: leaf-a 3, leaf-b 2 + 1 short; …`"""
    if "gpus" not in notes:
        return ""
    leaves = [
        f"{leaf} {good}" + (f" + {short} short" if short else "") for leaf, good, short in notes.get("leaves", ())
    ]
    shown = leaves if len(leaves) <= 8 else [*leaves[:7], f"and {len(leaves) - 7} more leaves"]
    text = f"Left free {notes['free']} of {notes['gpus']} schedulable GPUs"
    if shown:
        text += "; whole nodes: " + ", ".join(shown)
    nodes, _ = notes.get("big", (1, 1))
    if nodes > 1:
        text += f"; {count(int(notes.get('slots', 0)), 'place')} for {nodes}-node models"
    return text
