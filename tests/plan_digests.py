"""Prints the digest of the plan of every case file; test_plan_properties runs it under several Pythons and seeds."""

import sys
from pathlib import Path

import yaml

from llmgw.base import digest
from tests.fakes.worlds import World


def main() -> None:
    for path in sorted((Path(__file__).parent / "cases" / "plan").glob("*.yml")):
        written = yaml.safe_load(path.read_text())
        body = World.read(written).plan(**written.get("options", {}))
        sys.stdout.write(f"{path.stem} {digest(body.model_dump(mode='json'))}\n")


if __name__ == "__main__":
    main()
