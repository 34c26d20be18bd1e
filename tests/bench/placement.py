#!/usr/bin/env python3
"""Place stored instances with the product's own placer, and write the answers for score.py.

    placement.py INSTANCES ANSWERS     answers, and the time that each took
    placement.py --scale [N...]        generated sites of N nodes (1000 5000 10000): time, memory, what is left
    placement.py --repack [COUNT]      generated cases that fit only after moves: solved, moves
    placement.py --plan [N]            llmgw plan itself, from the store of a site of N nodes (10000): time and memory

An instance (one JSON object a line) has nodes [{name, pod, leaf, gpus, kind, short, off_rail, cordoned}], wanted
[{model, ordinal, nodes, gpus_per_node, kinds, leaf}], running [{model, ordinal, gpus_per_node, on}] and
big_shape_nodes; an answer {id, placed: [{model, ordinal, on}]}. Figures are CPU seconds of this process.
"""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from llmgw.plan.placer import Demand, Held, Node, Problem, Spot, place


def problem_of(instance: dict[str, Any]) -> Problem:
    """The placer's problem of one stored instance; nodes, models and kinds keep the instance's order."""
    number = {node["name"]: n for n, node in enumerate(instance["nodes"])}
    replicas = [*instance["wanted"], *instance["running"]]
    models = {name: n for n, name in enumerate(sorted({replica["model"] for replica in replicas}))}
    used = [0] * len(number)
    for run in instance["running"]:
        for name in run["on"]:
            used[number[name]] += run["gpus_per_node"]
    nodes = tuple(
        Node(
            kind=node["kind"],
            gpus=node["gpus"],
            free=node["gpus"] - taken,
            leaf=node["leaf"],
            pod=node["pod"],
            fabric=0,
            short=int(node["short"]),
            off_rail=node["off_rail"],
            open=not node["cordoned"],
        )
        for node, taken in zip(instance["nodes"], used, strict=True)
    )
    wanted = tuple(
        Demand(
            model=models[want["model"]],
            ordinal=want["ordinal"],
            shapes=((want["nodes"], want["gpus_per_node"]),),
            kinds=frozenset(want["kinds"]),
            one_leaf=want["leaf"] == "required",
        )
        for want in instance["wanted"]
    )
    held = tuple(_held(run, models, number) for run in instance["running"])
    return Problem(nodes, wanted, held, (instance["big_shape_nodes"], 1))


def _held(run: dict[str, Any], models: dict[str, int], number: dict[str, int]) -> Held:
    on = tuple(sorted(number[name] for name in run["on"]))
    shape = (len(on), run["gpus_per_node"])
    return Held(Demand(models[run["model"]], run["ordinal"], (shape,), frozenset()), Spot(on, shape[1]))


def answers(instances: Path) -> Iterator[tuple[dict[str, Any], float]]:
    """Each instance's answer, and the seconds that placing took."""
    for line in instances.read_text().splitlines():
        instance = json.loads(line)
        problem = problem_of(instance)
        before = process_time()
        answer = place(problem)
        took = process_time() - before
        placed = [
            {
                "model": want["model"],
                "ordinal": want["ordinal"],
                "on": [instance["nodes"][node]["name"] for node in spot.nodes],
            }
            for want, spot in zip(instance["wanted"], answer.spots, strict=True)
            if spot
        ]
        yield {"id": instance["id"], "placed": placed}, took


def place_file(instances: Path, out: Path) -> None:
    """Writes the answers and prints the times."""
    times = []
    with out.open("w") as file:
        for answer, took in answers(instances):
            file.write(json.dumps(answer) + "\n")
            times.append(took)
    print(f"{len(times)} instances placed: mean {sum(times) / len(times):.2f} s, max {max(times):.2f} s CPU")


def peak_mib() -> int:
    """The most memory that this process has had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--scale"]:
        from tests.bench.placement_scale import scale

        scale([int(n) for n in arguments[1:]] or [1000, 5000, 10000])
    elif arguments[:1] == ["--repack"]:
        from tests.bench.placement_scale import repack

        repack(int(arguments[1]) if arguments[1:] else 60)
    elif arguments[:1] == ["--plan"]:
        from tests.bench.placement_plan import plan

        plan(int(arguments[1]) if arguments[1:] else 10000)
    elif len(arguments) == 2:
        place_file(Path(arguments[0]), Path(arguments[1]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
