"""Which published endpoints must go at once, by how their replicas were found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmgw.plan.judge import SERVING, Condition
from llmgw.serving.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """An endpoint that is published no longer, and why."""

    endpoint: Endpoint
    why: str


def to_withdraw(
    endpoints: Sequence[Endpoint], by_url: Mapping[str, Condition], *, silent: Mapping[str, object]
) -> list[Withdrawn]:
    """The endpoints that answer no longer: their copy is not well, or nothing runs there on a node that answers.

    `by_url` has the condition of every copy that was seen, by where it answers; `silent` the nodes that do not.
    """
    found = []
    for endpoint in endpoints:
        condition = by_url.get(endpoint.url)
        if condition is None and endpoint.node not in silent:
            found.append(Withdrawn(endpoint, f"nothing runs there on {endpoint.node}"))
        elif condition is not None and condition.health not in SERVING:
            found.append(Withdrawn(endpoint, f"{condition.health}: {condition.why}"))
    return found
