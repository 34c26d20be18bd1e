"""Figures of the lab; nothing fails by them. Other parts' figures: tests/bench/.

python -m tests.lab.bench [COUNT…]       hosts at once (1 4 8 32)
"""

import sys
import time
from collections.abc import Callable, Sequence

from tests.lab.hosts import Init, numbered
from tests.lab.kernel import LabError
from tests.lab.lab import Lab
from tests.lab.netfile import Bank, Layout


def _took_s(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _cpu_s(lab: Lab) -> float:
    """CPU time of all processes of its hosts so far."""
    line = (lab.places.cgroup / "cpu.stat").read_text().splitlines()[0]
    return int(line.split()[1]) / 1e6


def lives(counts: Sequence[int]) -> None:
    """How long labs of that many hosts take to come up, and to go."""
    for init in Init:
        for count in counts:
            lab = Lab("bench", numbered(count, init=init))
            up = _took_s(lab.up)
            used = _cpu_s(lab)
            down = _took_s(lab.down)
            print(f"{init.value:<8} {count:>3} hosts: up {up:5.1f} s ({used:5.1f} s of CPU), down {down:4.1f} s")


def hosts() -> None:
    """What is done with one host, and with a fabric."""
    layout = Layout("compute", (Bank(("n1", "n2"), ("mlx5_0", "mlx5_1")),))
    with Lab("bench", numbered(2), fabrics=[layout]) as lab:
        node, fabric = lab.nodes["n2"], lab.fabrics["compute"]
        cable = fabric.plan.cable("n2 mlx5_0")
        works: dict[str, Callable[[], object]] = {
            "ssh true, first": lambda: lab.ssh(node, "true"),
            "ssh true": lambda: lab.ssh(node, "true"),
            "console true": lambda: node.console("true"),
            "ibnetdiscover over ssh": lambda: lab.ssh(node, "ibnetdiscover"),
            "train a cable short": lambda: fabric.train(cable, "4xHDR"),
            "pull a cable": lambda: fabric.pull(cable),
            "plug it in": lambda: fabric.plug(cable),
            "power off": node.off,
            "power on": node.on,
            "reboot": node.reboot,
        }
        for what, work in works.items():
            print(f"{what:<24} {_took_s(work):6.2f} s")


def main(argv: Sequence[str]) -> int:
    """Print them; 0 also where there can be no lab."""
    try:
        lives([int(word) for word in argv] or [1, 4, 8, 32])
        hosts()
    except LabError as error:
        print(f"no figures: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
