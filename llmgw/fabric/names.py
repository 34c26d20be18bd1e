"""What NodeDescriptions say: an adapter's host and device, a switch's system and chip.

rdma-ndd writes `%h %d` (host, then device) unless told otherwise; adapters whose host never wrote one say
`MT4129 ConnectX7   Mellanox Technologies`; managed switches say `MF0;<system>:<model>/<chip>`, unmanaged ones
the name of their chip. Descriptions are chosen by whoever administers the host: they are claims, no proof.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from llmgw.base import is_host_name, natural_key

_DEVICE = re.compile(
    r"(?:mlx[45]|mthca|qib|hfi1?|ipath|irdma|bnxt_re|rxe|siw|smi|gsi|efa|hns|erdma)_?[0-9].*|mlx[45]_[a-z].*"
    r"|HCA-[0-9]+|(?:ib|roce)[ops][0-9].*|ib[0-9]+",
    re.IGNORECASE | re.ASCII,
)
_FACTORY = re.compile(r"MT[0-9]{4,6} .*|.*\b(?:Mellanox|NVIDIA) Technologies\b.*|.*\bHCA Voltaire\b.*", re.ASCII)
_AGGREGATION = re.compile(r".*\bAggregation Node\b.*")
_SWITCH = re.compile(r"MF[0-9]*;([^:;]+):([^/]+)(?:/(.*))?")
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


natural_order = lru_cache(maxsize=1 << 16)(natural_key)
"""natural_key, worked out once for each text: names come by thousands, and sorting asks for each again."""

_is_host = lru_cache(maxsize=1 << 16)(is_host_name)


@lru_cache(maxsize=1 << 12)
def _is_device(word: str) -> bool:
    return _DEVICE.fullmatch(word) is not None


class Claim(Struct, frozen=True, gc=False):
    """What a description claims. `host` is None where it names none; `device` is empty where it names none."""

    host: str | None
    device: str


class SwitchName(NamedTuple):
    """A switch's description taken apart: `system` is what its label says; `chip` is empty without one."""

    system: str
    model: str
    chip: str


NOBODY = Claim(None, "")


def claim(description: str, inventory: Callable[[str], str | None] | None = None) -> Claim:
    """The host and device that an adapter's description claims.

    `inventory` returns the inventory's own name of a host (for any way of writing it), None for a stranger. A
    word that the inventory knows is the host wherever it stands; else the first word, or the last where a device
    stands first. Several words without a device name nobody, and so do factory settings and no words at all.
    """
    words = description.split()
    if len(words) == 2 and _is_device(words[1]) and _is_host(words[0]):
        return Claim((inventory and inventory(words[0])) or words[0], words[1])
    if not words or _FACTORY.match(description.strip()):
        return NOBODY
    for place, word in enumerate(words[:8] if inventory else ()):
        if inventory and (host := inventory(word)):
            return Claim(host, _device(words[:place] + words[place + 1 :]))
    devices = [place for place, word in enumerate(words) if _is_device(word)]
    if devices:
        rest = words[: devices[0]] or words[devices[0] + 1 :][-1:]
        return Claim(rest[0] if rest and _is_host(rest[0]) else None, words[devices[0]])
    if len(words) > 2 or not _is_host(words[0]):
        return NOBODY
    return Claim(words[0], words[1] if len(words) == 2 else "")


def _device(words: list[str]) -> str:
    """The first word that looks like a device, else the only one."""
    for word in words:
        if _is_device(word):
            return word
    return words[0] if len(words) == 1 else ""


@lru_cache(maxsize=1 << 16)
def host_class(host: str) -> str:
    """Hosts of one class differ in their digits only: `luna-0195` and `luna-0560` are both `luna-`."""
    return _DIGITS.sub("", host)


def says_aggregation(description: str) -> bool:
    """Whether a description calls itself a switch's aggregation node (SHARP)."""
    return _AGGREGATION.match(description) is not None


@lru_cache(maxsize=1 << 14)
def switch_name(description: str) -> SwitchName | None:
    """The parts of a managed switch's description; None for any other."""
    match = _SWITCH.fullmatch(description.strip())
    return SwitchName(match[1], match[2], match[3] or "") if match else None
