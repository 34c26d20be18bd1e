"""Which copy of a replica is kept where there are several, and which replicas go where there are too many."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from llmgw.plan.copies import Copy, CopyState, PublishedAs, url_of
from llmgw.plan.kinds import Eligibility
from llmgw.plan.nodes import Ground, NodeState
from llmgw.plan.scope import Scope
from llmgw.plan.spec import spec_of
from llmgw.plan.standing import Standing
from llmgw.site import Catalogue


@dataclass(frozen=True, slots=True)
class View:
    """What judging a copy takes."""

    catalogue: Catalogue
    ground: Ground
    standing: Standing
    published: Mapping[str, PublishedAs]
    scope: Scope
    eligibility: Eligibility


_FIRST = {
    CopyState.RUNNING: 0,
    CopyState.UNKNOWN: 1,
    CopyState.BROKEN: 2,
    CopyState.LOST: 3,
    CopyState.ENDED: 4,
}


def preference(view: View, copy: Copy) -> tuple[int, bool, bool, float, str, str]:
    """Of two copies that run, the one that is as it is to be stays; of equals the published one, then the newer."""
    known = view.published.get(url_of(view.ground, copy), PublishedAs())
    started = copy.started.started_at or datetime(1970, 1, 1, tzinfo=UTC)
    return (
        _FIRST[copy.state],
        not is_settled(view, copy),
        known.id != copy.name,
        -started.timestamp(),
        copy.started.plan,
        copy.started.action,
    )


def is_settled(view: View, copy: Copy) -> bool:
    """Whether a copy neither has to leave its nodes nor to be started anew."""
    model = view.catalogue.models.get(copy.model)
    profile = copy.profile or (model.default if model else "")
    if model is None or profile not in model.profiles or leaving(view, copy):
        return False
    return copy.started.spec == spec_of(copy.model, model, profile).mark()


def leaving(view: View, copy: Copy) -> str:
    for name in copy.nodes:
        node = view.ground.get(name)
        if node and node.state is NodeState.DRAINING:
            return f"{name} is drained" + (f" ({node.note})" if node.note else "")
    return ""


def worst_first(view: View, model: str, profile: str, alive: Mapping[int, Copy]) -> list[int]:
    """Which copies to end first when there are too many.

    What does not run well, what has to leave or change anyway, what crosses leaves or uses short cables, what
    shares its leaf with most of the others, and last the highest ordinal. One is chosen at a time.
    """
    mark = spec_of(model, view.catalogue.models[model], profile).mark()
    left = dict(alive)
    order: list[int] = []
    while left:
        worst = max(left, key=lambda n: _badness(view, mark, n, left))
        order.append(worst)
        del left[worst]
    return order


def _badness(view: View, mark: str, ordinal: int, left: Mapping[int, Copy]) -> tuple[int, ...]:
    copy = left[ordinal]
    ground = view.ground
    nodes = [node for name in copy.nodes if (node := ground.get(name))]
    leaves = {node.leaf for node in nodes}
    pods = {node.pod for node in nodes}
    beside = sum(
        bool(leaves & {node.leaf for name in other.nodes if (node := ground.get(name))})
        for n, other in left.items()
        if n != ordinal
    )
    spans = len(copy.nodes) > 1
    return (
        _FIRST[copy.state],
        any(node.state is NodeState.DRAINING for node in nodes),
        copy.started.spec != mark,
        len(pods),
        len(leaves),
        beside,
        sum(len(node.path.short) for node in nodes if node.path) if spans else 0,
        sum(node.path.off_rail for node in nodes if node.path) if spans else 0,
        ordinal,
    )
