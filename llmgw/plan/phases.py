"""The phases of an action, and what each of them asks of nodes and routers."""

from dataclasses import dataclass, field
from enum import StrEnum

from llmgw.plan.document import Op


class Phase(StrEnum):
    """One stretch of an action; a row of the journal. `undo` and `restore` follow a failure."""

    DRAIN = "drain"
    AWAIT_DRAINED = "await drained"
    STOP = "stop"
    WITHDRAW = "withdraw"
    START = "start"
    AWAIT_READY = "await ready"
    PUBLISH = "publish"
    UNDO = "undo"
    RESTORE = "restore"


_STOP = (Phase.DRAIN, Phase.AWAIT_DRAINED, Phase.STOP)
_START = (Phase.START, Phase.AWAIT_READY, Phase.PUBLISH)
PHASES: dict[Op, tuple[Phase, ...]] = {
    Op.START: _START,
    Op.STOP: (*_STOP, Phase.WITHDRAW),
    Op.DRAIN: (Phase.DRAIN, Phase.AWAIT_DRAINED),
    Op.REPLACE: (*_STOP, *_START),
    Op.MOVE: (*_START, Phase.AWAIT_DRAINED, Phase.STOP, Phase.WITHDRAW),
    Op.PUBLISH: (Phase.AWAIT_READY, Phase.PUBLISH),
    Op.ADOPT: (Phase.AWAIT_READY, Phase.PUBLISH),
    Op.FORGET: (Phase.WITHDRAW,),
}
"""What an action goes through. A MOVE publishes its newcomer as ready and the old copy as draining at once."""


class Kind(StrEnum):
    """What is asked, and by which playbook."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PROBE = "probe"
    LOAD = "load"
    ROUTERS = "routers"
    PUBLISH = "publish"


Ticket = tuple[Phase, Kind, str]
"""What tells asks of one action apart: asking again in the same phase is the same ask."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing to ask of one node; of all router hosts together where `node` is empty."""

    kind: Kind
    action: str
    phase: Phase
    node: str = ""
    wait_s: int = 0

    @property
    def ticket(self) -> Ticket:
        return self.phase, Kind.STOP if self.kind is Kind.KILL else self.kind, self.node


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for an ask.

    `outcome`: ok | failed (asking again gives the same) | unreachable. `done`: started, ready, gone, idle or
    published, according to the ask's kind. `ended`: the rank does not run. `in_flight` counts requests at the engine
    (LOAD) or at all routers (ROUTERS), None where nobody could say. `behind` names routers that have not loaded
    the generation. `text` is for a person, `log` the last lines of the rank.
    """

    ask: Ask
    outcome: str
    done: bool = False
    ended: bool = False
    in_flight: int | None = None
    behind: tuple[str, ...] = ()
    text: str = ""
    log: tuple[str, ...] = field(default=(), repr=False)
