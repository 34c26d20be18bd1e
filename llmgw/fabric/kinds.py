"""What a cable's kind runs at, and so which cables trained short of it.

Devices alone do not tell: storage servers and compute nodes with equal adapters may be cabled at different rates
by design. A kind is the models of both ends, with the switch's number of ports (a split switch halves them), the
class of the host or the tiers of the switches. Its rate is the one that most of its cables trained at; of two as
common, the faster. One or two cables make no majority: they are measured by what both devices can reach.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from llmgw.fabric.pairs import Pair
from llmgw.fabric.rates import KNOWN, gbps, reachable, slower
from llmgw.fabric.scan import Device, Kind

_MAJORITY = 3


class Measured(NamedTuple):
    """A cable's rate (the slower of its ends), what is expected of its kind, and whether it falls short."""

    rate: str
    expected: str
    degraded: bool


def measure(
    pairs: Sequence[Pair],
    devices: Iterable[Device],
    *,
    class_of: Mapping[str, str],
    tier_of: Mapping[str, int],
) -> list[Measured]:
    """Each cable against its kind. By GUID: the class of an adapter's host, and a switch's distance.

    A rate that is not known, at both ends or in its word, is never short.
    """
    traits, reach = _traits(devices, class_of, tier_of)
    keys = [
        (traits[a.guid], traits[b.guid], one.rate if one.rate is other.rate else slower(one.rate, other.rate))
        for a, one, b, other in pairs
    ]
    alike = Counter(keys)
    kinds: dict[frozenset[int], Counter[str]] = defaultdict(Counter)
    for (one, other, rate), number in alike.items():
        kinds[frozenset((one, other))][rate] += number
    measured = {
        (one, other, rate): _against(rate, _best(reach[one], reach[other]), kinds[frozenset((one, other))])
        for one, other, rate in alike
    }
    return [measured[key] for key in keys]


def _traits(
    devices: Iterable[Device], class_of: Mapping[str, str], tier_of: Mapping[str, int]
) -> tuple[dict[str, int], list[str | None]]:
    """What makes devices equal for the kind of their cables, numbered: by GUID; and what each number reaches."""
    numbers: dict[Hashable, int] = {}
    traits: dict[str, int] = {}
    reach: list[str | None] = []
    switch = Kind.SWITCH
    for device in devices:
        guid = device.guid
        if device.kind is switch:
            trait: Hashable = (device.model, device.ports, tier_of.get(guid, 0))
        else:
            trait = (device.model, class_of.get(guid, ""))
        number = traits[guid] = numbers.setdefault(trait, len(numbers))
        if number == len(reach):
            reach.append(reachable(device.model, device.ports))
    return traits, reach


def _best(one: str | None, other: str | None) -> str | None:
    """The rate that both devices reach; None where either is not known."""
    return slower(one, other) if one and other else None


def _against(rate: str, best: str | None, kind: Mapping[str, int]) -> Measured:
    """`kind` counts the cables of this kind at each rate; `best` is what their devices reach."""
    own = gbps(rate)
    if own is None:
        return Measured(rate, rate, degraded=False)
    known = {other: number for other, number in kind.items() if other in KNOWN}
    if sum(known.values()) < _MAJORITY:
        expected = best if best and (gbps(best) or 0.0) > own else rate
    else:
        expected = max(known, key=lambda other: (known[other], gbps(other) or 0.0, other))
    return Measured(rate, expected, own < (gbps(expected) or 0.0))
