"""A finished placement on the placer's board, to ask it questions: why here, why not there, what would fit."""

from dataclasses import dataclass

from llmgw.plan.kinds import Reason
from llmgw.plan.nodes import Ground, NodeState
from llmgw.plan.placer import Demand, Spot, State
from llmgw.plan.roster import Member
from llmgw.plan.think import Thought

CLOSED: dict[NodeState, Reason] = {
    NodeState.CORDONED: Reason.CORDONED,
    NodeState.DRAINING: Reason.DRAINING,
    NodeState.SILENT: Reason.SILENT,
    NodeState.UNREACHABLE: Reason.UNREACHABLE,
    NodeState.LOST: Reason.LOST,
    NodeState.UNKNOWN: Reason.UNKNOWN,
    NodeState.SLURM: Reason.SLURM,
}


@dataclass(frozen=True, slots=True)
class Excluded:
    """A node that cannot take a rank of a replica, and why: `detail` in figures or names."""

    node: str
    reason: Reason
    detail: str = ""


class Board:
    """The state of a thought's answer. `number` is the placer's number of a replica."""

    def __init__(self, thought: Thought) -> None:
        self.thought = thought
        self.state = State(thought.task.problem)
        wanted = len(thought.task.wanted)
        for number, spot in enumerate(thought.answer.spots):
            if spot:
                self.state.put(number, spot)
        for number, spot in thought.answer.moved.items():
            self.state.lift(wanted + number)
            self.state.put(wanted + number, spot)
        members = (*thought.task.wanted, *thought.task.held)
        self.numbers = {member.name: number for number, member in enumerate(members)}
        for name, spot in thought.spots.items():  # those that surge have two spots
            number = self.numbers[name]
            if number >= wanted and self.state.spots[number] != spot:
                self.numbers[name] = self.state.add(self.state.items[number])
                self.state.put(self.numbers[name], spot)

    @property
    def ground(self) -> Ground:
        return self.thought.ground

    def lifted(self, name: str) -> Spot | None:
        """Takes the replica off the board; where it was."""
        number = self.numbers[name]
        return self.state.lift(number) if self.state.spots[number] else None

    def excluded(self, member: Member, demand: Demand, gpus: int) -> list[Excluded]:
        """The nodes that cannot take a rank of so many GPUs now, each with its first reason, in natural order."""
        refusals = self.thought.eligibility.refusals(member.model, member.profile)
        found = []
        for number, node in enumerate(self.ground.nodes):
            placed = self.thought.task.problem.nodes[number]
            if node.state in CLOSED:
                found.append(Excluded(node.name, CLOSED[node.state], node.note))
            elif placed.kind in refusals:
                refusal = refusals[placed.kind]
                found.append(Excluded(node.name, refusal.reason, refusal.detail))
            elif placed.kind not in demand.kinds:
                found.append(Excluded(node.name, Reason.ARGUMENTS))
            elif placed.gpus < gpus:
                found.append(Excluded(node.name, Reason.GPU_COUNT, f"{placed.gpus} of {gpus}"))
            elif self.state.room[number] <= 0:
                found.append(Excluded(node.name, Reason.PORTS))
            elif self.state.free[number] < gpus:
                found.append(Excluded(node.name, Reason.BUSY, self.holders(number)))
        return found

    def holders(self, number: int) -> str:
        """What holds GPUs of a node, in words."""
        members = (*self.thought.task.wanted, *self.thought.task.held)
        names = [members[item].name for item in self.state.on[number] if item < len(members)]
        node = self.ground.nodes[number]
        others = sorted(set(node.taken.values()))
        return ", ".join([*names, *others])
