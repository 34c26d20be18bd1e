"""Is the scan whole? complete, partial (and what is unknown), or rejected (and why, and on which line).

ibnetdiscover exits with 0 whatever it missed, so the text itself has to tell. A scan is complete where every
cable stands at both its ends, every device that is named has its block, nothing timed out, and nothing of the
text was unreadable. A timeout leaves both ends out alike: a cable with one end alone means a damaged text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from llmgw.base.bulk import collector_at_rest
from llmgw.fabric.pairs import OneSided, Pair, contradictions, join
from llmgw.fabric.parse import parse
from llmgw.fabric.scan import LIMIT_PROBLEMS, Kind, Problem, Scan, Trouble, Weight
from llmgw.fabric.warned import judge_stderr, lines_of

_UNREAD = {Trouble.UNREAD_HEAD, Trouble.UNREAD_PORT, Trouble.NO_RATE}
_ID = re.compile(r"[SHR?]-([0-9a-fA-F]{16})")
_STATES: dict[Weight, Literal["complete", "partial", "rejected"]] = {
    Weight.NOTE: "complete",
    Weight.PARTIAL: "partial",
    Weight.REJECTED: "rejected",
}
_FIRST = (
    Trouble.TOO_LARGE,
    Trouble.OTHER_FORM,
    Trouble.NO_SCAN,
    Trouble.TOOL_FAILED,
    Trouble.TWO_SCANS,
    Trouble.NO_SWITCH,
    Trouble.CUT_OFF,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be done with a scan.

    complete: it replaces the map. partial: what it did not see is unknown, not gone. rejected: it changes nothing.
    `reason` is a sentence, empty for complete; `line` is where it shows, 0 for no line. `problems` are all of
    the scan's, by line, notes among them.
    """

    state: Literal["complete", "partial", "rejected"]
    reason: str
    line: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A text read and judged: what it says, its cables, and what they are worth.

    `edges` are the places in `pairs` of cables that have an adapter or a router at an end.
    """

    scan: Scan
    pairs: Sequence[Pair]
    edges: Sequence[int]
    verdict: Verdict


def read(text: str, *, stderr: str = "") -> Reading:
    """The scan in a text, with what its tool wrote to stderr where that was kept apart. Raises nothing."""
    with collector_at_rest():
        return judge(parse(text), stderr=stderr)


def judge(scan: Scan, *, stderr: str = "") -> Reading:
    """What a scan is worth, and its cables."""
    joined = join(scan)
    problems = [
        *scan.problems,
        *judge_stderr([*scan.warned, *lines_of(stderr)], scan),
        *_whole(scan),
        *_ends(scan, joined.one_sided),
        *contradictions(joined.differing),
    ]
    return Reading(scan, joined.pairs, joined.edges, _verdict(scan, problems))


def _verdict(scan: Scan, problems: list[Problem]) -> Verdict:
    if scan.devices:
        problems = [problem for problem in problems if problem.kind is not Trouble.OTHER_FORM]
    problems.sort(key=lambda problem: (problem.line, problem.kind, problem.message))
    weight = max((problem.weight for problem in problems), default=Weight.NOTE)
    worst = [problem for problem in problems if problem.weight is weight]
    kept = tuple(problems)
    if len(kept) > LIMIT_PROBLEMS:
        heaviest = sorted(problems, key=lambda problem: -problem.weight)[:LIMIT_PROBLEMS]
        kept = tuple(sorted(heaviest, key=lambda problem: problem.line))
    if weight is Weight.NOTE:
        return Verdict("complete", "", 0, kept)
    worst.sort(key=_rank)
    first = worst[0]
    more = f", and {len(worst) - 1} more" if weight is Weight.PARTIAL and len(worst) > 1 else ""
    what = f"{first.kind}: {first.message}" if first.message else str(first.kind)
    return Verdict(_STATES[weight], what + more, first.line, kept)


def _rank(problem: Problem) -> int:
    """How early a problem of the worst weight is told; that there are more tells nothing by itself."""
    if problem.kind is Trouble.MORE:
        return len(_FIRST) + 1
    return _FIRST.index(problem.kind) if problem.kind in _FIRST else len(_FIRST)


def _whole(scan: Scan) -> Iterator[Problem]:
    """What is missing of the text as a whole."""
    header = scan.header
    switches = [device for device in scan.devices.values() if device.kind is Kind.SWITCH]
    if not scan.devices:
        if not any(problem.weight is Weight.REJECTED for problem in scan.problems):
            what = "the text is empty" if not scan.lines else "the text holds no device of ibnetdiscover's output"
            yield Problem(0, Trouble.NO_SCAN, Weight.REJECTED, what)
        return
    if not switches:
        first = next(iter(scan.devices.values()))
        what = "the scanning node's port is down, or what it is cabled to does not answer"
        yield Problem(first.line, Trouble.NO_SWITCH, Weight.REJECTED, what)
        return
    if not header.tool:
        yield Problem(1, Trouble.NO_HEADER, Weight.PARTIAL, "the beginning may be missing")
    elif header.tool == "ibnetdiscover" and not header.node:
        yield Problem(header.line, Trouble.NO_HEADER, Weight.PARTIAL, "it does not name the scanning node")
    elif header.node and header.node not in scan.devices:
        what = f"{header.node} has no block"
        yield Problem(header.line, Trouble.NO_SCANNER, Weight.PARTIAL, what)
    if any(switch.lid for switch in switches):
        for switch in switches:
            if switch.lid == 0:
                what = f"{switch.guid} did not tell its state, or the subnet manager has not reached it"
                yield Problem(switch.line, Trouble.NO_LID, Weight.PARTIAL, what)
    if any(device.model for device in scan.devices.values()):
        for device in scan.devices.values():
            if not device.model:
                what = f"{device.guid} has no devid line above it, others have"
                yield Problem(device.line, Trouble.NO_MODEL, Weight.PARTIAL, what)


def _ends(scan: Scan, one_sided: list[OneSided]) -> Iterator[Problem]:
    """Cables with one end: unread lines explain theirs, the others show that the text is damaged or cut off."""
    unread = [problem for problem in scan.problems if problem.kind in _UNREAD]
    named = {guid.lower() for problem in unread for guid in _ID.findall(problem.shown)}
    bare = [end for end in one_sided if end.device.guid not in named and end.line.peer not in named]
    if scan.header.cut and any(problem.line == scan.lines for problem in unread):
        yield Problem(scan.lines, Trouble.CUT_OFF, Weight.REJECTED, "the text ends inside a line")
    elif bare:
        yield _damage(scan, bare)
    for end in one_sided[:LIMIT_PROBLEMS]:
        if end not in bare:
            yield Problem(end.line.line, Trouble.ONE_SIDED, Weight.PARTIAL, _end_words(end))


def _damage(scan: Scan, bare: list[OneSided]) -> Problem:
    absent = {end.line.peer for end in bare if end.line.peer not in scan.devices}
    first = min(bare, key=lambda end: end.line.line)
    if absent:
        what = (
            f"after line {scan.lines}: {len(absent)} devices that others are cabled to are not in the text,"
            f" the first on line {first.line.line}"
        )
        return Problem(scan.lines, Trouble.CUT_OFF, Weight.REJECTED, what)
    more = f"; {len(bare) - 1} more like this" if len(bare) > 1 else ""
    return Problem(first.line.line, Trouble.ONE_SIDED, Weight.REJECTED, _end_words(first) + more)


def _end_words(end: OneSided) -> str:
    return (
        f"port {end.line.port} of {end.device.guid} is cabled to port {end.line.peer_port} of {end.line.peer},"
        f" {end.why}"
    )
