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
    cable, or the switches were moved."""

    name: str
    is_new: bool
    others: tuple[str, ...] = ()


def identify(
    fabric: Fabric,
    known: Mapping[str, Collection[str]],
    *,
    source: ScanSource | None = None,
    settings: Mapping[str, Sequence[str]] | None = None,
) -> Identity:
    """The name of a scanned fabric.

    `known` has each remembered fabric's switch GUIDs, by name. `settings` has each configured fabric's sources as
    they are written (`NODE`, `NODE:DEVICE/PORT`). In this order: the known fabric that shares most switches; the
    configured one with this source, if that name is free; the only configured one that is free, if it has no
    sources; a made-up name.
    """
    seen = fabric.switches.keys()
    shared = {name: len(seen & set(guids)) for name, guids in known.items()}
    ranked = sorted((name for name in known if shared[name]), key=lambda name: (-shared[name], name))
    if ranked:
        return Identity(ranked[0], is_new=False, others=tuple(ranked[1:]))
    free = {name: sources for name, sources in (settings or {}).items() if name not in known}
    for name, sources in free.items():
        if source and any(_is_source(written, source) for written in sources):
            return Identity(name, is_new=True)
    open_names = [name for name, sources in free.items() if not sources]
    if len(free) == 1 and open_names:
        return Identity(open_names[0], is_new=True)
    return Identity(made_up_name(seen, {*known, *(settings or {})}), is_new=True)


def _is_source(written: str, source: ScanSource) -> bool:
    wanted = parse_source(written)
    return wanted.node == source.node and (
        not wanted.device or (wanted.device, wanted.port) == (source.device, source.port)
    )


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
