"""Leaf domains and pods: which nodes meet under the same leaves, and which leaves meet under the same spines.

Two nodes are in one domain where most of their rails meet: one swapped cable makes no domain of its own. Two
domains are in one pod where most of their leaves meet at spines; in rail-optimised fabrics each rail has spines
of its own, so that a pod is a set of rails' spine groups, as a domain is a set of rails' leaves.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from llmgw.fabric.names import natural_order


def clusters(places: Mapping[str, Sequence[str]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Names that are mostly in the same places, with the places that they share, the largest cluster first.

    A name joins the cluster of which it shares most places, if that is more than half of its own; else it starts
    one. Names of the same places stay together. Deterministic: ties by size, then by natural order of names.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, where in places.items():
        alike[tuple(sorted(where))].append(name)
    found: list[_Cluster] = []
    by_place: dict[str, list[int]] = defaultdict(list)
    order = sorted(alike.items(), key=lambda item: (-len(item[1]), natural_order(min(item[1], key=natural_order))))
    for where, names in order:
        met = Counter(index for place in where for index in by_place[place])
        index = min(met, key=lambda one: (-met[one], one), default=-1)
        if index < 0 or 2 * met[index] <= len(where):
            index = len(found)
            found.append(_Cluster(where))
            for place in dict.fromkeys(where):
                by_place[place].append(index)
        found[index].names.extend(names)
    return [(tuple(sorted(one.names, key=natural_order)), tuple(dict.fromkeys(one.places))) for one in found]


class _Cluster:
    def __init__(self, places: tuple[str, ...]) -> None:
        self.places = places
        self.names: list[str] = []


def components(around: Mapping[str, Iterable[str]], distance: Mapping[str, int]) -> dict[str, str]:
    """Leaves that meet at spines, directly or by way of other leaves, have the same name: that of the first.

    `around` are each switch's neighbours. A leaf without spines is alone.
    """
    found: dict[str, str] = {}
    for first in sorted(leaf for leaf, far in distance.items() if far == 1):
        waiting = [] if first in found else [first]
        while waiting:
            one = waiting.pop()
            found[one] = first
            other = 3 - distance[one]  # leaves are at 1, spines at 2
            waiting += [near for near in around[one] if near not in found and distance[near] == other]
    return found
