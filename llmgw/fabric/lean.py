"""A fabric's paths as far as a plan needs them, for thousands of nodes: equal rails are one object.

The GUIDs and PCI addresses of adapters are left out; a plan goes by leaves, rails, devices and rates. Nodes under
the same leaves then share their rails.
"""

from collections.abc import Hashable
from typing import Any

from msgspec import DecodeError, json
from pydantic import ValidationError

from llmgw.base import DocumentError, Place, document_error
from llmgw.fabric.paths import NodePath, Paths, Rail

_NO_GUID = "0" * 16


def lean_paths(text: str | bytes, source: str) -> Paths:
    """The paths document in `text`. DocumentError names `source` and the first thing wrong in it."""
    known: dict[Hashable, Any] = {}
    try:
        values = json.decode(text)
        nodes = values.pop("nodes", {})
        paths = Paths.model_validate({**values, "nodes": {}})
        places = {name: _place(place, known) for name, place in nodes.items()}
    except ValidationError as error:
        raise document_error(error, source, Paths) from None
    except (DecodeError, AttributeError, KeyError, TypeError) as error:
        raise DocumentError(Place(source), f"is no paths document: {error}") from None
    return paths.model_copy(update={"nodes": places})


def _place(place: dict[str, Any], known: dict[Hashable, Any]) -> NodePath:
    rails = place["rails"]
    for rail in rails:
        rail["guid"], rail["pci"] = _NO_GUID, ""
    written = json.encode(rails)
    if written not in known:
        known[written] = tuple(Rail.model_validate(rail) for rail in rails)
    place["rails"] = known[written]
    return NodePath.model_validate(place)
