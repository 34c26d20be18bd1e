"""Publishing everything: endpoints, engine keys, nodes and fabrics, to every router host."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from llmgw.base import ExitCode, count
from llmgw.cli.workspace import Workspace, say
from llmgw.site import Site

if TYPE_CHECKING:
    from llmgw.remote.publish import Delivery
    from llmgw.remote.steps import PublishedText
    from llmgw.serving import NodesFile


def publish_all(workspace: Workspace) -> int:
    """The last generation with its keys, the nodes and every fabric's map; the exit code."""
    delivery = push(workspace, everything(workspace))
    return ExitCode.UNREACHABLE if delivery.failed else ExitCode.DONE


def push(workspace: Workspace, texts: "list[PublishedText]") -> "Delivery":
    """Give the documents to every router host, and say which did not take them."""
    from llmgw.remote.publish import deliver

    with workspace.session() as session:
        delivery = deliver(session, workspace.site, texts)
    for host, why in sorted(delivery.failed.items()):
        say(f"router host {host} did not take what was published: {why.splitlines()[-1] if why else 'no answer'}")
    if delivery.statuses:
        say(f"published {count(len(texts), 'document')} to {count(len(delivery.statuses), 'router host')}")
    return delivery


def everything(workspace: Workspace) -> "list[PublishedText]":
    """All documents that are published, keys before endpoints."""
    from llmgw.cli.wiring import StoreRegistry
    from llmgw.remote.publish import endpoint_texts, engine_keys_of
    from llmgw.store.published import endpoints

    file = endpoints(workspace.store)
    registry = StoreRegistry(workspace.store, workspace.site)
    texts = endpoint_texts(file, engine_keys_of(registry, file)) if file else []
    return [*client_keys(workspace), *texts, *fleet(workspace)]


def client_keys(workspace: Workspace) -> "list[PublishedText]":
    """keys.json with the digests of the keys that are good; nothing before the first key, so that all are let in."""
    from llmgw.remote.steps import PublishedText
    from llmgw.serving import KeysFile
    from llmgw.store.keys import all_keys

    kept = all_keys(workspace.store)
    good = tuple(one.key for one in kept if not one.revoked_at)
    file = KeysFile(required=workspace.settings.router.keys_required, keys=good)
    return [PublishedText(name="keys.json", text=file.text())] if kept else []


def fleet(workspace: Workspace) -> "list[PublishedText]":
    """nodes.json and fabrics/NAME.json, by what the store knows."""
    from llmgw.remote.steps import PublishedText
    from llmgw.store.maps import fabrics, topology_text

    texts = [PublishedText(name="nodes.json", text=nodes_file(workspace, workspace.site).text())]
    for fabric in fabrics(workspace.store):
        topology = topology_text(workspace.store, fabric.best) if fabric.best is not None else None
        if topology:
            texts.append(PublishedText(name=f"fabrics/{fabric.name}.json", text=topology))
    return texts


def nodes_file(workspace: Workspace, site: Site) -> "NodesFile":
    """The nodes as dashboards show them."""
    from llmgw.cli.maps import placing_paths
    from llmgw.cli.nodes import node_state
    from llmgw.serving import FleetNode, NodesFile
    from llmgw.store.nodes import cordons, load_facts

    now = datetime.now(UTC)
    facts, out = load_facts(workspace.store, [node.name for node in site.nodes]), cordons(workspace.store)
    leaves = {
        name: paths.domains[path.domain].name
        for paths in placing_paths(workspace.store, site.settings).values()
        if paths.role == "compute"
        for name, path in paths.nodes.items()
        if path.domain in paths.domains
    }
    found = []
    for node in site.nodes:
        seen = facts.nodes.get(node.name)
        running = [run for run in seen.runs if run.state != "exited"] if seen else []
        state = node_state(node.name, facts, out, site, now=now)
        found.append(
            FleetNode(
                name=node.name,
                state="unreachable" if state == "unknown" else state,
                gpus=len(seen.gpus) if seen else 0,
                gpus_used=sum(len(run.gpus) for run in running),
                replicas=tuple(run.replica for run in running),
                leaf=leaves.get(node.name, ""),
                seen_at=seen.seen_at if seen else None,
            )
        )
    return NodesFile(written=now.replace(microsecond=0), nodes=tuple(found))
