"""Who holds which GPUs, and who may have those back on which something of it has ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from llmgw.observed import Run
from llmgw.plan.copies import CopyState
from llmgw.plan.nodes import Ground
from llmgw.plan.roster import Fate, Member, Roster

STAYS = (Fate.KEEP, Fate.HOLD, Fate.REPLACE, Fate.AGAIN)
"""The fates of replicas that stay where they are, whether they are started anew there or not."""
NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Holdings:
    """GPUs by node: `kept` are held by copies that stay, `freed` by copies that this plan ends or moves."""

    kept: Mapping[str, frozenset[int]]
    freed: Mapping[str, frozenset[int]]


def runs_of(member: Member) -> list[tuple[str, Run]]:
    """The runs by whose GPUs a member's place is known: those that hold something, and where it is started anew in
    place also those that have ended."""
    if member.copy is None:
        return []
    return member.copy.last_runs() if member.fate in (Fate.REPLACE, Fate.AGAIN) else member.copy.runs()


def holdings(roster: Roster) -> Holdings:
    """What runs of llmgw hold. Copies that the operator's scope leaves alone stay."""
    staying = [run for member in roster.members if member.fate in STAYS for run in runs_of(member)]
    staying += [run for copy in roster.bystanders for run in copy.runs()]
    leaving = [run for member in roster.members if member.fate is Fate.ELSEWHERE for run in runs_of(member)]
    leaving += [run for ending in roster.endings for run in ending.copy.runs()]
    return Holdings(_gpus(staying), _gpus(leaving))


def _gpus(runs: Iterable[tuple[str, Run]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for name, run in runs:
        found.setdefault(name, set()).update(run.gpus)
    return {name: frozenset(gpus) for name, gpus in found.items()}


def settle_claims(ground: Ground, roster: Roster) -> Roster:
    """The roster in which only those are started anew where they were whose GPUs there nobody else holds.

    The others start, or go, wherever there is room.
    """
    claimants = [member for member in roster.members if _reclaims(member)]
    if not claimants:
        return roster
    others = replace(roster, members=tuple(member for member in roster.members if not _reclaims(member)))
    known = holdings(others)
    claimed = {name: set(known.kept.get(name, NONE) | known.freed.get(name, NONE)) for name in ground.number}
    fates: dict[str, Fate] = {}
    for member in claimants:
        places = [(name, set(run.gpus)) for name, run in runs_of(member)]
        free = all(own <= ground[name].gpus - ground[name].taken.keys() - claimed[name] for name, own in places)
        if not free:
            fates[member.name] = Fate.START if member.fate is Fate.AGAIN else Fate.ELSEWHERE
            places = [(name, set(run.gpus)) for name, run in member.copy.runs()] if member.copy else []
        for name, own in places:
            claimed[name] |= own
    return replace(
        roster,
        members=tuple(replace(member, fate=fates.get(member.name, member.fate)) for member in roster.members),
    )


def _reclaims(member: Member) -> bool:
    """Whether a member is to have GPUs again on which nothing of it runs now."""
    broken = member.copy is not None and member.copy.state is CopyState.BROKEN
    return member.fate is Fate.AGAIN or (member.fate is Fate.REPLACE and broken)
