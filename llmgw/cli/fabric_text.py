"""A map as text for a terminal."""

from collections import Counter
from collections.abc import Iterator

from llmgw.base import count, visible
from llmgw.fabric import Fabric, Severity, Tier
from llmgw.store.maps import StoredScan


def map_lines(fabric: Fabric, scan: StoredScan) -> Iterator[str]:
    """The map: its switches by tier, its domains, and what was found wrong, worst first."""
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
    for domain in fabric.domains.values():
        leaves = " ".join(
            visible(fabric.switches[guid].label) for guid in domain.leaves if guid in fabric.switches
        )
        yield f"  {visible(domain.name):<20} {domain.pod:<10} {count(len(domain.nodes), 'node'):<10} {leaves}"
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
