"""Names: what may be one, how they are ordered, which known one was meant, and lists of hosts written short."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator

from llmgw.base.errors import UsageError

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE | re.ASCII)
_MODEL = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?", re.IGNORECASE | re.ASCII)
_GUID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_REPLICA = re.compile(r"(?P<model>[^/:]+)(?::(?P<profile>[^/:]+))?/(?P<ordinal>0|[1-9][0-9]{0,4})", re.ASCII)


@lru_cache(maxsize=1 << 15)
def is_host_name(text: str) -> bool:
    """Whether RFC 1123 allows the name: labels of letters, digits and inner dashes, 253 characters at most."""
    return len(text) <= 253 and bool(_HOST.fullmatch(text))


def _host_name(text: str) -> str:
    if not is_host_name(text):
        raise ValueError("should be a host name by RFC 1123: letters, digits, dashes and dots")
    return text


def _model_name(text: str) -> str:
    if not _MODEL.fullmatch(text):
        raise ValueError(
            "should be 1 to 63 letters, digits, dots, dashes and underscores, no dot or dash at an end"
        )
    return text


def _guid(text: str) -> str:
    if not _GUID.fullmatch(text):
        raise ValueError("should be a GUID: 16 lower-case hex digits")
    return text


HostName = Annotated[str, AfterValidator(_host_name)]
ModelName = Annotated[str, AfterValidator(_model_name)]
Guid = Annotated[str, AfterValidator(_guid)]
"""A device's name in a fabric: 16 lower-case hex digits. As a number it would not fit SQLite or JavaScript."""


def replica_name(model: str, profile: str | None, ordinal: int) -> str:
    """`model/0`, or `model:profile/0` for a replica of another profile than the model's default."""
    return f"{model}:{profile}/{ordinal}" if profile else f"{model}/{ordinal}"


def replica_parts(name: str) -> tuple[str, str | None, int]:
    """Model, profile (None: the default) and ordinal of a replica's name; ValueError where it is none."""
    match = _REPLICA.fullmatch(name)
    if not match:
        raise ValueError(f"{name!r} is no replica: should be MODEL/N or MODEL:PROFILE/N")
    return match["model"], match["profile"], int(match["ordinal"])


def unit_name(replica: str) -> str:
    """The systemd unit of a replica's rank, without `.service`; a node has at most one rank of a replica.

    `model/0` → llmgw-model-0, `model:profile/0` → llmgw-model:profile-0.
    """
    model, profile, ordinal = replica_parts(replica)
    return f"llmgw-{model}:{profile}-{ordinal}" if profile else f"llmgw-{model}-{ordinal}"


@lru_cache(maxsize=1 << 15)  # sorting asks for the same names again and again
def natural_key(text: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts `n2` before `n10`: runs of digits compare as numbers."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((0, int(part)) if part.isdigit() and part.isascii() else (1, part) for part in parts if part)


def natural(names: Iterable[str]) -> list[str]:
    """The names in natural order; of equal keys (`n1`, `n01`) the lexically smaller first."""
    return sorted(names, key=lambda name: (natural_key(name), name))


def near(word: str, known: Sequence[str]) -> list[str]:
    """Up to three of the known words that a typing error could have made into `word`, nearest first."""
    import difflib

    return difflib.get_close_matches(word, known, n=3, cutoff=0.6)


def hosts_of(pattern: str) -> list[str]:
    """The hosts of a Slurm hostlist: `gpu[01-03,7],login1` → gpu01 gpu02 gpu03 gpu7 login1.

    Several brackets multiply out. UsageError for an unbalanced bracket, a falling range, or over 100,000 hosts.
    """
    hosts: list[str] = []
    items = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", pattern)
    if pattern.count("[") != sum(item.count("[") for item in items):
        raise UsageError(f"{pattern!r} has a [ without its ]")
    for item in items:
        hosts.extend(_expanded(item))
        if len(hosts) > 100_000:
            raise UsageError(f"{pattern!r} names more than 100,000 hosts")
    return hosts


def _expanded(item: str) -> list[str]:
    head, bracket, rest = item.partition("[")
    if not bracket:
        if "]" in item:
            raise UsageError(f"{item!r} has a ] without its [")
        return [item]
    inside, _, tail = rest.partition("]")
    tails = _expanded(tail) if tail else [""]
    return [f"{head}{number}{end}" for part in inside.split(",") for number in _numbers(part) for end in tails]


def _numbers(part: str) -> list[str]:
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part, re.ASCII)
    if not match:
        raise UsageError(f"{part!r} is no number and no range like 01-16")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first) or int(last) - int(first) >= 100_000:
        raise UsageError(f"{part!r} is no rising range of at most 100,000")
    return [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
