"""Scans as they came, and the map of each fabric that was made from them.

A scan that says what its fabric's last one of the same verdict said is no new row: that row was seen once more. So the
rows are what changed, a fabric that stays as it is takes no room, and a map keeps its number as long as it holds.
"""

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from llmgw.base.text import moment
from llmgw.store.database import State

if TYPE_CHECKING:
    from llmgw.fabric import Paths


@dataclass(frozen=True, slots=True)
class NewScan:
    """A scan to be remembered.

    `digest` is of what it says. `topology` and `paths` are documents as text, None where it was rejected; so are the
    JSON texts of the map's figures (`summary`), of what changed from the map before, and of the cables that are missed
    from now on (None: as before). `devices` are the keys of the map's switches and adapters.
    """

    fabric: str
    at: datetime
    source: str
    verdict: str
    problems: str
    raw: str
    stderr: str
    digest: str = ""
    topology: str | None = None
    paths: str | None = None
    linkinfo: str = ""
    summary: str = ""
    changes: str = "[]"
    devices: Iterable[str] = ()
    missed: str | None = None


@dataclass(frozen=True, slots=True)
class StoredScan:
    """A remembered scan without its texts, which are fetched by its number.

    It was seen `times` times in a row, first at `first_at`, last at `at` from `source`.
    """

    number: int
    fabric: str
    at: str
    source: str
    verdict: str
    problems: str
    first_at: str
    times: int
    summary: dict[str, int]
    changes: list[dict[str, Any]]


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

    @property
    def newest(self) -> int | None:
        """The last scan that gave a map, whole or in part."""
        return self.partial if self.partial is not None else self.map


def _packed(text: str | None) -> bytes | None:
    return None if text is None else zlib.compress(text.encode("utf-8", "surrogateescape"), 6)


def unpacked(packed: bytes | None) -> str | None:
    """A text as the store keeps it, compressed."""
    return None if packed is None else zlib.decompress(packed).decode("utf-8", "surrogateescape")


_TEXTS = ("at", "source", "problems", "raw", "stderr", "topology", "paths", "linkinfo")


def _texts(scan: NewScan) -> tuple[Any, ...]:
    """The values of _TEXTS."""
    packed = (_packed(scan.topology), _packed(scan.paths), _packed(scan.linkinfo or None))
    return (moment(scan.at), scan.source, scan.problems, _packed(scan.raw), scan.stderr, *packed)


def repeat_scan(state: State, scan: NewScan) -> int | None:
    """The number of the row that says the same, which is seen once more; None where this one says something new."""
    with state.change() as connection:
        row = connection.execute(
            """SELECT id FROM scans WHERE fabric = ?1 AND digest = ?2 AND digest <> '' AND verdict = ?3 AND id = CASE ?3
                 WHEN 'complete' THEN (SELECT map FROM fabrics WHERE name = ?1)
                 WHEN 'partial' THEN (SELECT partial FROM fabrics WHERE name = ?1)
                 ELSE (SELECT max(id) FROM scans WHERE fabric = ?1 AND verdict = ?3) END""",
            (scan.fabric, scan.digest, scan.verdict),
        ).fetchone()
        if row is None:
            return None
        columns = ", ".join(f"{name} = ?" for name in _TEXTS)
        connection.execute(
            f"UPDATE scans SET times = times + 1, {columns} WHERE id = ?",  # noqa: S608 -- names of columns
            (*_texts(scan), row[0]),
        )
        _stand(connection, scan, int(row[0]))
    return int(row[0])


def save_scan(state: State, scan: NewScan) -> int:
    """Remember a scan; its number. A complete one becomes the map, a partial one stands beside it."""
    with state.change() as connection:
        columns = (*_TEXTS, "fabric", "verdict", "first_at", "digest", "summary", "changes", "devices")
        own = (scan.fabric, scan.verdict, moment(scan.at), scan.digest, scan.summary, scan.changes)
        values = (*_texts(scan), *own, _packed("\n".join(scan.devices)))
        cursor = connection.execute(
            f"INSERT INTO scans ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",  # noqa: S608
            values,
        )
        number = int(cursor.lastrowid or 0)
        _stand(connection, scan, number)
    return number


def _stand(connection: Any, scan: NewScan, number: int) -> None:
    """Let the fabric's row name the scan for what it is."""
    connection.execute(
        "INSERT INTO fabrics (name, last) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET last = excluded.last",
        (scan.fabric, number),
    )
    if scan.verdict == "complete":
        connection.execute("UPDATE fabrics SET map = ?, partial = NULL WHERE name = ?", (number, scan.fabric))
    elif scan.verdict == "partial":
        connection.execute("UPDATE fabrics SET partial = ? WHERE name = ?", (number, scan.fabric))
    if scan.missed is not None:
        connection.execute("UPDATE fabrics SET missed = ? WHERE name = ?", (scan.missed, scan.fabric))


