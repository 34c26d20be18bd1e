"""What people call switches, domains and pods: short, unique, and the same from scan to scan."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from llmgw.fabric.names import SwitchName, natural_order, switch_name
from llmgw.fabric.paths import Domain as KnownDomain
from llmgw.fabric.scan import Device

_MAKER = re.compile(r"(?:\s*-)?\s+(?:Mellanox Technologies|NVIDIA)\s*$")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._]+", re.ASCII)


def switch_labels(names: Mapping[str, str]) -> dict[str, str]:
    """A label for each switch, unique among them, from its description; both by GUID.

    `LG12-01` for the only chip of a managed switch, `dir1 L01/U1` for one of several; chips that all have the name
    of their model (`Quantum`) get the last six digits of their GUID behind it.
    """
    parts = {guid: switch_name(name) for guid, name in names.items()}
    chips = Counter(name.system for name in parts.values() if name)
    plain = {guid: _label(name, parts[guid], chips) or guid for guid, name in names.items()}
    count = Counter(plain.values())
    return {guid: label if count[label] == 1 else f"{label} {guid[-6:]}" for guid, label in plain.items()}


def _label(description: str, name: SwitchName | None, chips: Mapping[str, int]) -> str:
    if name is None:
        return _MAKER.sub("", description).strip()
    return f"{name.system} {name.chip}".strip() if chips[name.system] > 1 else name.system


def chassis_of(switches: Sequence[Device]) -> dict[str, str]:
    """The system of each switch that is one chip of several, by GUID: directors, and boxes with several chips.

    Chips of one system share the system image GUID, or the system's name and model.
    """
    together: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in switches:
        if device.system:
            together["guid", device.system].append(device)
        if name := switch_name(device.name):
            together["name", f"{name.system}:{name.model}"].append(device)
    found: dict[str, str] = {}
    for (_, key), chips in together.items():
        if len(chips) > 1:
            named = next((name.system for chip in chips if (name := switch_name(chip.name))), key)
            for chip in chips:
                found.setdefault(chip.guid, named)
    return found


def domain_ids(
    leaf_sets: Sequence[Sequence[str]], labels: Mapping[str, str], earlier: Mapping[str, KnownDomain]
) -> list[str]:
    """An id for each set of leaves: that of the earlier domain which it mostly is, else its first leaf's label.

    Of the leaves those that fewest sets share come first, then natural order.
    """
    ids = _kept(leaf_sets, {name: domain.leaves for name, domain in earlier.items()})
    shared = Counter(leaf for leaves in leaf_sets for leaf in leaves)
    taken = {one for one in ids if one} | set(earlier)
    for index, leaves in enumerate(leaf_sets):
        if ids[index] is None:
            first = min(leaves, key=lambda leaf: (shared[leaf], natural_order(labels[leaf]), leaf), default="")
            ids[index] = _free(_slug(labels.get(first, "")) or f"leaf-{first[-6:]}", taken)
    return [one or "" for one in ids]


def pod_ids(leaf_sets: Sequence[Sequence[str]], earlier: Mapping[str, KnownDomain]) -> list[str]:
    """An id for each pod by its leaves: that of the earlier pod which it mostly is, else pod-1, pod-2…"""
    known: dict[str, set[str]] = defaultdict(set)
    for domain in earlier.values():
        known[domain.pod].update(domain.leaves)
    ids = _kept(leaf_sets, known)
    taken = {one for one in ids if one} | set(known)
    number = 1
    for index, one in enumerate(ids):
        if one is None:
            while f"pod-{number}" in taken:
                number += 1
            ids[index] = f"pod-{number}"
            taken.add(f"pod-{number}")
    return [one or "" for one in ids]


def _kept(leaf_sets: Sequence[Sequence[str]], known: Mapping[str, Iterable[str]]) -> list[str | None]:
    """For each set the known name with which it has most leaves in common, each name given once."""
    of_leaf: dict[str, list[str]] = defaultdict(list)
    for name, leaves in known.items():
        for leaf in leaves:
            of_leaf[leaf].append(name)
    scores = []
    for index, leaves in enumerate(leaf_sets):
        met = Counter(name for leaf in leaves for name in of_leaf[leaf])
        scores += [(-count, natural_order(name), index, name) for name, count in met.items()]
    ids: list[str | None] = [None] * len(leaf_sets)
    given: set[str] = set()
    for _, _, index, name in sorted(scores):
        if ids[index] is None and name not in given:
            ids[index] = name
            given.add(name)
    return ids


def _slug(label: str) -> str:
    """A label as an id: letters, digits, dots, underscores and dashes, 40 at most."""
    return _NOT_IN_IDS.sub("-", label).strip("-.")[:40].rstrip("-.")


def _free(wanted: str, taken: set[str]) -> str:
    one, number = wanted, 2
    while one in taken:
        one, number = f"{wanted}-{number}", number + 1
    taken.add(one)
    return one
