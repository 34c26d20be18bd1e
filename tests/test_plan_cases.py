"""Plans of small sites: each case is a site in YAML, beside it the plan as text and where everything is to be."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmgw.plan import Body, Plan
from llmgw.plan.text import View, plan_lines, to_text
from tests.fakes.worlds import NOW, World

CASES = sorted((Path(__file__).parent / "cases" / "plan").glob("*.yml"))


def shown(body: Body) -> str:
    """The plan as an operator sees it, and below it the seats and the codes of each replica."""
    plan = Plan.of(body, created=NOW, by="test")
    text = to_text(plan_lines(plan, View())).replace(plan.id[:6], "XXXXXX")
    seats = [
        f"{one.replica:<14} {one.shape} {one.fabric or '-'} {one.leaf or '-'}  "
        + "  ".join(
            f"{s.n}[{','.join(map(str, s.gpus))}]:{s.port}{f'+{s.ports}' if s.ports > 1 else ''}"
            for s in one.nodes
        )
        + (f"  {' '.join(one.why)}" if one.why else "")
        for one in body.placements
    ]
    return text + "\n---\n" + "".join(f"{line}\n" for line in seats)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_plan_of_a_site_is_as_reviewed(path: Path, check_case: Callable[[str, str], None]) -> None:
    written = yaml.safe_load(path.read_text())
    body = World.read(written).plan(**written.get("options", {}))
    check_case(f"plan/{path.stem}.txt", f"{written['why']}\n\n{shown(body)}")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_after_the_plan_was_applied_there_is_nothing_left_to_do(path: Path) -> None:
    written = yaml.safe_load(path.read_text())
    options = written.get("options", {})
    world = World.read(written)
    options_then = {key: value for key, value in options.items() if key != "replace"}
    later = world.applied(world.plan(**options)).plan(**options_then)
    assert [(action.op.value, action.replica, action.why) for action in later.actions] == []
