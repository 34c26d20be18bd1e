"""What must be taken to run on nodes that do not answer, though their last facts do not show it.

A start may have reached its node just before that was cut off. Until the node answers, or counts as lost, nobody
knows; a second copy elsewhere could be one too many.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from llmgw.base import unit_name
from llmgw.observed import Facts, NodeFacts, Run
from llmgw.plan.document import Placement, Seat

StartMarks = tuple[str, str]
"""Plan and action: what tells starts of one replica apart."""


@dataclass(frozen=True, slots=True)
class BegunStart:
    """A start that was begun at `at`, whatever became of it."""

    at: datetime
    starts: Placement


@dataclass(frozen=True, slots=True)
class SinceThen:
    """What the journal has from some time on: the starts that nothing proves gone, and those that were."""

    begun: Mapping[StartMarks, BegunStart] = field(default_factory=dict)
    gone: frozenset[StartMarks] = frozenset()


def presume(facts: Facts, since: SinceThen) -> Facts:
    """The facts, with the silent nodes' as the journal has them.

    A start that was begun after such a node last answered runs there, and the node counts as silent from then on; what
    was proved gone is left out. Nodes that answer are taken at their word.
    """
    nodes, silent = dict(facts.nodes), dict(facts.silent)
    for name, last_seen in facts.silent.items():
        if name not in facts.nodes or last_seen is None:
            continue
        later = {
            marks: start
            for marks, start in since.begun.items()
            if start.at >= last_seen and any(seat.n == name for seat in start.starts.nodes)
        }
        nodes[name] = _as_journalled(name, facts.nodes[name], later, since.gone)
        silent[name] = max([last_seen, *(start.at for start in later.values())])
    return facts.model_copy(update={"nodes": nodes, "silent": silent})


def _as_journalled(
    name: str, seen: NodeFacts, later: Mapping[StartMarks, BegunStart], gone: frozenset[StartMarks]
) -> NodeFacts:
    runs = [run for run in seen.runs if (run.plan, run.action) not in gone | later.keys()]
    for marks, start in later.items():
        runs += [_run(marks, start, seat, seen) for seat in start.starts.nodes if seat.n == name]
    return seen.model_copy(update={"runs": tuple(runs)})


def _run(marks: StartMarks, start: BegunStart, seat: Seat, seen: NodeFacts) -> Run:
    return Run(
        replica=start.starts.replica,
        rank=seat.rank,
        plan=marks[0],
        action=marks[1],
        spec=start.starts.spec,
        state="running",
        supervisor=seen.supervisor,
        unit=unit_name(start.starts.replica),
        gpus=seat.gpus,
        port=seat.port,
        ports=seat.ports,
        nodes=tuple(other.n for other in start.starts.nodes),
        started_at=start.at,
    )
