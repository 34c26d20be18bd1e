"""What changed between two maps of a fabric, one line a change (llmgw-changes/1).

Keys are GUIDs and ports; names are for reading. What a change brings with it is part of its line: the cables of a
switch that went, the cable of an adapter that went. A map that is not complete makes nothing gone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from llmgw.base import Document, Guid, Value, count, natural, natural_key, visible
from llmgw.fabric.hostlists import label_list
from llmgw.fabric.sides import Ends, Port, Side
from llmgw.fabric.topology import AdapterItem, LinkEnd, LinkItem, Topology


class Change(StrEnum):
    """What happened, in the order in which changes are listed."""

    SWITCH_GONE = "switch gone"
    SWITCH_NEW = "switch new"
    NODE_GONE = "node gone"
    NODE_NEW = "node new"
    ADAPTER_GONE = "adapter gone"
    ADAPTER_NEW = "adapter new"
    CABLE_GONE = "cable gone"
    CABLE_MOVED = "cable moved"
    SHORT = "newly short"
    RATE = "rate changed"
    RAIL = "rail moved"
    CABLE_NEW = "cable added"
    RECOVERED = "recovered"
    RENAMED = "renamed"


_ORDER = {kind: place for place, kind in enumerate(Change)}


class ChangeItem(Value):
    """One change. GUID and port say where: of an adapter's cable the adapter's end, else the lower end.

    A node that went or came has its first adapter there, and all of them in `adapters`.
    """

    kind: Change
    text: str
    guid: Guid
    port: int = 0
    node: str | None = None
    adapters: tuple[LinkEnd, ...] = ()


class MapOf(Value):
    """Which map was compared."""

    scanned_at: datetime
    complete: bool


class Changes(Document):
    """What changed from the old map to the new one."""

    format: Literal["llmgw-changes/1"] = "llmgw-changes/1"
    fabric: str
    old: MapOf
    new: MapOf
    changes: tuple[ChangeItem, ...]


def diff(old: Topology, new: Topology) -> Changes:
    """The changes, by kind, then by name. None for two scans of an unchanged fabric."""
    items = _Compared(Side.of(old), Side.of(new), gone_counts=new.complete).items()
    ordered = sorted(items, key=lambda one: (_ORDER[one.kind], natural_key(one.text), one.guid, one.port))
    return Changes(
        fabric=new.fabric,
        old=MapOf(scanned_at=old.scanned_at, complete=old.complete),
        new=MapOf(scanned_at=new.scanned_at, complete=new.complete),
        changes=tuple(ordered),
    )


class _Kinds(NamedTuple):
    """What devices that one map has alone are called, and the verb of where they are."""

    switch: Change
    node: Change
    adapter: Change
    verb: str


_GONE = _Kinds(Change.SWITCH_GONE, Change.NODE_GONE, Change.ADAPTER_GONE, "was")
_NEW = _Kinds(Change.SWITCH_NEW, Change.NODE_NEW, Change.ADAPTER_NEW, "is")


@dataclass(slots=True)
class _Compared:
    """Two maps, and which cables and adapters are already told of as part of another change."""

    old: Side
    new: Side
    gone_counts: bool
    told: set[Ends] = field(default_factory=set)
    told_adapters: set[Port] = field(default_factory=set)

    def items(self) -> Iterator[ChangeItem]:
        yield from self._moved()
        if self.gone_counts:
            yield from self._devices(self.old, self.new, _GONE)
            yield from self._cables(self.old, self.new, Change.CABLE_GONE)
        yield from self._devices(self.new, self.old, _NEW)
        yield from self._cables(self.new, self.old, Change.CABLE_NEW)
        yield from self._rates()
        yield from self._rails_and_names()

    def _moved(self) -> Iterator[ChangeItem]:
        """Cables of which one end stayed: an adapter's, or either of two switches'."""
        gone = {ends for ends in self.old.links if ends not in self.new.links}
        by_end = {end: ends for ends in sorted(gone) for end in ends}
        added = sorted(ends for ends in self.new.links if ends not in self.old.links)
        by_adapter = sorted(added, key=lambda ends: not any(end in self.new.adapters for end in ends))
        for ends in by_adapter:
            for end in sorted(ends, key=lambda port: port not in self.new.adapters):
                before = by_end.get(end)
                if before in gone and before is not None and self._stays(end, ends, before):
                    gone.discard(before)
                    self.told |= {before, ends}
                    yield self._move(end, before, ends)
                    break

    def _stays(self, end: Port, ends: Ends, before: Ends) -> bool:
        """Whether the end may be the one that stayed: an adapter has only its own."""
        both = (*ends, *before)
        return end in self.new.adapters or not any(
            one in self.new.adapters or one in self.old.adapters for one in both
        )

    def _move(self, end: Port, before: Ends, ends: Ends) -> ChangeItem:
        was, now = (two[0] if two[1] == end else two[1] for two in (before, ends))
        adapter = self.new.adapters.get(end)
        off = "; now off its rail" if adapter and adapter.off_rail else ""
        short = self._short_note(self.new.links[ends])
        text = f"{self.new.words(end)} from {self.old.words(was)} to {self.new.words(now)}{off}{short}"
        return ChangeItem(
            kind=Change.CABLE_MOVED, text=text, guid=end[0], port=end[1], node=adapter.node if adapter else None
        )

    def _devices(self, has: Side, lacks: Side, kinds: _Kinds) -> Iterator[ChangeItem]:
        """Switches and adapters that one side has alone, each with the cables that this explains."""
        switches = [guid for guid in has.switches if guid not in lacks.switches]
        adapters = [port for port in has.adapters if port not in lacks.adapters]
        below = Counter(leaf for port in adapters if (leaf := has.adapters[port].leaf))
        alone = {*switches, *(guid for guid, _ in adapters)}
        cables = Counter(
            guid
            for ends in has.links
            if ends not in lacks.links and ends not in self.told
            for guid in {ends[0][0], ends[1][0]} & alone
        )
        self.told |= {ends for ends in has.links if ends not in lacks.links and {ends[0][0], ends[1][0]} & alone}
        for guid in switches:
            behind = f" and {count(below[guid], 'adapter')} on it" if below[guid] else ""
            text = f"{has.labels[guid]} with {count(cables[guid], 'cable')}{behind}"
            yield ChangeItem(kind=kinds.switch, text=text, guid=guid)
        gone = set(switches)
        yield from self._adapters(has, [port for port in adapters if has.adapters[port].leaf not in gone], kinds)

    def _adapters(self, side: Side, ports: Sequence[Port], kinds: _Kinds) -> Iterator[ChangeItem]:
        """Adapters that one side has alone, a whole node's of several in one line."""
        total = Counter(one.node for one in side.adapters.values())
        by_node: dict[str | None, list[Port]] = defaultdict(list)
        for port in ports:
            by_node[side.adapters[port].node].append(port)
        for node, own in by_node.items():
            if node and len(own) == total[node] > 1:
                yield self._node(side, node, own, kinds)
            else:
                for port in own:
                    yield self._adapter(side, port, kinds)

    def _node(self, side: Side, node: str, ports: Sequence[Port], kinds: _Kinds) -> ChangeItem:
        above = {side.adapters[port].leaf or "" for port in ports} & side.labels.keys()
        leaves = natural(side.labels[leaf] for leaf in above)
        where = f", {kinds.verb} on {label_list(leaves)}" if leaves else ""
        return ChangeItem(
            kind=kinds.node,
            text=f"{node} with {count(len(ports), 'adapter')}{where}",
            guid=ports[0][0],
            port=ports[0][1],
            node=node,
            adapters=tuple(LinkEnd(guid=guid, port=port) for guid, port in ports),
        )

    def _adapter(self, side: Side, port: Port, kinds: _Kinds) -> ChangeItem:
        one, ends = side.adapters[port], side.cable_of.get(port)
        far = [end for end in ends or () if end != port]
        where = f", {kinds.verb} on {side.words(far[0])}" if far else ""
        short = self._short_note(side.links[ends]) if ends and kinds is _NEW else ""
        text = f"{side.adapter_words(one)}{where}{short}"
        return ChangeItem(kind=kinds.adapter, text=text, guid=port[0], port=port[1], node=one.node)

    def _cables(self, has: Side, lacks: Side, kind: Change) -> Iterator[ChangeItem]:
        for ends, link in has.links.items():
            if ends not in lacks.links and ends not in self.told:
                short = self._short_note(link) if kind is Change.CABLE_NEW else ""
                text = f"{has.link_words(ends)}, {link.rate}{short}"
                yield ChangeItem(kind=kind, text=text, guid=ends[0][0], port=ends[0][1])

    def _rates(self) -> Iterator[ChangeItem]:
        for ends, now in self.new.links.items():
            was = self.old.links.get(ends)
            if was is None or (was.rate, was.degraded) == (now.rate, now.degraded):
                continue
            kind = Change.RATE
            if was.degraded != now.degraded:
                kind = Change.SHORT if now.degraded else Change.RECOVERED
            rates = f"{was.rate} to {now.rate}" if was.rate != now.rate else f"still {now.rate}"
            text = f"{self.new.link_words(ends)}, {rates}, its kind at {now.expected}"
            end = min(ends, key=lambda port: (port not in self.new.adapters, port))
            adapter = self.new.adapters.get(end)
            yield ChangeItem(
                kind=kind, text=text, guid=end[0], port=end[1], node=adapter.node if adapter else None
            )

    def _rails_and_names(self) -> Iterator[ChangeItem]:
        moved = {end for ends in self.told for end in ends}
        for port, now in self.new.adapters.items():
            was = self.old.adapters.get(port)
            if was is None:
                continue
            if (was.rail, was.off_rail) != (now.rail, now.off_rail) and port not in moved:
                text = f"{self.new.words(port)} from {_rail_words(was)} to {_rail_words(now)}"
                yield ChangeItem(kind=Change.RAIL, text=text, guid=port[0], port=port[1], node=now.node)
            if (was.node, was.description) != (now.node, now.description):
                text = f"{self.old.adapter_words(was)} is {self.new.adapter_words(now)} now, {port[0]}"
                yield ChangeItem(kind=Change.RENAMED, text=text, guid=port[0], port=port[1], node=now.node)
        for guid, one in self.new.switches.items():
            before = self.old.switches.get(guid)
            if before and before.name != one.name:
                text = f"switch {before.name.strip()} is {one.name.strip()} now, {guid}"
                yield ChangeItem(kind=Change.RENAMED, text=text, guid=guid)

    @staticmethod
    def _short_note(link: LinkItem) -> str:
        return f"; short: {link.rate}, its kind at {link.expected}" if link.degraded else ""


def _rail_words(adapter: AdapterItem) -> str:
    rail = f"rail {adapter.rail}" if adapter.rail else "no rail"
    return f"{rail}, cabled off it" if adapter.off_rail else rail


def change_lines(changes: Iterable[ChangeItem]) -> list[str]:
    """One line a change, safe to show: `newly short: gpu07 mlx5_2/1 - leaf-c port 11, 4xNDR to 2xNDR, …`."""
    return [visible(f"{one.kind}: {one.text}") for one in changes]
