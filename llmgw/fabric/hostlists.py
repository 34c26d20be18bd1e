"""Names written short: Slurm's host lists, and switch labels that differ in one number."""

import re
from collections.abc import Iterable, Sequence

from llmgw.base import natural

_NUMBER_AT_END = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII)
_NUMBERS = re.compile(r"([0-9]{1,9})", re.ASCII)


def host_list(hosts: Iterable[str]) -> str:
    """Slurm's short form of host names: `gpu[01-03,07],login1`. Numbers of one width go together."""
    own = natural(set(hosts))
    parts = {host: match.groups() for host in own if (match := _NUMBER_AT_END.fullmatch(host))}
    padded = {(head, len(digits)) for head, digits in parts.values() if digits[0] == "0"}
    groups: dict[tuple[str, int], list[int]] = {}
    for host in own:
        head, digits = parts.get(host, (host, ""))
        width = len(digits) if (head, len(digits)) in padded else 0 if digits else -1
        numbers = groups.setdefault((head, width), [])
        numbers += [int(digits)] if digits else []
    return ",".join(_group(head, width, numbers) for (head, width), numbers in groups.items())


def _group(head: str, width: int, numbers: Sequence[int]) -> str:
    if not numbers:
        return head
    return head + (f"[{_ranges(numbers, width)}]" if len(numbers) > 1 else f"{numbers[0]:0{width}d}")


def _ranges(numbers: Iterable[int], width: int) -> str:
    """`01-03,07` of 1, 2, 3 and 7 at a width of 2."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges)


def label_list(labels: Sequence[str]) -> str:
    """Labels that differ in one number with that in brackets, `LG01-[01-08]`; others one by one, `a, b, c`, and of
    more than three the first and the last, `a to z`."""
    if len(labels) > 1 and (short := _one_number(labels)):
        return short
    return ", ".join(labels) if len(labels) < 4 else f"{labels[0]} to {labels[-1]}"


def _one_number(labels: Sequence[str]) -> str:
    """The labels in one, where they differ in one number only; empty where they do not."""
    split = [_NUMBERS.split(label) for label in labels]
    columns = list(zip(*split, strict=False))
    if len({len(parts) for parts in split}) > 1:
        return ""
    differing = [place for place, words in enumerate(columns) if len(set(words)) > 1]
    if len(differing) != 1 or differing[0] % 2 == 0:  # texts are at even places, numbers between them
        return ""
    place = differing[0]
    digits = columns[place]
    padded = any(word[0] == "0" and len(word) > 1 for word in digits)
    if len(set(digits)) < len(labels) or (padded and len({len(word) for word in digits}) > 1):
        return ""
    inside = _ranges(map(int, digits), len(digits[0]) if padded else 0)
    return "".join((*split[0][:place], f"[{inside}]", *split[0][place + 1 :]))
