"""What earlier maps leave behind: all that is known when the last scan saw only part, and cables that are missed."""

from collections.abc import Collection, Iterable
from datetime import datetime

from pydantic import Field

from llmgw.base import Guid, Value
from llmgw.fabric.sides import Ends, Port, Side, ends_of
from llmgw.fabric.topology import Topology


def overlaid(whole: Topology, *partial: Topology) -> Topology:
    """All that is known: each of `partial`, later ones over earlier, and below them what they did not see.

    A cable below is left out where another stands at one of its ends now.
    """
    known = whole
    for over in partial:
        known = _over(known, over)
    return known


def _over(below: Topology, over: Topology) -> Topology:
    taken = {end for link in over.links for end in ends_of(link)}
    switches = {one.guid: one for one in below.switches} | {one.guid: one for one in over.switches}
    adapters = {(one.guid, one.port): one for one in below.adapters}
    adapters |= {(one.guid, one.port): one for one in over.adapters}
    kept = [link for link in below.links if taken.isdisjoint(ends_of(link))]
    return over.model_copy(
        update={
            "switches": tuple(switches.values()),
            "adapters": tuple(adapters.values()),
            "links": (*kept, *over.links),
        }
    )


class MissedEnd(Value):
    """One end of a missed cable. `words` are what people called it: `leaf-c port 11`, `gpu07 mlx5_2/1`."""

    guid: Guid
    port: int
    words: str
    switch: str | None = Field(None, description="the switch's label; None where it is none")

    @property
    def key(self) -> Port:
        return self.guid, self.port


class MissedCable(Value):
    """A cable that an earlier map had and none has had since: neither of its ends has another.

    An adapter's end comes first, and `node` is whose it is. `since` is the time of the first map without it.
    """

    ends: tuple[MissedEnd, MissedEnd]
    rate: str
    node: str | None = None
    since: datetime

    @property
    def text(self) -> str:
        """Both ends in words."""
        return f"{self.ends[0].words} - {self.ends[1].words}"

    @property
    def keys(self) -> tuple[Port, Port]:
        return self.ends[0].key, self.ends[1].key


def missed_cables(known: Iterable[MissedCable], before: Topology | None, now: Topology) -> tuple[MissedCable, ...]:
    """The cables that are missed from now on: those that were, and those of the map `before`, less what is back or
    was replaced. `now` is a complete map; the cables keep their order, newly missed ones come last."""
    cabled = {end for link in now.links for end in ends_of(link)}
    still = [one for one in known if cabled.isdisjoint(one.keys)]
    taken = cabled.union(*(one.keys for one in still))
    return (*still, *_newly_missed(before, now, taken)) if before else tuple(still)


def _newly_missed(before: Topology, now: Topology, taken: Collection[Port]) -> list[MissedCable]:
    side = Side.of(before)
    return [
        _missed(side, ends, link.rate, now.scanned_at)
        for ends, link in side.links.items()
        if ends[0] not in taken and ends[1] not in taken
    ]


def _missed(side: Side, ends: Ends, rate: str, since: datetime) -> MissedCable:
    first, second = sorted(ends, key=lambda end: end not in side.adapters)
    adapter = side.adapters.get(first)
    return MissedCable(
        ends=(_end(side, first), _end(side, second)),
        rate=rate,
        node=adapter.node if adapter else None,
        since=since,
    )


def _end(side: Side, end: Port) -> MissedEnd:
    return MissedEnd(guid=end[0], port=end[1], words=side.words(end), switch=side.labels.get(end[0]))


def cabled_ports(missed: Iterable[MissedCable], maps: Iterable[Topology] = ()) -> dict[Port, Port]:
    """What ports are known to have been cabled to: by missed cables, then by maps, the newest first."""
    pairs = [one.keys for one in missed] + [ends_of(link) for topology in maps for link in topology.links]
    found: dict[Port, Port] = {}
    for a, b in pairs:
        found.setdefault(a, b)
        found.setdefault(b, a)
    return found
