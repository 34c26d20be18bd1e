"""Scans as they came, and the map of each fabric that was made from them."""

import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from llmgw.base import moment
from llmgw.fabric import Paths
from llmgw.store.database import State


@dataclass(frozen=True, slots=True)
class NewScan:
    """A scan to be remembered. `topology` and `paths` are documents as text, None where it was rejected."""

    fabric: str
    at: datetime
    source: str
    verdict: str
    problems: str
    raw: str
    stderr: str
    topology: str | None = None
    paths: str | None = None
    linkinfo: str = ""


@dataclass(frozen=True, slots=True)
class StoredScan:
    """A remembered scan without its texts, which are fetched by its number."""

    number: int
    fabric: str
    at: str
    source: str
    verdict: str
    problems: str


@dataclass(frozen=True, slots=True)
class StoredFabric:
    """A fabric: the numbers of its last complete map, of a partial one since, and of the last scan of any kind."""

    name: str
    map: int | None
    partial: int | None
    last: int

    @property
    def best(self) -> int | None:
        """The scan that stands for the fabric: the complete map, else the partial one."""
        return self.map if self.map is not None else self.partial


def _packed(text: str | None) -> bytes | None:
    return None if text is None else zlib.compress(text.encode("utf-8", "surrogateescape"), 6)


def _unpacked(packed: bytes | None) -> str | None:
    return None if packed is None else zlib.decompress(packed).decode("utf-8", "surrogateescape")


def save_scan(state: State, scan: NewScan) -> int:
    """Remember a scan; its number. A complete one becomes the map, a partial one stands beside it."""
    with state.change() as connection:
        cursor = connection.execute(
            """INSERT INTO scans (fabric, at, source, verdict, problems, raw, stderr, topology, paths, linkinfo)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                scan.fabric,
                moment(scan.at),
                scan.source,
                scan.verdict,
                scan.problems,
                _packed(scan.raw),
                scan.stderr,
                _packed(scan.topology),
                _packed(scan.paths),
                _packed(scan.linkinfo or None),
            ),
        )
        number = int(cursor.lastrowid or 0)
        connection.execute(
            "INSERT INTO fabrics VALUES (?, NULL, NULL, ?) ON CONFLICT (name) DO UPDATE SET last = excluded.last",
            (scan.fabric, number),
        )
        if scan.verdict == "complete":
            connection.execute("UPDATE fabrics SET map = ?, partial = NULL WHERE name = ?", (number, scan.fabric))
        elif scan.verdict == "partial":
            connection.execute("UPDATE fabrics SET partial = ? WHERE name = ?", (number, scan.fabric))
    return number


def fabrics(state: State) -> list[StoredFabric]:
    """Every fabric ever scanned, by name."""
    return [StoredFabric(*row) for row in state.rows("SELECT name, map, partial, last FROM fabrics ORDER BY name")]


def forget_fabric(state: State, name: str) -> bool:
    """Drop a fabric and all its scans; whether there was one."""
    with state.change() as connection:
        connection.execute("DELETE FROM scans WHERE fabric = ?", (name,))
        return connection.execute("DELETE FROM fabrics WHERE name = ?", (name,)).rowcount > 0


def scans(state: State, fabric: str, *, limit: int = 1000) -> list[StoredScan]:
    """A fabric's scans, the newest first."""
    rows = state.rows(
        "SELECT id, fabric, at, source, verdict, problems FROM scans WHERE fabric = ? ORDER BY id DESC LIMIT ?",
        fabric,
        limit,
    )
    return [StoredScan(*row) for row in rows]


def scan_texts(state: State, number: int) -> tuple[str, str, str] | None:
    """A scan's raw text, its stderr and its iblinkinfo text (empty: none); None where it is not remembered."""
    row = state.one("SELECT raw, stderr, linkinfo FROM scans WHERE id = ?", number)
    return (_unpacked(row[0]) or "", row[1], _unpacked(row[2]) or "") if row else None


def topology_text(state: State, number: int) -> str | None:
    """The topology document of a scan; None where it was rejected or is not remembered."""
    row = state.one("SELECT topology FROM scans WHERE id = ?", number)
    return _unpacked(row[0]) if row else None


def current_paths(state: State) -> dict[str, Paths]:
    """What placement needs of every fabric that has a map, by fabric name, each with its scan's number."""
    found: dict[str, Paths] = {}
    for fabric in fabrics(state):
        row = state.one("SELECT paths FROM scans WHERE id = ?", fabric.best)
        text = _unpacked(row[0]) if row else None
        if text:
            found[fabric.name] = Paths.read(text, f"scan {fabric.best}").model_copy(update={"scan": fabric.best})
    return found


def drop_old_scans(state: State, *, keep: int, keep_days: int, now: datetime) -> int:
    """Forget each fabric's scans beyond `keep` or older than `keep_days`; never its maps nor its last two."""
    oldest = moment(now - timedelta(days=keep_days))
    with state.change() as connection:
        cursor = connection.execute(
            """DELETE FROM scans WHERE id IN (SELECT id FROM
                 (SELECT id, at, row_number() OVER (PARTITION BY fabric ORDER BY id DESC) AS age FROM scans)
                 WHERE age > 2 AND (age > ? OR at < ?))
                 AND id NOT IN (SELECT map FROM fabrics WHERE map IS NOT NULL)
                 AND id NOT IN (SELECT partial FROM fabrics WHERE partial IS NOT NULL)""",
            (keep, oldest),
        )
    return cursor.rowcount
