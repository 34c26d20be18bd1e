"""A fabric for Slurm: topology.conf(5) and topology.yaml(5), the tree plugin.

A tree has one way up, so that a leaf domain is written as one switch, whatever its number of rails, a pod as one
above it, and the fabric as the root.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from llmgw.base import is_host_name, natural
from llmgw.fabric.fabric import Fabric

_NUMBER_AT_END = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)


def slurm_conf(fabric: Fabric, *, name: str, hosts: Collection[str] = ()) -> str:
    """topology.conf of the tree plugin: a switch for each leaf domain, each pod, and the fabric."""
    lines = [f"# Written by llmgw from the map of fabric {name}."]
    for switch, children in _tree(fabric, name, hosts):
        kind = "Nodes" if switch in fabric.domains else "Switches"
        lines.append(f"SwitchName={switch} {kind}={children}")
    return "\n".join(lines) + "\n"


def slurm_yaml(fabric: Fabric, *, name: str, hosts: Collection[str] = ()) -> str:
    """topology.yaml with one topology of the tree kind, the root first."""
    import yaml  # half the time that importing this package takes

    switches = [
        {"switch": switch, "nodes" if switch in fabric.domains else "children": children}
        for switch, children in reversed(_tree(fabric, name, hosts))
    ]
    topology = [{"topology": name, "cluster_default": True, "tree": {"switches": switches}}]
    head = f"# Written by llmgw from the map of fabric {name}.\n---\n"
    return head + str(yaml.safe_dump(topology, sort_keys=False, width=1 << 20))


def _tree(fabric: Fabric, name: str, hosts: Collection[str]) -> list[tuple[str, str]]:
    """Every switch and its children as a host list, children before parents."""
    wanted = set(hosts)
    pods: dict[str, list[str]] = defaultdict(list)
    tree: list[tuple[str, str]] = []
    for domain in fabric.domains.values():
        nodes = [node for node in domain.nodes if (node in wanted if wanted else is_host_name(node))]
        if nodes:
            pods[domain.pod].append(domain.id)
            tree.append((domain.id, host_list(nodes)))
    tree += [(pod, ",".join(children)) for pod, children in pods.items()]
    if len(pods) > 1:
        root = name if name not in {switch for switch, _ in tree} else f"{name}-root"
        tree.append((root, ",".join(pods)))
    return tree


def host_list(hosts: Iterable[str]) -> str:
    """Slurm's short form of host names: `gpu[01-03,07],login1`. Numbers of one width go together."""
    own = natural(set(hosts))
    parts = {host: match.groups() for host in own if (match := _NUMBER_AT_END.fullmatch(host))}
    padded = {(head, len(digits)) for head, digits in parts.values() if digits[0] == "0"}
    groups: dict[tuple[str, int], list[int]] = {}
    for host in own:
        head, digits = parts.get(host, (host, ""))
        width = len(digits) if (head, len(digits)) in padded else 0 if digits else -1
        numbers = groups.setdefault((head, width), [])
        numbers += [int(digits)] if digits else []
    return ",".join(_group(head, width, numbers) for (head, width), numbers in groups.items())


def _group(head: str, width: int, numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
    return f"{head}[{','.join(parts)}]" if len(numbers) > 1 else f"{head}{''.join(parts)}"
