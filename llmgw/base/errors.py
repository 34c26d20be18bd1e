"""What an operator can mend. Anything else that goes wrong is a bug and keeps its traceback."""

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What every llmgw command ends with. The table in docs/exit-codes.md is checked against this."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    LOCKED = 4
    UNREACHABLE = 5
    STEPS_FAILED = 6
    UNPLACED = 7
    CHANGES = 10
    INTERRUPTED = 130
    TERMINATED = 143


MEANING: dict[ExitCode, str] = {
    ExitCode.DONE: "done, or nothing to do",
    ExitCode.ERROR: "an error",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.REFUSED: "refused: the plan is stale, consumed or of another site",
    ExitCode.LOCKED: "locked by someone else",
    ExitCode.UNREACHABLE: "some nodes could not be reached, all else is done",
    ExitCode.STEPS_FAILED: "some steps failed, the rest is done and resumable",
    ExitCode.UNPLACED: "something cannot be placed",
    ExitCode.CHANGES: "there are changes (only with --detailed-exitcode)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C, state saved",
    ExitCode.TERMINATED: "ended by SIGTERM, state saved",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a text something stands: file, line from 1 (0: unknown), and path inside the document."""

    source: str
    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return f"{where}: {self.path}" if self.path else where


class LlmgwError(Exception):
    """Says what is wrong and, in `hint`, what to do next."""

    exit_code = ExitCode.ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class DocumentError(LlmgwError):
    """A document that cannot be read: where, and what is wrong there."""

    def __init__(self, place: Place, message: str, *, hint: str = "") -> None:
        super().__init__(f"{place}: {message}", hint=hint)
        self.place = place


class UsageError(LlmgwError):
    """The command line asks for something that does not exist or does not go together."""

    exit_code = ExitCode.USAGE


class RefusedError(LlmgwError):
    """The world is not the one that was planned for; nothing was done."""

    exit_code = ExitCode.REFUSED


class LockedError(LlmgwError):
    """Another llmgw holds the lock; the message names it."""

    exit_code = ExitCode.LOCKED