def fabrics(state: State) -> list[StoredFabric]:
    """Every fabric ever scanned, by name."""
    return [StoredFabric(*row) for row in state.rows("SELECT name, map, partial, last FROM fabrics ORDER BY name")]


def forget_fabric(state: State, name: str) -> bool:
    """Drop a fabric and all its scans; whether there was one."""
    with state.change() as connection:
        connection.execute("DELETE FROM scans WHERE fabric = ?", (name,))
        return connection.execute("DELETE FROM fabrics WHERE name = ?", (name,)).rowcount > 0


def rename_fabric(state: State, old: str, new: str) -> None:
    """Give a fabric and its scans another name, which must be free."""
    with state.change() as connection:
        connection.execute("UPDATE scans SET fabric = ? WHERE fabric = ?", (new, old))
        connection.execute("UPDATE fabrics SET name = ? WHERE name = ?", (new, old))


_COLUMNS = "id, fabric, at, source, verdict, problems, first_at, times, summary, changes"


def _stored(row: tuple[Any, ...]) -> StoredScan:
    number, *words, times, summary, changes = row
    fabric, at, source, verdict, problems, first_at = map(str, words)
    return StoredScan(
        number,
        fabric,
        at,
        source,
        verdict,
        problems,
        first_at,
        times,
        json.loads(summary or "{}"),
        json.loads(changes),
    )


def scans(state: State, fabric: str, *, limit: int = 1000) -> list[StoredScan]:
    """A fabric's scans, the newest first."""
    rows = state.rows(
        f"SELECT {_COLUMNS} FROM scans WHERE fabric = ? ORDER BY id DESC LIMIT ?",  # noqa: S608 -- names of columns
        fabric,
        limit,
    )
    return [_stored(row) for row in rows]


def stored_scan(state: State, number: int | None) -> StoredScan | None:
    """A scan by its number; None where it is not remembered."""
    row = state.one(f"SELECT {_COLUMNS} FROM scans WHERE id = ?", number)  # noqa: S608 -- names of columns
    return _stored(row) if row else None


def maps_until(state: State, fabric: str, number: int) -> list[StoredScan]:
    """What was known of the fabric up to that scan: the last complete map, then the partial ones made since it was
    last seen, oldest first; partial ones alone where there is no map."""
    last_map = state.one(
        "SELECT id, at FROM scans WHERE fabric = ? AND id <= ? AND verdict = 'complete' ORDER BY id DESC LIMIT 1",
        fabric,
        number,
    )
    first, at = last_map or (0, "")
    rows = state.rows(
        f"""SELECT {_COLUMNS} FROM scans WHERE fabric = ? AND id <= ?
            AND (id = ? OR (id > ? AND verdict = 'partial' AND at >= ?)) ORDER BY id""",  # noqa: S608 -- names of columns
        fabric,
        number,
        first,
        first,
        at,
    )
    return [_stored(row) for row in rows]


def scan_texts(state: State, number: int) -> tuple[str, str, str] | None:
    """A scan's raw text, its stderr and its iblinkinfo text (empty: none); None where it is not remembered."""
    row = state.one("SELECT raw, stderr, linkinfo FROM scans WHERE id = ?", number)
    return (unpacked(row[0]) or "", row[1], unpacked(row[2]) or "") if row else None


def topology_text(state: State, number: int) -> str | None:
    """The topology document of a scan; None where it was rejected or is not remembered."""
    row = state.one("SELECT topology FROM scans WHERE id = ?", number)
    return unpacked(row[0]) if row else None


def current_paths(
    state: State, *, read: "Callable[[str | bytes, str], Paths] | None" = None
) -> "dict[str, Paths]":
    """What placement needs of every fabric that has a map, by fabric name, each with its scan's number.

    `read` makes a value of a document's text and the name of its source; else Paths.read does.
    """
    if read is None:
        from llmgw.fabric import Paths

        read = Paths.read
    found: dict[str, Paths] = {}
    for fabric in fabrics(state):
        row = state.one("SELECT paths FROM scans WHERE id = ?", fabric.best)
        text = unpacked(row[0]) if row else None
        if text:
            found[fabric.name] = read(text, f"scan {fabric.best}").model_copy(update={"scan": fabric.best})
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
                 AND id NOT IN (SELECT partial FROM fabrics WHERE partial IS NOT NULL)
                 AND id NOT IN (SELECT last FROM fabrics)""",
            (keep, oldest),
        )
    return int(cursor.rowcount)
