"""What is known of fabrics beside their scans: the devices that each has, and the cables that are missed."""

import json

from llmgw.store.database import State
from llmgw.store.maps import fabrics, unpacked


def devices(state: State) -> dict[str, frozenset[str]]:
    """The keys of what each fabric is known to have, by its map and a partial one since: a switch's GUID, an adapter's
    GUID and port (`0c42a10300000001/1`)."""
    found: dict[str, set[str]] = {fabric.name: set() for fabric in fabrics(state)}
    rows = state.rows(
        """SELECT fabric, devices, topology FROM scans
           WHERE id IN (SELECT map FROM fabrics UNION SELECT partial FROM fabrics)"""
    )
    for name, packed, topology in rows:
        keys = unpacked(packed)
        found[name].update(_keys_of(unpacked(topology) or "{}") if keys is None else keys.splitlines())
    return {name: frozenset(keys) for name, keys in found.items()}


def _keys_of(topology: str) -> list[str]:
    """The keys in a topology document, for scans that were remembered before keys were kept by themselves."""
    document = json.loads(topology)
    adapters = [f"{one['guid']}/{one['port']}" for one in document.get("adapters", ())]
    return [one["guid"] for one in document.get("switches", ())] + adapters


def missed_text(state: State, fabric: str) -> str:
    """The cables that are missed in a fabric, a JSON list."""
    row = state.one("SELECT missed FROM fabrics WHERE name = ?", fabric)
    return str(row[0]) if row else "[]"


def forget_missed(state: State, fabric: str) -> None:
    """Miss no cable of the fabric any longer."""
    with state.change() as connection:
        connection.execute("UPDATE fabrics SET missed = '[]' WHERE name = ?", (fabric,))
