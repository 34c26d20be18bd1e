"""The corpus that fuzzing kept, and mutations of it, through everything that the router parses itself."""

import random
from pathlib import Path

import pytest

from tests.fuzz.router_parsers import TARGETS, one

CORPUS = sorted((Path(__file__).parent / "fuzz" / "corpus").iterdir())


def test_the_corpus_reaches_every_parser() -> None:
    assert {path.read_bytes()[0] % len(TARGETS) for path in CORPUS} == set(range(len(TARGETS)))


@pytest.mark.parametrize("seed", range(8))
def test_mutations_of_the_corpus_break_no_promise(seed: int) -> None:
    rnd = random.Random(seed)
    inputs = [path.read_bytes() for path in CORPUS]
    for data in inputs:
        one(data)
    for _ in range(1500):
        data = bytearray(rnd.choice(inputs))
        for _ in range(rnd.randrange(1, 5)):
            at = rnd.randrange(len(data) + 1)
            piece = rnd.choice(inputs)
            start = rnd.randrange(len(piece))
            change = rnd.choice((bytes([rnd.randrange(256)]), piece[start : start + rnd.randrange(20)], b""))
            data[at : at + rnd.randrange(4)] = change
        one(bytes(data))
