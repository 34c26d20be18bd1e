"""What holds for the plan of any site: hard rules, plain packers never better, a second plan with nothing to do,
and the same bytes for any order of what is given, any hash seed and any Python."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from llmgw.base import canonical
from llmgw.fabric import Paths
from llmgw.observed import Facts
from llmgw.plan import Body, Options, make_plan
from llmgw.site import Catalogue, Site
from tests.fakes.worlds import NOW, World
from tests.plan_rules import broken_rules

ROOT = Path(__file__).parent.parent
CASES = sorted((Path(__file__).parent / "cases" / "plan").glob("*.yml"))
SHAPES = ("1x1", "1x2", "1x4", "1x8", "2x4", "2x8", "3x8", "4x8")
EXAMPLES = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking whole sites takes minutes and says little more
)


def on_sites(few: int, many: int) -> pytest.MarkDecorator:
    """So many examples in a fast run, and more of them in a slow one."""
    slow = pytest.param(many, id="many sites", marks=pytest.mark.slow)
    return pytest.mark.parametrize("examples", [pytest.param(few, id="few sites"), slow])


def holds_of(examples: int, *worlds: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
    """Runs a property on so many examples."""
    return lambda claim: settings(EXAMPLES, max_examples=examples)(given(*worlds)(claim))()


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A site of up to 14 nodes with what can be wrong with nodes, and up to five models; nothing runs yet."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    leaves = {f"leaf-{n}": [f"n{n}-{k}" for k in range(1, size + 1)] for n, size in enumerate(sizes, 1)}
    if draw(st.booleans()):
        world = World.of(leaves)
    else:
        names = list(leaves)
        world = World.of(
            leaves, pods={"pod-0": names[: len(names) // 2 + 1], "pod-1": names[len(names) // 2 + 1 :]}
        )
    for node in world.nodes.values():
        node.gpus = draw(st.sampled_from((8, 8, 8, 4)))
        node.card = draw(st.sampled_from(("H100", "H100", "H200")))
        node.short = draw(st.sampled_from((0, 0, 0, 1)))
        node.off_rail = draw(st.sampled_from((False, False, False, True)))
        node.cordon = draw(st.sampled_from(("", "", "", "", "fan")))
        node.slurm = draw(st.sampled_from(("", "", "", "", "ALLOCATED")))
        node.foreign = draw(st.sampled_from(({}, {}, {}, {2: "python"})))
        node.listen = draw(st.sampled_from(((), (), (8001,))))
    for number in range(draw(st.integers(1, 5))):
        world.model(
            f"m{number}",
            shapes=[draw(st.sampled_from(SHAPES))],
            replicas=draw(st.integers(0, 4)),
            engine=draw(st.sampled_from(("vllm", "sglang", "llama.cpp"))),
            topology=draw(st.sampled_from(("preferred", "required"))),
            spread=draw(st.sampled_from(("leaf", "node", "none"))),
            priority=draw(st.sampled_from((50, 50, 80))),
            gpu=draw(st.sampled_from(({}, {}, {"models": ["*H200*"]}))),
        )
    return world


@st.composite
def troubled(draw: st.DrawFn) -> World:
    """A site on which a first plan was applied, and to which things have happened since."""
    world = draw(worlds())
    world = world.applied(world.plan())
    for node in world.nodes.values():
        happening = draw(st.sampled_from(("", "", "", "", "drain", "silent", "lost", "cordon", "answers")))
        node.drain = "board" if happening == "drain" else ""
        node.cordon = "fan" if happening == "cordon" else node.cordon if happening != "answers" else ""
        node.silent_s = {"silent": 120, "lost": 3600}.get(happening)
    for run in world.runs:
        run.ended = draw(st.sampled_from(((), (), (), (0,), tuple(range(len(run.nodes))))))
    for name in list(world.published):
        if draw(st.sampled_from((False, False, False, True))):
            del world.published[name]
    for model in world.models.values():
        change = draw(st.sampled_from(("", "", "args", "more", "fewer")))
        if change == "args":
            model["profiles"]["main"]["args"] = ["--max-model-len", "4096"]
        model["replicas"] = max(0, model["replicas"] + {"more": 1, "fewer": -1}.get(change, 0))
    if world.models and draw(st.booleans()):
        del world.models[max(world.models)]
    return world


@on_sites(8, 150)
def test_the_first_plan_of_any_site_breaks_no_hard_rule(examples: int) -> None:
    @holds_of(examples, worlds())
    def claim(world: World) -> None:
        assert broken_rules(world, world.plan()) == []


@on_sites(6, 150)
def test_the_plan_after_any_trouble_breaks_no_hard_rule(examples: int) -> None:
    @holds_of(examples, troubled())
    def claim(world: World) -> None:
        assert broken_rules(world, world.plan()) == []


@on_sites(4, 80)
def test_a_repack_breaks_no_hard_rule_and_moves_no_more_than_it_may(examples: int) -> None:
    @holds_of(examples, troubled(), st.integers(1, 3))
    def claim(world: World, moves: int) -> None:
        body = world.plan(repack=moves)
        assert broken_rules(world, body) == []
        assert sum("--repack" in action.why for action in body.actions) <= moves


@on_sites(6, 150)
def test_after_a_plan_was_applied_the_next_one_is_empty(examples: int) -> None:
    @holds_of(examples, troubled())
    def claim(world: World) -> None:
        later = world.applied(world.plan()).plan()
        assert [(action.op.value, action.replica, action.why) for action in later.actions] == []


def shuffled(world: World, seed: int) -> Body:
    """The plan of the world with every mapping and every list without an order of its own in another order."""
    mixed = random.Random(seed)

    def mix(items: list[Any]) -> list[Any]:
        return mixed.sample(items, len(items))

    site = world.site()
    models = dict(mix(list(site.catalogue.models.items())))
    site = Site(
        site.settings,
        site.nodes,
        site.routers,
        Catalogue.model_construct(format=site.catalogue.format, models=models),
    )
    fabrics: dict[str, Paths] = {}
    for name, paths in mix(list(world.paths().items())):
        nodes, domains = dict(mix(list(paths.nodes.items()))), dict(mix(list(paths.domains.items())))
        fabrics[name] = paths.model_copy(update={"nodes": nodes, "domains": domains})
    facts = world.facts()
    known = {
        name: node.model_copy(
            update={"runs": tuple(mix(list(node.runs))), "weights": tuple(mix(list(node.weights)))}
        )
        for name, node in mix(list(facts.nodes.items()))
    }
    facts = Facts(asked_at=facts.asked_at, nodes=known, silent=dict(mix(list(facts.silent.items()))))
    standing = replace(world.standing(), published=dict(mix(list(world.published.items()))))
    return make_plan(site, fabrics, facts, standing, options=Options(), now=NOW)


@on_sites(4, 80)
def test_the_order_of_what_is_given_does_not_matter(examples: int) -> None:
    @holds_of(examples, troubled(), st.integers(0, 10**6))
    def claim(world: World, seed: int) -> None:
        straight, mixed = world.plan(), shuffled(world, seed)
        assert canonical(straight.model_dump(mode="json")) == canonical(mixed.model_dump(mode="json"))


@on_sites(4, 20)
def test_s26_twenty_shuffles_of_one_site_give_one_plan(examples: int) -> None:
    world = World.read(yaml.safe_load((ROOT / "tests/cases/plan/s26_a_site_in_any_order.yml").read_text()))
    straight = canonical(world.plan().model_dump(mode="json"))
    assert {canonical(shuffled(world, seed).model_dump(mode="json")) for seed in range(examples)} == {straight}


def digests(python: str, seed: str, *names: str) -> str:
    """What tests/plan_digests.py prints of these case files, or of all, under another Python or hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, str(ROOT / "tests" / "plan_digests.py"), *names],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SOME = ("s26_a_site_in_any_order", "c18_surge_hands_on_its_room")


def test_the_hash_seed_does_not_matter() -> None:
    """The case files themselves are read under whatever seed this run has."""
    first, *others = (digests(sys.executable, seed, *SOME) for seed in ("0", "1", "77"))
    assert first.count("sha256:") == len(SOME)
    assert others == [first, first]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "77"])
def test_the_hash_seed_does_not_matter_to_any_case(seed: str) -> None:
    assert digests(sys.executable, seed) == digests(sys.executable, "0")


def interpreter(version: str) -> str:
    """A Python of that version that has pydantic and PyYAML: from LLMGW_PYTHONS (paths, colons between), or from
    PATH. Skips the test where there is none."""
    given = os.environ.get("LLMGW_PYTHONS", "").split(":")
    found = [path for path in [*given, shutil.which(f"python{version}") or ""] if path]
    for path in found:
        ask = f"import sys, pydantic, yaml; print('%d.%d' % sys.version_info[:2] == '{version}')"
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if done.stdout.strip() == "True":
            return path
    pytest.skip(f"no python{version} with pydantic and PyYAML on PATH or in LLMGW_PYTHONS")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_python_makes_the_same_plans(version: str) -> None:
    assert digests(interpreter(version), "0") == digests(sys.executable, "0")
