"""What the placer is asked, in whole numbers, and what it answers.

Nodes, leaf domains, pods, fabrics, kinds and models are numbers here. Whoever builds a Problem numbers them in
natural order of their names: the placer breaks ties by number, which so becomes low names first.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Spread = Literal["leaf", "node", "none"]
SMALL = 64  # nodes up to which a search is over everything
SEED = 0x6C6C6D6777
PLACER = 1
"""The version of the rules by which places are chosen; plans carry it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the placer sees it.

    `gpus` it has, of which `free` may be taken; `freed` of those are still held by something that this plan
    stops first. `room` is how many ranks its TCP ports allow. `fabric` -1: on no map, so for one-node
    replicas only. A node that is not `open` takes nothing new.
    """

    kind: int
    gpus: int
    free: int
    leaf: int
    pod: int
    fabric: int
    short: int = 0
    off_rail: bool = False
    open: bool = True
    freed: int = 0
    room: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Demand:
    """One replica to place, by the first of its shapes (nodes, GPUs per node) that fits."""

    model: int
    ordinal: int
    shapes: tuple[tuple[int, int], ...]
    kinds: frozenset[int]
    one_leaf: bool = False
    priority: int = 50
    spread: Spread = "leaf"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a replica is: its nodes in rising order, the GPUs that it takes on each, and which shape that is."""

    nodes: tuple[int, ...]
    gpus: int
    shape: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A replica that runs and stays. The `free` of its nodes does not count its GPUs.

    `demand` is what it is of the catalogue. It is moved only by a repack, and only where `movable`.
    """

    demand: Demand
    spot: Spot
    movable: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """All that a placement depends on. `big` is the biggest shape of the catalogue: nodes, GPUs per node."""

    nodes: tuple[Node, ...]
    wanted: tuple[Demand, ...]
    held: tuple[Held, ...] = ()
    big: tuple[int, int] = (1, 1)
    repack: int = 0


class Cost(NamedTuple):
    """The levels of a placement, compared from the first to the last, smaller is better.

    unplaced: GPUs of replicas without a place, by priority class (one number, higher classes weigh more than
    all lower ones together). moves: running replicas that go elsewhere. shapes: how far down their lists of
    shapes replicas had to go. pods, leaves: beyond the first, over replicas of several nodes. exposed: models
    of two or more replicas that the loss of one leaf (node, where their spread says so) takes down. short,
    off_rail: cables and nodes in replicas of several nodes. slots: minus the places left for the biggest
    shape. whole: minus the nodes left whole. apart: minus the sum of the squares of whole nodes per leaf.
    waits: ranks on GPUs that something must leave first.
    """

    unplaced: int
    moves: int
    shapes: int
    pods: int
    leaves: int
    exposed: int
    short: int
    off_rail: int
    slots: int
    whole: int
    apart: int
    waits: int


@dataclass(frozen=True, slots=True)
class Answer:
    """For each wanted replica its spot or None; for each held one that a repack moved, by its number, its new spot."""

    spots: tuple[Spot | None, ...]
    moved: dict[int, Spot]
    cost: Cost
