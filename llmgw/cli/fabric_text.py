"""A map as text for a terminal."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from llmgw.base import UsageError, count, natural_key, near, visible
from llmgw.cli.output import Column
from llmgw.fabric import Fabric, Severity, Tier, host_list
from llmgw.fabric.findings import end_words
from llmgw.store.maps import StoredScan

CABLES = (
    Column("PORT", "name"),
    Column("TO", "to"),
    Column("RATE", "rate"),
    Column("RAIL", "rail"),
    Column("NOTE", "note"),
    Column("GUID", "guid", wide=True),
    Column("TO GUID", "to_guid", wide=True),
)


def map_lines(fabric: Fabric, scan: StoredScan, *, names: int) -> Iterator[str]:
    """The map: its switches by tier, its domains with their nodes (`names` characters of them), and what was found
    wrong, worst first."""
    verdict = fabric.verdict
    state = "complete" if verdict.state == "complete" else f"{verdict.state}: {visible(verdict.reason)}"
    yield f"{scan.fabric}: scan {scan.number} of {scan.at} from {visible(scan.source)}; {state}"
    tiers = Counter(switch.tier for switch in fabric.switches.values())
    words = [f"{tiers[tier]} {tier.value}" for tier in Tier if tiers[tier]]
    rails = f"{fabric.rails} rails" if fabric.rails else "not rail-aligned"
    yield (
        f"{count(len(fabric.switches), 'switch', 'switches')} ({', '.join(words)}); {rails}; "
        f"{count(len(fabric.adapters), 'adapter')} of {count(len(fabric.nodes), 'node')}; "
        f"{count(len(fabric.cables), 'cable')}"
    )
    yield from _rates(fabric)
    yield ""
    width = max((len(domain.name) for domain in fabric.domains.values()), default=0)
    for domain in fabric.domains.values():
        nodes = host_list(domain.nodes)
        shown = nodes if len(nodes) <= names else nodes[: names - 1] + "…"
        yield visible(
            f"  {domain.name:<{min(width, 40)}}  {domain.pod:<8} {count(len(domain.nodes), 'node'):>10}  {shown}"
        )
    found = [one for one in fabric.findings if one.severity is not Severity.NOTE]
    yield ""
    yield f"{count(len(found), 'finding')}:" if found else "Nothing is wrong."
    for one in sorted(found, key=lambda one: list(Severity).index(one.severity)):
        yield f"  {one.severity}: {one.kind}: {visible(one.text)}"


def _rates(fabric: Fabric) -> Iterator[str]:
    rates = Counter(cable.rate for cable in fabric.cables)
    short = sum(cable.degraded for cable in fabric.cables)
    listed = ", ".join(f"{number} at {visible(rate)}" for rate, number in rates.most_common())
    yield f"cables: {listed or 'none'}; {short} trained short"


def cable_rows(fabric: Fabric, name: str) -> list[dict[str, Any]]:
    """Every cable of a node, by name, or of a switch, by label or GUID: what each of its ports goes to.

    UsageError, with near names, where neither is there.
    """
    own = _ports_of(fabric, name)
    rows = []
    for cable in fabric.cables:
        ends = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        for near_end, far in (ends, ends[::-1]):
            if near_end[0] in own:
                adapter = fabric.adapters.get(near_end) or fabric.adapters.get(far)
                short = f"short: its kind runs at {cable.expected}" if cable.degraded else ""
                off = "off its rail" if adapter and adapter.off_rail else ""
                rows.append(
                    {
                        "name": end_words(fabric, *near_end),
                        "to": end_words(fabric, *far),
                        "rate": cable.rate,
                        "rail": adapter.rail if adapter else None,
                        "note": "; ".join(filter(None, (short, off))),
                        "guid": near_end[0],
                        "to_guid": far[0],
                        "expected": cable.expected,
                    }
                )
    return sorted(rows, key=lambda row: natural_key(str(row["name"])))


def _ports_of(fabric: Fabric, name: str) -> set[str]:
    """The GUIDs of a node's adapters, or of a switch."""
    if name in fabric.nodes:
        return {adapter.guid for adapter in fabric.nodes[name]}
    labels = {switch.label: guid for guid, switch in fabric.switches.items()}
    guid = labels.get(name, name.lower().removeprefix("0x").rjust(16, "0"))
    if guid in fabric.switches:
        return {guid}
    close = near(name, [*fabric.nodes, *labels])
    raise UsageError(
        f"there is no node or switch {name} in this fabric",
        hint=f"did you mean {' or '.join(close)}?" if close else "",
    )
