"""What one router process has counted and sees, as plain values; and several processes' of it put together."""

import asyncio
from collections.abc import Iterable
from typing import Any

from llmgw.router.core import Router
from llmgw.router.tallies import Histogram

Snapshot = dict[str, Any]


def snapshot(router: Router) -> Snapshot:
    """Everything that pages and metrics show of this process. JSON all through."""
    now, tallies = router.time(), router.tallies
    return {
        "generation": router.catalog.generation,
        "loaded_at": router.loaded_at,
        "problem": router.problem,
        "stopping": router.stopping,
        "connections": len(router.fronts),
        "under_way": len(router.exchanges),
        "tasks": len(asyncio.all_tasks()),
        "queued": {name: len(queue) for name, queue in router.queues.items()},
        "endpoints": {backend.url: _endpoint(backend, now) for backend in router.backends.by_url.values()},
        "tallies": [[*name, _tally(tally)] for name, tally in tallies.by_endpoint.items()],
        "accounts": [[*name, list(account.values())] for name, account in tallies.accounts.items()],
        "refused": dict(tallies.refused),
        "retries": dict(tallies.retries),
        "ejections": dict(tallies.ejections),
        "reloads": dict(tallies.reloads),
    }


def _endpoint(backend: Any, now: float) -> dict[str, Any]:
    return {
        "id": backend.service.id,
        "models": list(backend.service.models),
        "profile": backend.service.profile,
        "node": backend.service.node,
        "state": "gone" if backend.left_at else "draining" if backend.service.draining else "ready",
        "in_flight": backend.in_flight,
        "kept": len(backend.idle) + len(backend.resting),
        "failures": backend.standing.failures,
        "ejected": backend.is_out(now),
        "load": backend.elsewhere,
    }


def _tally(tally: Any) -> dict[str, Any]:
    return {
        "outcomes": dict(tally.outcomes),
        "first": _histogram(tally.first),
        "between": _histogram(tally.between),
        "whole": _histogram(tally.whole),
    }


def _histogram(histogram: Histogram) -> list[Any]:
    return [histogram.total, *histogram.counts]


def together(parts: Iterable[Snapshot]) -> Snapshot:
    """Several processes' snapshots as one: counts added, the lowest generation, the first problem."""
    parts = list(parts)
    whole = dict(parts[0])
    whole["generation"] = min(part["generation"] for part in parts)
    whole["loaded_at"] = max(part["loaded_at"] for part in parts)
    whole["problem"] = next((part["problem"] for part in parts if part["problem"]), "")
    whole["stopping"] = any(part["stopping"] for part in parts)
    for name in ("connections", "under_way", "tasks"):
        whole[name] = sum(part[name] for part in parts)
    for name in ("queued", "refused", "retries", "ejections", "reloads"):
        whole[name] = _added(part[name] for part in parts)
    whole["endpoints"] = _endpoints(part["endpoints"] for part in parts)
    whole["tallies"] = _rows((part["tallies"] for part in parts), 3)
    whole["accounts"] = _rows((part["accounts"] for part in parts), 5)
    return whole


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in counts:
        for name, number in one.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def _endpoints(parts: Iterable[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for url, endpoint in part.items():
            seen = found.setdefault(url, {**endpoint, "in_flight": 0, "kept": 0, "ejected": False})
            seen["in_flight"] += endpoint["in_flight"]
            seen["kept"] += endpoint["kept"]
            seen["ejected"] |= endpoint["ejected"]
    return found


def _rows(parts: Iterable[list[list[Any]]], names: int) -> list[list[Any]]:
    found: dict[tuple[str, ...], Any] = {}
    for part in parts:
        for row in part:
            name = tuple(row[:names])
            found[name] = _sum(found[name], row[names]) if name in found else row[names]
    return [[*name, value] for name, value in found.items()]


def _sum(one: Any, other: Any) -> Any:
    """Numbers, lists of them place by place, and mappings by key."""
    if isinstance(one, dict):
        return {
            name: _sum(one[name], other[name]) if name in one and name in other else one.get(name, other.get(name))
            for name in {**one, **other}
        }
    if isinstance(one, list):
        return [_sum(a, b) for a, b in zip(one, other, strict=True)]
    return one + other
