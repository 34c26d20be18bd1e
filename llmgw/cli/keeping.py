"""Remembering scans: what a text says, by what name, what it changed, and what is missed since."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pydantic import TypeAdapter

from llmgw.base import digest_of_bytes
from llmgw.cli.maps import Ground
from llmgw.fabric import (
    ChangeItem,
    Fabric,
    MissedCable,
    Paths,
    Topology,
    change_lines,
    missed_cables,
    overlaid,
    substance,
)
from llmgw.fabric.diff import diff
from llmgw.fabric.node_paths import paths
from llmgw.fabric.topology import topology
from llmgw.store import State
from llmgw.store.history import record
from llmgw.store.known import missed_text
from llmgw.store.maps import (
    NewScan,
    StoredFabric,
    fabrics,
    maps_until,
    repeat_scan,
    save_scan,
    topology_text,
)

LIMIT_EVENTS = 20
"""So many changes of one scan go into the site's history; the scan itself keeps them all."""
_MISSED = TypeAdapter(tuple[MissedCable, ...])


@dataclass(frozen=True, slots=True)
class Brought:
    """What a scan brought: the tools' texts, and where from."""

    source: str
    raw: str = field(repr=False)
    stderr: str = ""
    linkinfo: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Kept:
    """A scan that was remembered: its number, its map, the documents made of it (none of a rejected one), and what
    changed. `is_news` is false where it says what the scan before it said."""

    number: int
    name: str
    fabric: Fabric
    topology: Topology | None = None
    paths: Paths | None = None
    changes: tuple[ChangeItem, ...] = ()
    is_news: bool = True


def keep(state: State, name: str, fabric: Fabric, under: Ground, brought: Brought) -> Kept:
    """Remember a scan, and in the site's history what it changed."""
    now = datetime.now(UTC).replace(microsecond=0)
    scan = NewScan(
        fabric=name,
        at=now,
        source=brought.source,
        verdict=fabric.verdict.state,
        problems="\n".join(_problems(fabric)),
        raw=brought.raw,
        stderr=brought.stderr,
        linkinfo=brought.linkinfo,
    )
    if fabric.verdict.state == "rejected":
        return _rejected(state, scan, fabric)
    shape = topology(fabric, name=name, scanned_at=now, scanned_from=brought.source)
    way = paths(fabric, name=name, hosts=under.hosts)
    scan = replace(scan, digest=substance(fabric, way), topology=shape.text(), paths=way.text())
    number = repeat_scan(state, scan)
    if number is not None:
        return Kept(number, name, fabric, shape, way, is_news=False)
    changes = _changes(state, scan, shape)
    number = save_scan(state, _with_memory(state, scan, shape, changes))
    _tell(state, scan, number, changes)
    return Kept(number, name, fabric, shape, way, changes)


def _problems(fabric: Fabric) -> list[str]:
    """What the scan met; first, where it is no whole map, why."""
    verdict = fabric.verdict
    lines = [str(one) for one in verdict.problems]
    if verdict.state == "complete" or any(verdict.reason in line for line in lines[:1]):
        return lines
    first = next((line for line in lines if verdict.reason in line), verdict.reason)
    return [first, *(line for line in lines if line != first)]


def _rejected(state: State, scan: NewScan, fabric: Fabric) -> Kept:
    """A scan that changes nothing, kept to be looked at."""
    scan = replace(scan, digest=digest_of_bytes(fabric.verdict.reason.encode("utf-8", "surrogateescape")))
    number = repeat_scan(state, scan)
    if number is not None:
        return Kept(number, scan.fabric, fabric, is_news=False)
    number = save_scan(state, scan)
    record(state, "fabric", scan.fabric, f"scan {number} rejected: {fabric.verdict.reason}", by=scan.source)
    return Kept(number, scan.fabric, fabric)


def _changes(state: State, scan: NewScan, shape: Topology) -> tuple[ChangeItem, ...]:
    before = known_map(state, scan.fabric)
    return diff(before, shape).changes if before else ()


def _with_memory(state: State, scan: NewScan, shape: Topology, changes: Sequence[ChangeItem]) -> NewScan:
    """The scan with what is made of it for later: its figures, its changes, its devices, and what is missed."""
    devices = [one.guid for one in shape.switches] + [f"{one.guid}/{one.port}" for one in shape.adapters]
    missed: str | None = None
    if shape.complete:
        found = missed_cables(missed_in(state, scan.fabric), known_map(state, scan.fabric), shape)
        missed = _MISSED.dump_json(found).decode()
    return replace(
        scan,
        summary=json.dumps(shape.summary.model_dump()),
        changes=json.dumps([one.model_dump(mode="json") for one in changes]),
        devices=devices,
        missed=missed,
    )


def _tell(state: State, scan: NewScan, number: int, changes: Sequence[ChangeItem]) -> None:
    lines = change_lines(changes)
    more = len(lines) - LIMIT_EVENTS
    last = [f"and {more} more changes: llmgw fabric history {scan.fabric} --scan {number}"] if more > 0 else []
    first = [f"scan {number} partial: {scan.problems.partition(chr(10))[0]}"] if scan.verdict == "partial" else []
    for line in first + lines[:LIMIT_EVENTS] + last:
        record(state, "fabric", scan.fabric, line, by=scan.source)


def missed_in(state: State, name: str) -> tuple[MissedCable, ...]:
    """The cables that are missed in a fabric."""
    return _MISSED.validate_json(missed_text(state, name))


def known_map(state: State, name: str, *, until: int | None = None) -> Topology | None:
    """All that was known of a fabric up to a scan, or is now: its last complete map, and over it what partial scans
    saw since. None where there was no map at all."""
    found = next((one for one in fabrics(state) if one.name == name), None)
    number = until if until is not None else found.newest if found else None
    if number is None:
        return None
    maps = [read_topology(state, one.number) for one in maps_until(state, name, number)]
    return overlaid(maps[0], *maps[1:]) if maps else None


def read_topology(state: State, number: int) -> Topology:
    """The topology document of a scan that was not rejected."""
    return Topology.read(topology_text(state, number) or "", f"scan {number}")


def newest_states(state: State, fabric: StoredFabric) -> str:
    """What iblinkinfo printed beside the newest scan; empty where it was not there."""
    from llmgw.store.maps import scan_texts

    texts = scan_texts(state, fabric.newest) if fabric.newest is not None else None
    return texts[2] if texts else ""
