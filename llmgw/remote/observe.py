"""Facts of many nodes in one round trip each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from llmgw.observed import NodeFacts, parse_facts
from llmgw.remote.playbook import HostAnswer, Play, Session, run_play
from llmgw.remote.steps import facts_query, plain
from llmgw.site import InventoryHost, Site


@dataclass(frozen=True, slots=True)
class Observation:
    """Who answered with what, and who did not and why."""

    answered: dict[str, NodeFacts]
    failed: dict[str, str]
    unreachable: dict[str, str]


def observe(
    session: Session,
    site: Site,
    nodes: Iterable[InventoryHost],
    *,
    privileged: tuple[tuple[str, ...], ...] = (),
    tell: Callable[[HostAnswer], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Observation:
    """Ask nodes for their facts, all at once; `tell` gets each answer as it comes.

    `privileged`: see facts_query. A node whose module fails is `failed`, not silent: it answers, but cannot be judged.
    """
    asked = {node.name: plain(facts_query(site, node, privileged=privileged)) for node in nodes}
    found = Observation({}, {}, {})
    if not asked:
        return found
    play = Play("facts", "facts_by_host", asked, deadline_s=site.settings.timeouts.step_s)
    for answer in run_play(session, play, stopped=stopped):
        tell(answer)
        _sort(found, answer)
    return found


def _sort(found: Observation, answer: HostAnswer) -> None:
    if answer.outcome == "ok":
        try:
            found.answered[answer.host] = parse_facts(answer.result["node"], seen_at=datetime.now(UTC))
        except (KeyError, TypeError, ValueError) as error:
            found.failed[answer.host] = f"its facts cannot be read: {error}"
    elif answer.outcome == "failed":
        found.failed[answer.host] = answer.why
    else:
        found.unreachable[answer.host] = answer.why
