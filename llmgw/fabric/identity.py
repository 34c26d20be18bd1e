"""Which physical fabric is this? Switches tell: a scan of a known fabric sees switches that its maps have.

Names come from the site's settings where they say from where a fabric is scanned, and are made up otherwise; a
name once given stays with the switches, whatever is scanned from where.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llmgw.fabric.fabric import Fabric


@dataclass(frozen=True, slots=True)
class ScanSource:
    """A port to scan from, or that was scanned from. Empty `device`: the tool's own choice (`port` is 0 then)."""

    node: str
    device: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.device}/{self.port}" if self.device else self.node


@dataclass(frozen=True, slots=True)
class Identity:
    """A fabric's name. `others` are known fabrics that have switches in this scan too: they were joined by a
    cable, or the switches were moved. `was` is the name that a known fabric had so far, where it gets another."""

    name: str
    is_new: bool
    others: tuple[str, ...] = ()
    was: str = ""


def identify(
    fabric: Fabric,
    known: Mapping[str, Collection[str]],
    *,
    source: ScanSource | None = None,
    settings: Mapping[str, Sequence[str]] | None = None,
    inside: Collection[ScanSource] = (),
) -> Identity:
    """The name of a scanned fabric.

    `known` has each remembered fabric's switch GUIDs, by name. `settings` has each configured fabric's sources as
    they are written (`NODE`, `NODE:DEVICE/PORT`). `inside` are the inventory's ports that this scan has seen. In this
    order: the known fabric that shares most switches, of equals a configured one; the configured one that names a
    port inside or this source, if that name is free; the only configured one that is free, if it has no sources; a
    made-up name. A known fabric that is not configured takes the name of one that names a port of it, if it is free.
    """
    named = settings or {}
    seen = fabric.switches.keys()
    shared = {name: len(seen & set(guids)) for name, guids in known.items()}
    ranked = sorted(
        (name for name in known if shared[name]), key=lambda name: (-shared[name], name not in named, name)
    )
    free = {name: sources for name, sources in named.items() if name not in known}
    claimed = _claimed(free, source, inside)
    if ranked:
        old, others = ranked[0], tuple(ranked[1:])
        if claimed and old not in named:
            return Identity(claimed, is_new=False, others=others, was=old)
        return Identity(old, is_new=False, others=others)
    if claimed:
        return Identity(claimed, is_new=True)
    open_names = [name for name, sources in free.items() if not sources]
    if len(free) == 1 and open_names:
        return Identity(open_names[0], is_new=True)
    return Identity(made_up_name(seen, {*known, *named}), is_new=True)


def _claimed(
    settings: Mapping[str, Sequence[str]], source: ScanSource | None, inside: Collection[ScanSource]
) -> str:
    """The configured name of a fabric: by a port of it that the settings write out, wherever it was scanned from;
    else by the node that it was scanned from, where they name that alone. Empty where neither is."""
    ports = {*inside, source}
    written = [(name, parse_source(one)) for name, sources in settings.items() for one in sources]
    for name, wanted in written:
        if wanted.device and wanted in ports:
            return name
    for name, wanted in written:
        if source and not wanted.device and wanted.node == source.node:
            return name
    return ""


def parse_source(written: str) -> ScanSource:
    """`NODE` or `NODE:DEVICE/PORT` as a source; a port left out is 1."""
    node, _, rest = written.partition(":")
    device, _, port = rest.partition("/")
    return ScanSource(node, device, (int(port) if port.isdecimal() else 1) if device else 0)


def made_up_name(switches: Collection[str], taken: Collection[str]) -> str:
    """`ib-` and the last six digits of the lowest switch GUID, with more digits where that is taken."""
    lowest = min(switches, default="0" * 16)
    for digits in range(6, 17):
        if (name := f"ib-{lowest[-digits:]}") not in taken:
            return name
    return f"ib-{lowest}-{len(taken)}"
