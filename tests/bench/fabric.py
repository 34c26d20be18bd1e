"""How fast a fabric is read, understood and drawn: python -m tests.bench.fabric [read] [grow] [draw].

Times are of this process alone (CPU), the best of several runs that take turns with the yardstick: reading the same
file and splitting each of its lines on white space.
"""

import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from llmgw.cli.drawing import PLACED, render
from llmgw.fabric import Fabric, read
from llmgw.fabric.analyse import analyse
from llmgw.fabric.drawing import Ask, dot, fault_marks, lay_out
from tests.captures import FABRICS
from tests.fakes.fabrics import fat_tree

SELENE = FABRICS / "selene-compute-hdr.txt"
SIZES = {1_024: (128, 1), 10_240: (64, 20), 80_384: (64, 157)}
"""Adapters → nodes a pod and pods, eight adapters a node."""


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def understood(path: Path) -> Fabric:
    """The fabric of a file."""
    return analyse(read(path.read_bytes().decode()))


def split_lines(path: Path) -> None:
    """The yardstick."""
    with path.open(newline="") as lines:
        for line in lines:
            line.split()


def made(adapters: int, folder: Path) -> Path:
    """A file with a made-up fabric: two tiers up to 1,024 adapters, three beyond, a hundredth of its cables short."""
    nodes, pods = SIZES[adapters]
    cluster = fat_tree(nodes=nodes, nodes_per_leaf=32, spines=16, pods=pods, cores=16 if pods > 1 else 0, cables=2)
    for place, ends in enumerate(cluster.cables):
        if place % 800 == 399:
            cluster.cables[ends] = "2xNDR"
    path = folder / f"{adapters}.txt"
    path.write_text(cluster.text())
    return path


def bench_read() -> None:
    """Parse and analysis of a real fabric against the yardstick, and the memory that they take."""
    if not SELENE.exists():
        print(f"no {SELENE}")
        return
    runs = [(cpu(lambda: split_lines(SELENE)), cpu(lambda: understood(SELENE))) for _ in range(15)]
    yardstick, own = min(one for one, _ in runs), min(two for _, two in runs)
    ratios = sorted(two / one for one, two in runs)
    script = (
        f"import resource; from llmgw.fabric import analyse, read; analyse(read(open({str(SELENE)!r}).read()));"
    )
    script += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    peak = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()
    print(
        f"selene-compute: parse + analyse {own:.3f} s (bar 0.6), peak {peak} MB with Python and pydantic (bar 150)"
    )
    print(f"  yardstick {yardstick * 1000:.1f} ms; best {own / yardstick:.1f}, median {ratios[7]:.1f} (bar 12)")


def bench_grow(folder: Path) -> None:
    """Cost per port line from 1,000 to 80,000 adapters."""
    first = 0.0
    for adapters in SIZES:
        path = made(adapters, folder)
        lines = sum(line.startswith("[") for line in path.open())
        own = min(cpu(lambda path=path: understood(path)) for _ in range(3 if adapters > 50_000 else 7))
        first = first or own / lines
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{adapters:6,} adapters, {lines:7,} port lines, {path.stat().st_size / 1e6:5.1f} MB: {own:6.2f} s,"
            f" {own / lines * 1e6:5.1f} us a line, {own / lines / first:.2f} x the smallest's (bar 1.5), peak {peak} MB"
        )


def bench_draw(folder: Path) -> None:
    """From the text to the picture, wall time."""
    for adapters in (1_024, 10_240):
        path = made(adapters, folder)
        for kind in ("svg", "png"):
            times = []
            for _ in range(3):
                start = time.perf_counter()
                fabric = understood(path)
                layout = lay_out(fabric, Ask(title=f"{adapters:,} adapters", marks=fault_marks(fabric)))
                assert layout
                picture = render(dot(layout), PLACED, kind)
                times.append(time.perf_counter() - start)
            bar = 1 if adapters < 2_000 else 3
            shape = f"{layout.width:.0f} x {layout.height:.0f} pt, {len(picture) // 1000} kB"
            print(f"{adapters:6,} adapters drawn as {kind}: {min(times):.2f} s end to end (bar {bar}), {shape}")


def main(what: list[str]) -> None:
    """Runs what is asked for, or all."""
    with tempfile.TemporaryDirectory() as name:
        if not what or "read" in what:
            bench_read()
        if not what or "grow" in what:
            bench_grow(Path(name))
        if not what or "draw" in what:
            bench_draw(Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
