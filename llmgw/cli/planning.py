"""What a plan is made from: site, maps, facts and what the store remembers, gathered for plan, apply and status."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.base import count, duration
from llmgw.base.bulk import collector_at_rest
from llmgw.cli.asking import ask_nodes
from llmgw.cli.maps import Ground, placing_paths
from llmgw.cli.workspace import CATALOGUE, HOSTS, Workspace, operator
from llmgw.fabric import Paths, lean_paths
from llmgw.observed import Facts
from llmgw.plan import Inputs, Options, Plan, Published, Standing
from llmgw.plan.assess import Assessment, Question, assess
from llmgw.site import Site
from llmgw.store import State, lineage, serial
from llmgw.store.files import read_text
from llmgw.store.journal import specs
from llmgw.store.maps import stored_scan
from llmgw.store.nodes import cordons, load_lean_facts
from llmgw.store.published import endpoints

if TYPE_CHECKING:
    from llmgw.plan.think import Thought


@dataclass(frozen=True, slots=True)
class World:
    """All that a plan depends on, at one moment. `took_s`: how long nodes were asked, None where they were not."""

    site: Site
    fabrics: Mapping[str, Paths]
    facts: Facts
    standing: Standing
    now: datetime
    took_s: float | None = None

    def assess(self, options: Options) -> Assessment:
        """What is known of this world before anything is placed."""
        return assess(Question(self.site, self.fabrics, self.facts, self.standing, options, self.now))

    def think(self, options: Options) -> "Thought":
        """All that is behind a plan of this world, for whoever wants reasons."""
        from llmgw.plan.think import think_on

        return think_on(self.assess(options))

    def as_it_stands(self) -> "Assessment | Thought":
        """What is behind llmgw status: thought out to the end only where some replica needs a place."""
        known = self.assess(Options())
        if known.settled:
            return known
        from llmgw.plan.think import think_on

        return think_on(known)

    def plan(self, options: Options) -> Plan:
        """The plan of this world."""
        return self.plan_of(self.think(options))

    def plan_of(self, thought: "Thought") -> Plan:
        """The plan that was thought out."""
        from llmgw.plan.make import body_of

        return Plan.of(body_of(thought), created=self.now.replace(microsecond=0), by=operator())


def look(
    workspace: Workspace, *, refresh: bool, facts_file: Path | None = None, remembered: bool = False
) -> World:
    """The world now: nodes asked where `refresh`, else as they were last seen, or as a facts document has them.

    Of facts and maps only what a plan goes by: GPUs have no serial numbers here, nodes no adapters and disks.
    `remembered`: the inventory too as it was last read, for commands that must not wait for Ansible.
    """
    site, began = workspace.remembered_site if remembered else workspace.site, time.monotonic()
    if facts_file is not None:
        facts = Facts.read(read_text(facts_file), str(facts_file))
    else:
        if refresh:
            ask_nodes(workspace, site.nodes)
        facts = known_facts(workspace.store, site)
    took_s = time.monotonic() - began if refresh and facts_file is None else None
    store = workspace.store
    return World(
        site,
        placing_paths(store, site.settings, read=lean_paths),
        facts,
        standing(store, facts),
        datetime.now(UTC),
        took_s,
    )


def known_facts(store: State, site: Site) -> Facts:
    """The nodes as they were last seen; on silent ones with what was begun there since, while it can hold a place."""
    facts = load_lean_facts(store, [node.name for node in site.nodes])
    seen = [at for at in facts.silent.values() if at]
    if not seen:
        return facts
    from llmgw.plan.presumed import presume
    from llmgw.store.starts import starts_since

    held = datetime.now(UTC) - timedelta(seconds=site.settings.lost_after_s)
    return presume(facts, starts_since(store, max(held, min(seen))))


@collector_at_rest()
def standing(store: State, facts: Facts) -> Standing:
    """What the store remembers, and the GPUs of what could not be proved gone."""
    file = endpoints(store)
    return Standing(
        lineage=lineage(store),
        serial=serial(store),
        cordons=cordons(store),
        orphans={
            node: tuple(sorted({gpu for orphan in seen.orphans for gpu in orphan.gpus}))
            for node, seen in facts.nodes.items()
            if seen.orphans
        },
        published={
            endpoint.id: Published(endpoint.url, endpoint.state) for endpoint in (file.endpoints if file else ())
        },
        specs=specs(store),
    )


def heading(workspace: Workspace, world: World, inputs: Inputs) -> tuple[str, ...]:
    """The lines over a plan of the world: what it was made from."""
    site = world.site
    parts = Ground(settings=site.settings).parts(world.fabrics)
    maps = [
        _map(workspace.store, name, paths, world.now)
        + (f", nothing is placed by it: {parts[name].why}" if parts[name].why and paths.role != "compute" else "")
        for name, paths in sorted(world.fabrics.items())
    ]
    first = f"catalogue {CATALOGUE} {inputs.catalogue[7:13]} | inventory {HOSTS} {inputs.inventory[7:13]} | " + (
        ", ".join(maps) if maps else "no fabric was ever scanned: every node stands alone"
    )
    answered = len(site.nodes) - len(world.facts.silent)
    asked = (
        f"{answered} of {len(site.nodes)} nodes answered ({world.took_s:.1f} s)"
        if world.took_s is not None
        else f"{count(len(world.facts.nodes), 'node')} as last seen"
    )
    return first, f"{asked}; state serial {world.standing.serial}"


def _map(store: State, name: str, paths: Paths, now: datetime) -> str:
    scan = stored_scan(store, paths.scan)
    age = f", {duration((now - datetime.fromisoformat(scan.at)).total_seconds())} old" if scan else ""
    return f"fabric {name}: scan {paths.scan}{age}" + ("" if paths.complete else ", incomplete")
