"""Colours. None of the rails' is red or orange: those say that something is wrong, and never alone, since marks
have a thick outline and a number too, and lines a dash of their own."""

from llmgw.fabric.drawing.values import Look
from llmgw.fabric.rates import gbps

PAPER = "#ffffff"
INK = "#1b2530"
FRAME = "#f5f7fa"
FRAME_LINE = "#c3ccd6"
RIBBON = "#dfe7f1"
UNNAMED = "#ffffff"
FAINT = "#e8ebef"
GHOST = "#ffffff"
FAULT = "#c2410c"
PLAIN_CELL = "#8fa3b8"

TIERS = {"leaf": "#d6e4f5", "spine": "#d9ead3", "core": "#f2e6c4", "gone": "#ffffff"}

LOOKS = {
    Look.PLAIN: (INK, "solid"),
    Look.SHORT: (FAULT, "solid"),
    Look.OFF_RAIL: ("#000000", "solid"),
    Look.FEWER: ("#6b7785", "dashed"),
    Look.ADDED: ("#15803d", "solid"),
    Look.GONE: ("#b91c1c", "dashed"),
    Look.MOVED: ("#1d4ed8", "bold"),
    Look.RECOVERED: ("#0f766e", "dotted"),
}

_RAILS = ("#3f6fb0", "#8fbf63", "#8a5fa8", "#55b3c4", "#d3b93c", "#4b8f6b", "#c586b6", "#8794a3")
_GROUPS = (
    "#3f6fb0", "#8fbf63", "#8a5fa8", "#55b3c4", "#d3b93c", "#4b8f6b", "#c586b6", "#5c6773", "#9fc5e8", "#2f5d50",
    "#b4a7d6", "#76a5af", "#e3d98a", "#6d4c7d", "#a2c4a0", "#27496d",
)  # fmt: skip
_RATES = ((800, "#27496d"), (400, "#3f6fb0"), (200, "#55b3c4"), (100, "#8fbf63"), (50, "#d3b93c"), (0, "#c586b6"))


def rail_colour(rail: int) -> str:
    """The colour of a rail, from 1; grey for an adapter without one. Rails 9 to 16 repeat those of 1 to 8."""
    return _RAILS[(rail - 1) % len(_RAILS)] if rail else PLAIN_CELL


def group_colour(group: int) -> str:
    """The colour of a replica by its number, from 0."""
    return _GROUPS[group % len(_GROUPS)]


def rate_colour(rate: str) -> str:
    """The colour of a rate: the faster, the darker; white where it is not known."""
    speed = gbps(rate)
    return UNNAMED if speed is None else next(colour for least, colour in _RATES if speed >= least)
