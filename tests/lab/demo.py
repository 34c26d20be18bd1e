"""The demo: from nothing to a streamed answer, every part real. Each command is printed before its output.

    python -m tests.lab.demo up       bring the lab up, run the steps, leave it up
    python -m tests.lab.demo down     remove every trace of it

As root, hosts are namespaces (tests/lab/lab.py) and the site is inventories/demo. As another account they are
processes on loopback addresses (tests/lab/loopback.py), and the site is written to build/demo/site.
"""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence

from tests.fakes.tiny_gguf import telling
from tests.lab.demo_stage import Step, root_stage, rootless_stage
from tests.lab.kernel import LabError
from tests.lab.layer import REPOSITORY

FOLDER = REPOSITORY / "build" / "demo"
PREPARE = (
    Step(
        "What an account may do as root on nodes, and no more: lines for sudoers. n3 and n4 are reached as such a one.",
        "llmgw check --sudoers limited",
    ),
    Step(
        "An admin prepares the nodes once: the engines' account, its folder, those lines.",
        "prepare() { llmgw check --sudoers $1 -o json >build/demo/prepare-$1.json; "
        "ansible-playbook -i inventories/demo/hosts.yml playbooks/node_prepare.yml -e @build/demo/prepare-$1.json "
        "-e ansible_user=root -l $2 | sed -n '/PLAY RECAP/,$p'; }; "
        "prepare ops n1,n2 & prepare limited n3,n4 && wait $!",
    ),
)
LLMGW = (
    Step("Are the files right, and can llmgw do on the nodes what it has to?", "llmgw check --nodes"),
    Step(
        "Map the fabrics: ibnetdiscover on one node each. One cable was made to train short.",
        "llmgw fabric scan && llmgw fabric list && llmgw fabric show compute",
    ),
    Step(
        "Draw the map.", "llmgw fabric draw compute --out build/demo/compute.svg && ls -l build/demo/compute.svg"
    ),
    Step(
        "What would be started where, and why? Saved, to be carried out exactly.",
        "llmgw plan --out build/demo/plan.json",
    ),
    Step("Do exactly that.", "llmgw apply build/demo/plan.json"),
    Step("What runs now, and what routers were told.", "llmgw replicas list && llmgw endpoints show"),
)


def run_steps(run: Callable[[str], int], steps: Sequence[Step]) -> None:
    """One after another, as somebody would type them. LabError where one fails."""
    for step in steps:
        print(f"\n# {step.why}\n$ {step.command}", flush=True)
        began, used = time.monotonic(), _cpu_s()
        status = run(step.command)
        print(
            f"# {time.monotonic() - began:.1f} s, {_cpu_s() - used:.1f} s of CPU on the control host", flush=True
        )
        if status:
            raise LabError(f"that ended with exit status {status}")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _questions(url: str) -> Sequence[Step]:
    ask = f"python -m tests.lab.chat {url}"
    return (
        Step("Ask, from this machine, through the router.", f"{ask} tiny 'Who are you?' {len(telling())}"),
        Step("A model that two nodes serve together.", f"{ask} count 'Count.' 30"),
    )


def up() -> int:
    """Everything, from a lab to an answer."""
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage = root_stage(FOLDER) if os.geteuid() == 0 else rootless_stage(FOLDER)
    print(stage.about, flush=True)
    stage.bring_up()
    print(f"# the lab is up after {time.monotonic() - began:.1f} s", flush=True)
    run_steps(stage.run, PREPARE if stage.prepares else ())
    url = stage.start_router()
    run_steps(stage.run, LLMGW)
    run_steps(stage.run_here, _questions(url))
    print(stage.goodbye(url) + f"\n# all of it took {time.monotonic() - began:.0f} s", flush=True)
    return 0


def down() -> int:
    """The lab, its processes, and what the demo wrote."""
    stage = root_stage(FOLDER) if os.geteuid() == 0 else rootless_stage(FOLDER)
    stage.take_down()
    shutil.rmtree(FOLDER, ignore_errors=True)
    print("The demo is gone. What was built for it is under build/ (make clean).")
    note = REPOSITORY / "build" / "packages"
    if note.exists():
        print(f"These Debian packages were installed for it: {' '.join(sorted(set(note.read_text().split())))}")
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit status; what did not work is on stderr, and the lab stays up to be looked at."""
    try:
        return {"up": up, "down": down}[argv[0] if argv else "up"]()
    except LabError as error:
        print(f"demo: {error}\nThe lab is left as it is. make demo-down removes it.", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
