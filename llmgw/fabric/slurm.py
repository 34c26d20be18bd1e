"""A fabric for Slurm: topology.conf(5) and topology.yaml(5), the tree plugin.

A tree has one way up, so that a leaf domain is written as one switch, whatever its number of rails, a pod as one
above it, and the fabric as the root.
"""

from collections import defaultdict
from collections.abc import Collection

from llmgw.base import is_host_name
from llmgw.fabric.fabric import Fabric
from llmgw.fabric.hostlists import host_list


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
