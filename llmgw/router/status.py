"""endpoints.status: what this host's router processes have loaded and under way, for `apply` to read.

Each process writes a part of its own. The one that leads writes the sum of all parts whose process lives: a
router that drains after it handed its sockets on still counts.
"""

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmgw.base import LlmgwError
from llmgw.router.core import Router
from llmgw.router.published import STATUS
from llmgw.serving.endpoints import EndpointsStatus
from llmgw.store.files import write_whole

_PART = ".endpoints.status."
_MODE = 0o644  # the account that apply logs in with need not be the router's


class StatusFile:
    """Writes when something changed, and every ten seconds."""

    def __init__(self, router: Router, folder: Path, *, leads: bool) -> None:
        self._router = router
        self._folder = folder
        self._leads_since = router.wall if leads else 0.0
        self._own = folder / f"{_PART}{os.getpid()}"
        self._last: tuple[Any, ...] = ()
        self._written_at = 0.0

    def part(self) -> dict[str, Any] | None:
        """What is to be written; None where nothing changed since the last time."""
        router = self._router
        in_flight: dict[str, int] = {}
        for backend in router.backends.by_url.values():
            name = backend.service.id
            in_flight[name] = in_flight.get(name, 0) + backend.in_flight
        state = (router.catalog.generation, router.loaded_at, in_flight)
        if state == self._last and router.wall - self._written_at < 10.0 and not self._leads_since:
            return None
        self._last, self._written_at = state, router.wall
        return {
            "pid": os.getpid(),
            "leads_since": self._leads_since,
            "stopping": router.stopping,
            "generation": router.catalog.generation,
            "loaded_at": router.loaded_at,
            "in_flight": in_flight,
        }

    def write(self, part: dict[str, Any] | None) -> None:
        """To the disk; to be called from a thread. A folder that cannot be written is left alone."""
        if part is None:
            return
        with contextlib.suppress(OSError, LlmgwError):
            write_whole(self._own, json.dumps(part), mode=_MODE)
            if self._leads_since:
                parts = _living(self._folder)
                if all(other["leads_since"] <= self._leads_since for other in parts):
                    write_whole(self._folder / STATUS, self._sum(parts).text(), mode=_MODE)

    def _sum(self, parts: list[dict[str, Any]]) -> EndpointsStatus:
        in_flight: dict[str, int] = {}
        for part in parts:
            for name, number in part["in_flight"].items():
                in_flight[name] = in_flight.get(name, 0) + number
        serving = [part for part in parts if not part["stopping"]]
        return EndpointsStatus(
            router=self._router.config.name,
            generation=max(0, min((part["generation"] for part in serving), default=0)),
            loaded_at=datetime.fromtimestamp(max(part["loaded_at"] for part in parts), UTC),
            written_at=datetime.now(UTC),
            in_flight=in_flight,
        )

    def remove(self) -> None:
        """This process counts no more."""
        with contextlib.suppress(OSError):
            self._own.unlink()


def _living(folder: Path) -> list[dict[str, Any]]:
    """The parts whose processes live; those of dead ones are removed."""
    parts = []
    for path in folder.glob(f"{_PART}*"):
        pid = path.name.removeprefix(_PART)
        if not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
            parts.append(json.loads(path.read_text()))
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError):
            continue
    return parts
