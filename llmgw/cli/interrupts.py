"""Ctrl-C and SIGTERM while something is under way: counted, so that the work can end where it is safe."""

import signal
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from llmgw.cli.workspace import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interrupts:
    """Inside `with`, the first Ctrl-C asks to begin nothing new, a second one or SIGTERM to leave at once."""

    count: int = 0
    terminated: bool = False
    _before: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.terminated = True
            self.count = 2
            return
        self.count += 1
        if self.count == 1:
            say(
                "\nllmgw: nothing new is begun; what is under way goes on to its end. Ctrl-C again leaves it at once."
            )

    def asked(self) -> int:
        """How often it was asked to end."""
        return self.count

    def leaving(self) -> bool:
        """Whether to leave at once."""
        return self.count > 1
