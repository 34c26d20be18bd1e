"""One JSON line for each request, to a file or standard output. Never a key, never a prompt."""

import logging
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from llmgw.router.exchange import Exchange

log = logging.getLogger("llmgw.router")
_encode = msgspec.json.encode
_MOST_LINES = 100_000


class AccessLog:
    """Lines are gathered here and written by a thread of its own, so that a slow disk slows no request.

    The file is opened for each batch: it may be renamed at any time, as logrotate does.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._batches: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="access-log", daemon=True)
        self._thread.start()
        self.dropped = 0

    def write(self, exchange: "Exchange", outcome: str, now: float) -> None:
        """One line for an exchange that is over. `now` is the event loop's time."""
        if len(self._lines) >= _MOST_LINES:
            self.dropped += 1
            return
        self._lines.append(_encode(_line(exchange, outcome, now)))

    def flush(self) -> None:
        """Hands what was gathered to the thread."""
        if self._lines:
            self._batches.put(b"\n".join((*self._lines, b"")))
            self._lines.clear()

    def close(self) -> None:
        """Writes the last lines; waits two seconds at most."""
        self.flush()
        self._batches.put(None)
        self._thread.join(2.0)

    def _write_all(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._write(batch)
            except OSError as error:
                log.error("access_log_failed", extra={"problem": str(error)})

    def _write(self, batch: bytes) -> None:
        if self._path == "-":
            sys.stdout.buffer.write(batch)
            sys.stdout.buffer.flush()
            return
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            os.write(file, batch)
        finally:
            os.close(file)


def _line(exchange: "Exchange", outcome: str, now: float) -> dict[str, object]:
    caller, usage, backend = exchange.request.caller, exchange.usage, exchange.backend
    group = getattr(exchange, "group", None)
    started = exchange.router.wall - (now - exchange.started)
    return {
        "at": round(started, 3),
        "request_id": exchange.request_id.decode(),
        "client": exchange.front.address,
        "tenant": caller.tenant,
        "key": caller.key_id,
        "operation": exchange.route.operation,
        "model": group.target.model if group else "",
        "endpoint": backend.service.id if backend else "",
        "status": exchange.status,
        "outcome": outcome,
        "attempts": exchange.attempts,
        "first_token_ms": round((exchange.first_at - exchange.started) * 1e3, 1) if exchange.first_at else None,
        "duration_ms": round((now - exchange.started) * 1e3, 1),
        "prompt_tokens": usage.prompt if usage else None,
        "completion_tokens": usage.completion if usage else None,
        "estimated": exchange.estimated,
    }
