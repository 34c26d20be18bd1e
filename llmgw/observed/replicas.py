"""From the runs that nodes report to the replicas that they make."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from llmgw.observed.facts import Facts, NodeFacts, Run


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One start of a replica: what action `action` of plan `plan` made, as the nodes now show it.

    `ranks` has the node and the run of each rank that was seen, in rank order. `nodes` is the whole placement in
    that order, so a rank missing from `ranks` is one whose node is silent or shows no trace of it.
    """

    replica: str
    plan: str
    action: str
    spec: str
    nodes: tuple[str, ...]
    ranks: Mapping[int, tuple[str, Run]]
    silent: frozenset[str]

    @property
    def port(self) -> int | None:
        """Where the replica answers, as the marks of any rank give it."""
        head = self.ranks.get(0)
        return head[1].port if head else None

    @property
    def whole(self) -> bool:
        """Every rank runs, or is on a node that does not answer just now."""
        return all(
            self.ranks[rank][1].state == "running" if rank in self.ranks else node in self.silent
            for rank, node in enumerate(self.nodes)
        )

    @property
    def started_at(self) -> datetime | None:
        """When its last rank was started."""
        return max((run.started_at for _, run in self.ranks.values() if run.started_at), default=None)

    def gpus(self, node: str) -> tuple[int, ...]:
        """The GPUs that it holds there; empty where that rank was not seen."""
        return next((run.gpus for host, run in self.ranks.values() if host == node), ())


def incarnations(facts: Facts) -> list[Incarnation]:
    """Every start of a replica of which some node shows a run, ordered by replica, plan and action.

    The runs of silent nodes are those they last reported.
    """
    found: dict[tuple[str, str, str], dict[int, tuple[str, Run]]] = defaultdict(dict)
    for node, run in _runs(facts.nodes):
        found[run.replica, run.plan, run.action].setdefault(run.rank, (node, run))
    silent = frozenset(facts.silent)
    return [_incarnation(key, found[key], silent) for key in sorted(found)]


def _runs(nodes: Mapping[str, NodeFacts]) -> Iterable[tuple[str, Run]]:
    for name in sorted(nodes):
        for run in nodes[name].runs:
            yield name, run


def _incarnation(
    key: tuple[str, str, str], ranks: Mapping[int, tuple[str, Run]], silent: frozenset[str]
) -> Incarnation:
    replica, plan, action = key
    _, any_run = ranks[min(ranks)]
    nodes = any_run.nodes or tuple(node for node, _ in (ranks[rank] for rank in sorted(ranks)))
    return Incarnation(
        replica, plan, action, any_run.spec, nodes, dict(sorted(ranks.items())), silent & set(nodes)
    )
