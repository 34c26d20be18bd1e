"""Whose adapter is it? By its GUID where facts know it, by its description's claim otherwise.

Facts (what nodes reported of their own adapters) win. A description is believed only where nothing speaks
against it: not where the host's adapters are known and are others, and not where two devices claim one name.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from llmgw.base import is_host_name
from llmgw.fabric.fabric import Finding, Severity, Standing
from llmgw.fabric.names import claim


@dataclass(frozen=True, slots=True)
class KnownPort:
    """A port that a node reported as its own: facts' adapters, by port GUID. `pci` may be empty."""

    node: str
    device: str
    pci: str = ""


class Owner(Struct, frozen=True, gc=False):
    """What is known of an adapter's node. `node` is None unless `standing` is FACTS or NAMED."""

    node: str | None
    claims: str | None
    device: str
    pci: str
    standing: Standing


class Seen(Struct, frozen=True, gc=False):
    """An adapter as it was seen: device GUID, port, port GUID, and its own description (not a map's)."""

    guid: str
    port: int
    port_guid: str
    description: str


class Inventory:
    """The host names of a site, found in any way of writing them: case, and with or without the domain."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._names = {host.lower(): host for host in hosts}
        short: dict[str, set[str]] = defaultdict(set)
        for host in hosts:
            short[host.lower().partition(".")[0]].add(host)
        self._short = {name: next(iter(found)) for name, found in short.items() if len(found) == 1}

    def __call__(self, word: str) -> str | None:
        """The inventory's name of the host, None for a stranger."""
        word = word.lower()
        return self._names.get(word) or self._short_of(word)

    def _short_of(self, word: str) -> str | None:
        head, dot, _ = word.partition(".")
        found = self._short.get(head)
        if found is None or (dot and not is_host_name(word)):
            return None
        return found if not dot or "." not in found else None


def owners(
    adapters: Sequence[Seen], hosts: Collection[str], ports: Mapping[str, KnownPort]
) -> tuple[list[Owner], list[Finding]]:
    """Each adapter's owner, in the order given, and what does not fit: impostors, names claimed twice, renames.

    `ports` is by port GUID. `hosts` are the inventory's names; a host that it does not have is named all the
    same (a login node, a storage server).
    """
    inventory = Inventory(hosts) if hosts else None
    reported = {port.node for port in ports.values()}
    found = [_owner(seen, inventory, reported, ports) for seen in adapters]
    twice = _claimed_twice(adapters, found)
    result = [_ambiguous(owner) if owner.claims in twice else owner for owner in found] if twice else found
    odd = [(seen, owner) for seen, owner in zip(adapters, result, strict=True) if owner.claims != owner.node]
    return result, [*_impostors(odd), *_renamed(odd), *_twice(odd)]


_Odd = Sequence[tuple[Seen, Owner]]


def _owner(seen: Seen, inventory: Inventory | None, reported: set[str], ports: Mapping[str, KnownPort]) -> Owner:
    claimed = claim(seen.description, inventory)
    host, device = claimed.host, claimed.device
    known = ports.get(seen.port_guid) if ports else None
    if known:
        return Owner(known.node, host, known.device or device, known.pci, Standing.FACTS)
    if host is None:
        return Owner(None, None, device, "", Standing.UNNAMED)
    if host in reported:
        return Owner(None, host, device, "", Standing.IMPOSTOR)
    return Owner(host, host, device, "", Standing.NAMED)


def _claimed_twice(adapters: Sequence[Seen], found: Sequence[Owner]) -> set[str]:
    """Hosts of which two devices claim to be the same one; a claim without a device can be no such proof."""
    claimed: dict[tuple[str, str, int], str] = {}
    twice: set[str] = set()
    named = Standing.NAMED
    for seen, owner in zip(adapters, found, strict=True):
        if owner.standing is named and owner.node and owner.device:
            first = claimed.setdefault((owner.node, owner.device, seen.port), seen.guid)
            if first != seen.guid:
                twice.add(owner.node)
    return twice


def _ambiguous(owner: Owner) -> Owner:
    if owner.standing is not Standing.NAMED:
        return owner
    return Owner(None, owner.claims, owner.device, "", Standing.AMBIGUOUS)


def _impostors(odd: _Odd) -> list[Finding]:
    return [
        Finding(
            Severity.ERROR,
            "impostor",
            f"{seen.guid} calls itself {owner.claims} {owner.device}, but {owner.claims} has reported its adapters"
            " and this is none of them: an impostor, or an adapter that was replaced since",
            seen.guid,
            seen.port,
        )
        for seen, owner in odd
        if owner.standing is Standing.IMPOSTOR
    ]


def _renamed(odd: _Odd) -> list[Finding]:
    return [
        Finding(
            Severity.WARNING,
            "wrong name",
            f"{seen.guid} calls itself {owner.claims}, but is {owner.device} of {owner.node}",
            seen.guid,
            seen.port,
            owner.node or "",
        )
        for seen, owner in odd
        if owner.standing is Standing.FACTS and owner.claims
    ]


def _twice(odd: _Odd) -> list[Finding]:
    """One finding for each host name that is claimed twice."""
    claims: dict[str, list[Seen]] = defaultdict(list)
    for seen, owner in odd:
        if owner.standing is Standing.AMBIGUOUS and owner.claims:
            claims[owner.claims].append(seen)
    return [
        Finding(
            Severity.WARNING,
            "name claimed twice",
            f"{len(seen)} adapters call themselves {host}, two of them by the same device name:"
            f" {', '.join(sorted(one.guid for one in seen)[:4])}",
            seen[0].guid,
        )
        for host, seen in sorted(claims.items())
    ]
