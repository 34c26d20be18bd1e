"""Link rates: `4xNDR` is a width and a speed; what each moves, and what a kind of device can reach.

Data rates a lane, Gb/s, from the InfiniBand Architecture Specification, volume 2 (8b/10b up to QDR, 64b/66b
from FDR10 on): SDR 2, DDR 4, QDR 8, FDR10 10, FDR 13.64, EDR 25, HDR 50, NDR 100, XDR 200.
"""

import re
from functools import lru_cache

_LANE = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
KNOWN = {rate: rate for width in (1, 2, 4, 8, 12) for speed in _LANE if (rate := f"{width}x{speed}")}
"""Every rate that ibnetdiscover can name today, under itself: one copy of each text for all port lines."""

_RATE = re.compile(r"(1|2|4|8|12)x([A-Z]+[0-9]*)")

_SPEED_OF_MODEL = {
    0x5A05: "SDR", 0x5A06: "SDR", 0xA87C: "SDR", 0xB924: "DDR", 0xBD36: "QDR", 0xC738: "FDR",
    0xCB20: "EDR", 0xCF08: "EDR", 0xD2F0: "HDR", 0xD2F2: "NDR", 0xD2F4: "XDR",
    0x5A44: "SDR", 0x6340: "SDR", 0x634A: "DDR", 0x673C: "QDR", 0x6732: "DDR",
    0x1003: "FDR", 0x1011: "FDR", 0x1013: "EDR", 0x1017: "EDR", 0x1019: "EDR",
    0x101B: "HDR", 0xA2D6: "HDR", 0x1021: "NDR", 0xA2DC: "NDR", 0x1023: "XDR",
}  # fmt: skip
"""The fastest speed of a device by its PCI or InfiniBand device id, as the PCI ID database names the chips."""

_SPLIT_PORTS = {0xD2F0: 80, 0xD2F2: 128}
"""Ports from which a Quantum or Quantum-2 switch runs split: two lanes a port."""


@lru_cache(maxsize=512)
def gbps(rate: str) -> float | None:
    """Data rate in Gb/s of `4xNDR` (400.0) or `1xXDR` (200.0); None for a rate that is not known."""
    match = _RATE.fullmatch(rate)
    if not match or match[2] not in _LANE:
        return None
    return int(match[1]) * _LANE[match[2]]


def timed_out(rate: str) -> bool:
    """Whether the tool printed `??` or `???` because the port never answered."""
    return "??" in rate


def slower(one: str, other: str) -> str:
    """The slower of two rates of one cable's ends; of an unknown one and a known one, the known."""
    first, second = gbps(one), gbps(other)
    if first is None or second is None:
        return other if first is None and (second is not None or not one) else one
    return one if first <= second else other


def reachable(model: int, ports: int) -> str | None:
    """The rate at which a device of this id and number of ports runs at best; None for an unknown id."""
    speed = _SPEED_OF_MODEL.get(model)
    if speed is None:
        return None
    return f"{2 if ports >= _SPLIT_PORTS.get(model, 1 << 30) else 4}x{speed}"


def nominal(rate: str) -> str:
    """The rate as buyers know it: `4xNDR` is `400 Gb/s`; the rate itself where it is not known.

    Marketing counts raw lanes up to FDR: 4xSDR 10, 4xQDR 40, 4xFDR 56.
    """
    match = _RATE.fullmatch(rate)
    if not match or match[2] not in _LANE:
        return rate
    lane = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR": 14.0}.get(match[2], _LANE[match[2]])
    return f"{int(match[1]) * lane:g} Gb/s"
