"""Whole sites in memory, made from a few words: nodes under leaves, a catalogue, what runs. For any test that
needs a Site, the maps of its fabrics, facts and a standing.

    world = World.of({"leaf-a": ["a1", "a2"], "leaf-b": ["b1"]})
    world.model("chat", shapes=["1x8"], replicas=2)
    world.run("chat/0", ["a1"])
    body = world.plan()
    later = world.applied(body)

`World.read` makes one from the mapping of a case file; docs/testing says which keys it has.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Self

from llmgw.engines import ENGINES
from llmgw.fabric import Domain, NodePath, Paths, Rail, ShortCable
from llmgw.observed import Facts, Gpu, GpuProcess, InstalledEngine, NodeFacts, Orphan, Run, Weights
from llmgw.plan import Body, Cordon, Op, Options, Plan, Published, Standing, make_plan
from llmgw.plan.assess import Assessment, Question, assess
from llmgw.plan.copies import url
from llmgw.plan.spec import Spec, spec_of
from llmgw.plan.think import Thought, think_on
from llmgw.site import (
    Catalogue,
    Engine,
    EngineVersion,
    FabricSettings,
    HostVariables,
    InventoryHost,
    PortRange,
    Site,
    SiteSettings,
    address,
    wanted_replicas,
)

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
H100, H200, A100 = ("NVIDIA H100 80GB HBM3", 81559), ("NVIDIA H200", 143771), ("NVIDIA A100-SXM4-80GB", 81920)
CARDS = {"H100": H100, "H200": H200, "A100": A100}
VERSIONS = {Engine.LLAMA_CPP: ("b10434", "b11434"), Engine.VLLM: ("0.32.0", "0.33.0"), Engine.SGLANG: ("0.5.23",)}


def guid(name: str) -> str:
    """A GUID for a name, the same each time."""
    return sha256(name.encode()).hexdigest()[:16]


@dataclass
class FakeNode:
    """One node. `short`: so many of its cables trained short. `silent_s`: for so long it has not answered; -1: it
    never did. `foreign`: GPU index → the name of a program that holds it. `ib`: its adapters per fabric."""

    name: str
    gpus: int = 8
    card: str = "H100"
    labels: tuple[str, ...] = ()
    short: int = 0
    off_rail: bool = False
    cordon: str = ""
    drain: str = ""
    silent_s: int | None = None
    slurm: str = ""
    foreign: dict[int, str] = field(default_factory=dict)
    orphans: tuple[int, ...] = ()
    listen: tuple[int, ...] = ()
    ports: str = ""
    ib: int = 2
    numa: int = 4  # GPUs on one NUMA node; 0: not known
    nvlink: bool = True
    engines: bool = True
    lacks: tuple[str, ...] = ()  # models whose weights are not there
    env: dict[str, str] = field(default_factory=dict)
    socket: str = ""


@dataclass
class FakeRun:
    """One copy of a replica. `gpus` by node, `ports` by rank, `ended`: ranks that have ended."""

    replica: str
    nodes: list[str]
    gpus: list[tuple[int, ...]]
    ports: list[tuple[int, int]]
    spec: str
    plan: str = "000000000000"
    action: str = "a1"
    ended: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    started_s: int = 3600


@dataclass
class World:
    """A site in the making. `fabrics`: fabric → pod → leaf → nodes."""

    fabrics: dict[str, dict[str, dict[str, list[str]]]]
    nodes: dict[str, FakeNode] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[FakeRun] = field(default_factory=list)
    published: dict[str, Published] = field(default_factory=dict)
    specs: dict[str, Spec] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    serial: int = 41
    scan: int = 8812
    incomplete: tuple[str, ...] = ()

    # Making one

    @classmethod
    def of(cls, leaves: Mapping[str, Sequence[str]], *, pods: Mapping[str, Sequence[str]] | None = None) -> Self:
        """One compute fabric `ib0` with these leaves, all in one pod where `pods` names none."""
        if pods is None:
            pods = {"pod-0": list(leaves)}
        return cls({"ib0": {pod: {leaf: list(leaves[leaf]) for leaf in of} for pod, of in pods.items()}})._filled()

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """The world of a case file."""
        known = {"fabrics", "leaves", "pods", "nodes", "models", "runs", "published", "roles", "settings", "off_map",
                 "incomplete", "options", "why", "each"}  # fmt: skip
        assert set(written) <= known, f"unknown keys {set(written) - known}"
        if "leaves" in written:
            world = cls.of(_node_lists(written["leaves"]), pods=written.get("pods"))
        else:
            fabrics = {
                name: {pod: _node_lists(leaves) for pod, leaves in pods.items()}
                for name, pods in written["fabrics"].items()
            }
            world = cls(fabrics)._filled()
        world.roles = dict(written.get("roles", {}))
        world.settings = dict(written.get("settings", {}))
        world.incomplete = tuple(written.get("incomplete", ()))
        for name in written.get("off_map", ()):
            world.nodes[name] = FakeNode(name)
        for node in world.nodes.values():
            for key, value in written.get("each", {}).items():
                setattr(node, key, value)
        for name, changes in written.get("nodes", {}).items():
            for key, value in changes.items():
                assert hasattr(world.nodes[name], key), key
                setattr(world.nodes[name], key, tuple(value) if isinstance(value, list) else value)
        for name, model in written.get("models", {}).items():
            world.model(name, **model)
        for run in written.get("runs", ()):
            world.run(**run)
        for name, (where, state) in written.get("published", {}).items():
            world.published[name] = Published(where, state)
        return world

    def _filled(self) -> Self:
        for pods in self.fabrics.values():
            for leaves in pods.values():
                for nodes in leaves.values():
                    for name in nodes:
                        self.nodes.setdefault(name, FakeNode(name))
        return self

    def model(
        self,
        name: str,
        *,
        shapes: Sequence[str] = ("1x1",),
        replicas: int | dict[str, int] = 1,
        engine: str = "vllm",
        version: str = "",
        profiles: dict[str, Any] | None = None,
        source: dict[str, Any] | None = None,
        **others: Any,
    ) -> Self:
        """Add a model. Keys of Model go there; keys of Profile to its one profile `main` unless `profiles` is given."""
        of_model = {
            key: others.pop(key)
            for key in ("aliases", "min_ready", "priority", "default_profile")
            if key in others
        }
        if profiles is None:
            nodes, gpus = (int(part) for part in shapes[0].split("x"))
            one = {
                "engine": engine,
                "version": version or VERSIONS[Engine(engine)][-1],
                "tensor_parallel": gpus,
                "pipeline_parallel": nodes,
                "shapes": list(shapes),
                **others,
            }
            profiles = {"main": one}
        source = {"path": f"/models/{name}", **(source or {})}
        self.models[name] = {"source": source, "replicas": replicas, "profiles": profiles, **of_model}
        return self

    def run(
        self,
        replica: str,
        nodes: Sequence[str],
        *,
        gpus: Sequence[int] | int | None = None,
        port: int | None = None,
        spec: str = "",
        published: str | None = "ready",
        plan: str = "000000000000",
        action: str = "",
        ended: Sequence[int] = (),
        gone: Sequence[int] = (),
        was: Mapping[str, Any] | None = None,
        started_s: int = 3600,
    ) -> Self:
        """Let a copy run: on the lowest free GPUs of its nodes, as the catalogue says unless `spec` is something
        else; `was` gives fields of the spec that it was started with. `published`: as what, None for not at all."""
        model, _, _ = replica.partition("/")
        model, _, profile = model.partition(":")
        known = self.catalogue().models.get(model)
        if known and not spec:
            own = spec_of(model, known, profile or known.default)
            if was:
                own = own.model_copy(update={k: tuple(v) if isinstance(v, list) else v for k, v in was.items()})
                self.specs[own.mark()] = own
            spec = own.mark()
        number = gpus if isinstance(gpus, int) else None
        if gpus is None:
            shape = known.profiles[profile or known.default].shapes[0] if known else None
            number = shape.gpus if shape else 1
        taken = [self._lowest(node, number) if number is not None else tuple(gpus) for node in nodes]  # type: ignore[arg-type]
        here = known.profiles[profile or known.default] if known else None
        needed = [ENGINES[here.engine].ports_needed(rank, len(nodes)) if here else 1 for rank in range(len(nodes))]
        ports = [
            (self._port(node, row) if port is None else port, row) for node, row in zip(nodes, needed, strict=True)
        ]
        number_of_run = len(self.runs) + 1
        self.runs.append(
            FakeRun(replica, list(nodes), taken, ports, spec or "sha256:" + "0" * 64, plan,
                    action or f"a{number_of_run}", tuple(ended), tuple(gone), started_s)
        )  # fmt: skip
        if published:
            where = url(self.address(nodes[0]), ports[0][0])
            self.published[replica] = Published(where, published)  # type: ignore[arg-type]
        return self

    def _lowest(self, node: str, number: int) -> tuple[int, ...]:
        held = {
            gpu
            for run in self.runs
            for name, gpus in zip(run.nodes, run.gpus, strict=True)
            if name == node
            for gpu in gpus
        }
        free = [
            gpu for gpu in range(self.nodes[node].gpus) if gpu not in held and gpu not in self.nodes[node].foreign
        ]
        assert len(free) >= number, f"{node} has no {number} free GPUs"
        return tuple(free[:number])

    def _port(self, node: str, row: int) -> int:
        used = set(self.nodes[node].listen)
        for run in self.runs:
            for name, (port, ports) in zip(run.nodes, run.ports, strict=True):
                used |= set(range(port, port + ports)) if name == node else set()
        return next(port for port in range(8000, 8100) if not used & set(range(port, port + row)))

    # What the product is given

    def catalogue(self) -> Catalogue:
        return Catalogue.model_validate({"models": self.models})

    def site(self) -> Site:
        settings = SiteSettings.model_validate(
            {
                "name": "fake",
                "ports": "8000-8099",
                "fabrics": {name: FabricSettings(role=self.roles.get(name, "compute")) for name in self.fabrics},  # type: ignore[arg-type]
                "engines": {
                    engine: {v: EngineVersion(path=f"/opt/llmgw/engines/{engine}-{v}") for v in versions}
                    for engine, versions in VERSIONS.items()
                },
                **self.settings,
            }
        )
        hosts = sorted((self._host(node) for node in self.nodes.values()), key=lambda host: _natural(host.name))
        return Site(settings, tuple(hosts), (), self.catalogue())

    def _host(self, node: FakeNode) -> InventoryHost:
        variables = HostVariables(
            labels=node.labels,
            ports=_range(node.ports),
            socket_interface=node.socket or None,
            env=node.env,
        )
        return InventoryHost(
            name=node.name, variables=variables, connection={"ansible_host": self.address(node.name)}
        )

    def address(self, node: str) -> str:
        number = sorted(self.nodes, key=_natural).index(node) + 11
        return f"10.1.{number // 250}.{number % 250}"

    def paths(self) -> dict[str, Paths]:
        return {name: self._paths(name) for name in self.fabrics}

    def _paths(self, fabric: str) -> Paths:
        domains, nodes = {}, {}
        for pod, leaves in self.fabrics[fabric].items():
            for leaf, members in leaves.items():
                width = max((self.nodes[name].ib for name in members), default=1)
                guids = tuple(guid(f"{fabric} {leaf} {rail}") for rail in range(width))
                key = guids[0]
                domains[key] = Domain(name=leaf, pod=pod, leaves=guids)
                for port, name in enumerate(members, 1):
                    nodes[name] = self._path(fabric, pod, leaf, key, guids, self.nodes[name], port)
        return Paths(
            fabric=fabric,
            role=self.roles.get(fabric, "compute"),  # type: ignore[arg-type]
            complete=fabric not in self.incomplete,
            rail_aligned=True,
            scan=self.scan,
            domains=domains,
            nodes=nodes,
        )

    def _path(
        self, fabric: str, pod: str, leaf: str, key: str, guids: tuple[str, ...], node: FakeNode, port: int
    ) -> NodePath:
        first = sum(name < fabric and node.name in _members(self.fabrics[name]) for name in self.fabrics) * node.ib
        rails = []
        for rail in range(node.ib):
            other = guids[(rail + 1) % len(guids)] if node.off_rail and rail < 2 else guids[rail]
            rails.append(
                Rail(
                    device=f"mlx5_{first + rail}",
                    port=1,
                    guid=guid(f"{node.name} {fabric} {rail}"),
                    leaf=other,
                    rail=rail + 1,
                    off_rail=node.off_rail and rail < 2,
                    rate="2xNDR" if rail < node.short else "4xNDR",
                    expected="4xNDR",
                )
            )
        short = tuple(
            ShortCable(
                node_end=f"{node.name} mlx5_{first + rail}/1", switch_end=f"{leaf} port {port}",
                rate="2xNDR", expected="4xNDR",
            )
            for rail in range(node.short)
        )  # fmt: skip
        return NodePath(domain=key, pod=pod, rails=tuple(rails), short=short, off_rail=node.off_rail)

    def facts(self) -> Facts:
        silent = {
            node.name: None if node.silent_s < 0 else NOW - timedelta(seconds=node.silent_s)
            for node in self.nodes.values()
            if node.silent_s is not None
        }
        known = {node.name: self._facts(node) for node in self.nodes.values() if (node.silent_s or 0) >= 0}
        return Facts(asked_at=NOW, nodes=known, silent=silent)

    def _facts(self, node: FakeNode) -> NodeFacts:
        name, memory = CARDS[node.card]
        here = self._runs_on(node.name)
        held = {gpu: run.pid for run in here if run.state != "exited" for gpu in run.gpus}
        listening = {run.port for run in here if run.state != "exited" and run.port}
        gpus = tuple(
            Gpu(
                index=index, uuid=f"GPU-{guid(f'{node.name} {index}')}", model=name, memory_mib=memory,
                numa=index // node.numa if node.numa else None,
                nvlink=tuple(other for other in range(node.gpus) if other != index) if node.nvlink else (),
                processes=_holders(index, node, held),
            )
            for index in range(node.gpus)
        )  # fmt: skip
        return NodeFacts(
            seen_at=NOW - timedelta(seconds=max(0, node.silent_s or 0)),
            supervisor="systemd",
            gpus=gpus,
            listen_ports=tuple(sorted({*node.listen, *listening})),
            runs=tuple(here),
            orphans=tuple(Orphan(unit="llmgw-gone-0", replica="gone/0", gpus=(gpu,)) for gpu in node.orphans),
            engines=self._engines() if node.engines else (),
            weights=tuple(
                Weights(path=model["source"]["path"], bytes=1)
                for name, model in sorted(self.models.items())
                if name not in node.lacks
            ),
            slurm=node.slurm,
        )

    def _engines(self) -> tuple[InstalledEngine, ...]:
        return tuple(
            InstalledEngine(engine=engine, version=v, path=f"/opt/llmgw/engines/{engine}-{v}", runnable=True)
            for engine, versions in VERSIONS.items()
            for v in versions
        )

    def _runs_on(self, node: str) -> list[Run]:
        found = []
        for number, run in enumerate(self.runs):
            for rank, name in enumerate(run.nodes):
                if name == node and rank not in run.gone:
                    ended = rank in run.ended
                    found.append(
                        Run(
                            replica=run.replica, rank=rank, plan=run.plan, action=run.action, spec=run.spec,
                            state="exited" if ended else "running", supervisor="systemd",
                            unit=f"llmgw-{run.replica.replace('/', '-')}", pid=None if ended else 1000 + number,
                            gpus=run.gpus[rank], port=run.ports[rank][0], ports=run.ports[rank][1],
                            nodes=tuple(run.nodes), started_at=NOW - timedelta(seconds=run.started_s),
                            exit_status="status 1" if ended else "",
                        )
                    )  # fmt: skip
        return found

    def standing(self) -> Standing:
        cordons = {}
        for node in self.nodes.values():
            if node.cordon or node.drain:
                kind = "drain" if node.drain else "cordon"
                cordons[node.name] = Cordon(node.name, kind, node.drain or node.cordon, "mk", NOW)  # type: ignore[arg-type]
        return Standing("b7e2", self.serial, cordons, {}, dict(self.published), dict(self.specs))

    def plan(self, **options: Any) -> Body:
        """The plan of this world now."""
        return make_plan(
            self.site(), self.paths(), self.facts(), self.standing(), options=Options(**options), now=NOW
        )

    def thought(self, **options: Any) -> Thought:
        """What the plan of this world is thought out from, for explanations."""
        return think_on(self.assessment(**options))

    def assessment(self, **options: Any) -> Assessment:
        """What is known of this world before anything is placed."""
        return assess(Question(self.site(), self.paths(), self.facts(), self.standing(), Options(**options), NOW))

    # What follows

    def applied(self, body: Body) -> "World":
        """The world after every action of the plan went well."""
        plan = Plan.of(body, created=NOW, by="test")
        world = copy.deepcopy(self)
        world.serial += 1
        world.specs.update(body.specs)
        for action in body.actions:
            if action.ends and action.op is not Op.FORGET:
                where = {seat.n for seat in action.ends.nodes}
                for run in world.runs:
                    if (run.plan, run.action, run.replica) == (
                        action.ends.plan,
                        action.ends.action,
                        action.replica,
                    ):
                        run.gone = tuple(sorted({*run.gone, *(r for r, n in enumerate(run.nodes) if n in where)}))
                world.runs = [run for run in world.runs if len(run.gone) < len(run.nodes)]
            if action.ends:
                head = min(action.ends.nodes, key=lambda seat: seat.rank)
                gone = url(address(world.site().node(head.n)), head.port)
                world.published = {k: v for k, v in world.published.items() if v.url != gone}
            elif action.op is Op.FORGET:
                world.published.pop(action.replica, None)
            if action.starts:
                if action.op not in (Op.ADOPT, Op.PUBLISH):
                    world._start(action.starts, plan.id, action.id)
                head = action.starts.nodes[0]
                where_ = url(address(world.site().node(head.n)), head.port)
                world.published = {k: v for k, v in world.published.items() if v.url != where_}
                world.published[action.replica] = Published(where_, "ready")
        return world

    def _start(self, placement: Any, plan: str, action: str) -> None:
        seats = placement.nodes
        self.runs = [
            run for run in self.runs
            if run.replica != placement.replica or len({*run.ended, *run.gone}) < len(run.nodes)
        ]  # fmt: skip
        self.runs.append(
            FakeRun(
                placement.replica, [seat.n for seat in seats], [seat.gpus for seat in seats],
                [(seat.port, seat.ports) for seat in seats], placement.spec, plan, action, started_s=0,
            )
        )  # fmt: skip

    def wanted(self) -> list[str]:
        return [replica.name for replica in wanted_replicas(self.catalogue())]


def _holders(index: int, node: FakeNode, held: Mapping[int, int | None]) -> tuple[GpuProcess, ...]:
    if index in node.foreign:
        return (GpuProcess(pid=4711, name=node.foreign[index], memory_mib=900),)
    return (GpuProcess(pid=held[index] or 1, name="engine", memory_mib=70000),) if index in held else ()


def _members(pods: Mapping[str, Mapping[str, Sequence[str]]]) -> set[str]:
    return {name for leaves in pods.values() for nodes in leaves.values() for name in nodes}


def _node_lists(leaves: Mapping[str, Any]) -> dict[str, list[str]]:
    return {leaf: nodes.split() if isinstance(nodes, str) else list(nodes) for leaf, nodes in leaves.items()}


def _range(text: str) -> PortRange | None:
    first, _, last = text.partition("-")
    return PortRange(int(first), int(last)) if text else None


def _natural(name: str) -> Any:
    from llmgw.base import natural_key

    return natural_key(name), name
