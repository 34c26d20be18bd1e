"""A table of scans: python -m tests.fabric_table FILE… (without files, the captures of ../shared/fabrics)."""

import sys
from pathlib import Path

from tabulate import tabulate

from llmgw.fabric import read, summary
from llmgw.fabric.analyse import analyse
from tests.captures import FABRICS
from tests.test_fabric_captures import KNOWN

HEAD = (
    "scan",
    "state",
    "tiers",
    "expected",
    "adapters",
    "nodes",
    "cables",
    "lines",
    "short",
    "off rail",
    "unnamed",
)


def row(path: Path) -> tuple[object, ...]:
    """A scan's figures, beside the tiers and port lines that were counted in it before."""
    fabric = analyse(read(path.read_bytes().decode("utf-8", "surrogateescape")))
    figures, known = summary(fabric), KNOWN.get(path.name)
    distances = [switch.distance for switch in fabric.switches.values()]
    tiers = "/".join(str(distances.count(one)) for one in range(1, max(distances, default=0) + 1))
    expected = "/".join(map(str, known.tiers)) if known else ""
    lines = f"{2 * figures.links} of {known.port_lines}" if known else ""
    counted = (figures.adapters, figures.nodes, figures.links, lines)
    state = (
        fabric.verdict.state if fabric.verdict.state != "rejected" else f"rejected: {fabric.verdict.reason[:40]}"
    )
    return (
        path.name,
        state,
        tiers,
        expected,
        *counted,
        figures.degraded,
        figures.off_rail,
        figures.unnamed_adapters,
    )


def main(names: list[str]) -> None:
    paths = [Path(name) for name in names] or sorted(FABRICS.glob("*.[tpo]*"))
    print(tabulate([row(path) for path in paths if path.suffix != ".tsv"], HEAD))


if __name__ == "__main__":
    main(sys.argv[1:])
