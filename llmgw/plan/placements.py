"""Where every replica is to be when a plan has been applied."""

from collections.abc import Mapping, Sequence

from llmgw.plan.copies import seats_of
from llmgw.plan.document import Placement, Seat
from llmgw.plan.nodes import Ground
from llmgw.plan.placer import Spot
from llmgw.plan.roster import Fate, Member, Roster
from llmgw.plan.seating import Seating, biggest_first
from llmgw.site import Site


def placements_of(site: Site, ground: Ground, roster: Roster, spots: Mapping[str, Spot]) -> dict[str, Placement]:
    """The placements, by replica: new seats at the spots, old ones for what stays or is started anew in place."""
    seating = Seating(site, ground, roster)
    new = [member for member in roster.members if member.name in spots]
    seats = {member.name: seating.new(member, spots[member.name]) for member in biggest_first(new, spots)}
    for member in roster.members:
        if member.copy and member.fate in (Fate.REPLACE, Fate.AGAIN):
            seats[member.name] = seating.again(member, member.copy)
        elif member.copy and member.fate in (Fate.KEEP, Fate.HOLD):
            seats[member.name] = seats_of(member.copy)
    return {
        member.name: _placement(ground, member, seats[member.name])
        for member in roster.members
        if seats.get(member.name)
    }


def _placement(ground: Ground, member: Member, seats: Sequence[Seat]) -> Placement:
    nodes = [node for seat in seats if (node := ground.get(seat.n))]
    leaves = sorted({node.leaf for node in nodes if node.fabric})
    stays = member.fate in (Fate.KEEP, Fate.HOLD) and member.copy is not None
    return Placement(
        replica=member.name,
        model=member.model,
        profile=member.profile,
        shape=f"{len(seats)}x{max(len(seat.gpus) for seat in seats)}",
        nodes=tuple(seats),
        fabric=nodes[0].fabric if nodes else None,
        leaf=",".join(ground.leaves[leaf] for leaf in leaves),
        port=next((seat.port for seat in seats if seat.rank == 0), 0),
        spec=member.copy.started.spec if stays and member.copy else member.mark,
    )
