"""Nodes' facts as far as a plan needs them, for sites of thousands of nodes: equal parts are one object.

What a plan never asks for (adapters, disks, GPUs' serial numbers and addresses) is left out, so that the GPUs, engines
and weights of like nodes are the same few objects: a twentieth of the memory, and a fifth of the time. All that is
kept is checked as Facts.read checks it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import DecodeError, json
from pydantic import ValidationError

from llmgw.base import DocumentError, Place, Value, document_error
from llmgw.base.bulk import collector_at_rest
from llmgw.observed.facts import Facts, Gpu, InstalledEngine, NodeFacts, Weights

_LEFT_OUT = ("adapters", "disks", "rights", "hostname", "boot_id", "python")


@collector_at_rest()
def lean_facts(
    texts: Iterable[tuple[str, str | bytes]], *, asked_at: datetime, silent: Mapping[str, datetime | None]
) -> Facts:
    """Facts of node names, as the inventory has them, and the JSON texts of their NodeFacts.

    DocumentError names the node whose text is wrong, and the first thing wrong in it.
    """
    reader = _Reader()
    nodes = {name: reader.node(name, text) for name, text in texts}
    return Facts.model_construct(format="llmgw-facts/1", asked_at=asked_at, nodes=nodes, silent=dict(silent))


class _Reader:
    """Reads one node after the other and remembers every part that it has seen."""

    def __init__(self) -> None:
        self._parts: dict[tuple[type[Value], bytes], tuple[Value, ...]] = {}

    def node(self, name: str, text: str | bytes) -> NodeFacts:
        try:
            values = json.decode(text)
            for key in _LEFT_OUT:
                values.pop(key, None)
            gpus = _rows(values, "gpus")
            for gpu in gpus:
                gpu["uuid"] = gpu["pci"] = ""
            parts = {
                "gpus": self._shared(Gpu, gpus),
                "engines": self._shared(InstalledEngine, _rows(values, "engines")),
                "weights": self._shared(Weights, _rows(values, "weights")),
            }
            found = NodeFacts.model_validate({key: value for key, value in values.items() if key not in parts})
            return found.model_copy(update=parts)  # validation would make tuples of its own
        except ValidationError as error:
            raise document_error(error, name, NodeFacts) from None
        except (DecodeError, AttributeError, TypeError, ValueError) as error:
            raise DocumentError(Place(name), f"is no facts document: {error}") from None

    def _shared(self, kind: type[Value], found: Iterable[dict[str, Any]]) -> tuple[Value, ...]:
        """The parts as values of that kind, one and the same tuple for equal lists."""
        key = kind, json.encode(found)
        if key not in self._parts:
            self._parts[key] = tuple(self._one(kind, part) for part in found)
        return self._parts[key]

    def _one(self, kind: type[Value], part: dict[str, Any]) -> Value:
        key = kind, json.encode([part])
        if key not in self._parts:
            self._parts[key] = (kind.model_validate(part),)
        return self._parts[key][0]


def _rows(values: dict[str, Any], key: str) -> list[Any]:
    """The list of that name; TypeError where it is none."""
    found = values.get(key, [])
    if not isinstance(found, list):
        raise TypeError(f"{key} should be a list")
    return found
