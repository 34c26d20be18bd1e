"""A fabric's paths as far as a plan needs them, for thousands of nodes: equal rails are one object.

The GUIDs and PCI addresses of adapters are left out; a plan goes by leaves, rails, devices and rates. Nodes under
the same leaves then share their rails. All that is kept is checked as Paths.read checks it.
"""

from typing import Any

from msgspec import DecodeError, json
from pydantic import ValidationError

from llmgw.base import DocumentError, Place, document_error, is_host_name
from llmgw.base.bulk import collector_at_rest
from llmgw.fabric.paths import NodePath, Paths, Rail

_NO_GUID = "0" * 16


@collector_at_rest()
def lean_paths(text: str | bytes, source: str) -> Paths:
    """The paths document in `text`. DocumentError names `source` and the first thing wrong in it."""
    known: dict[bytes, tuple[Rail, ...]] = {}
    try:
        values = json.decode(text)
        nodes = values.pop("nodes")
        paths = Paths.model_validate({**values, "nodes": {}})
        places = {_host(name): _place(place, known) for name, place in nodes.items()}
    except ValidationError as error:
        raise document_error(error, source, Paths) from None
    except (DecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DocumentError(Place(source), f"is no paths document: {error}") from None
    return paths.model_copy(update={"nodes": places})


def _host(name: str) -> str:
    if not is_host_name(name):
        raise ValueError(f"{name!r} is no host name")
    return name


def _place(place: dict[str, Any], known: dict[bytes, tuple[Rail, ...]]) -> NodePath:
    rails = place["rails"]
    if not isinstance(rails, list):
        raise TypeError("rails should be a list")
    for rail in rails:
        rail["guid"], rail["pci"] = _NO_GUID, ""
    written = json.encode(rails)
    if written not in known:
        known[written] = tuple(Rail.model_validate(rail) for rail in rails)
    found = NodePath.model_validate({**place, "rails": ()})
    return found.model_copy(update={"rails": known[written]})  # validation would make a tuple of its own
