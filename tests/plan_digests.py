"""Prints the digests of the plans of the case files named, or of all; test_plan_properties runs it under several
Pythons and hash seeds."""

import sys
from pathlib import Path

import yaml

from llmgw.base import digest
from tests.fakes.worlds import World


def main(names: list[str]) -> None:
    for path in sorted((Path(__file__).parent / "cases" / "plan").glob("*.yml")):
        if names and path.stem not in names:
            continue
        written = yaml.safe_load(path.read_text())
        body = World.read(written).plan(**written.get("options", {}))
        sys.stdout.write(f"{path.stem} {digest(body.model_dump(mode='json'))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
