"""YAML that people write: its values, and the line on which each of them stands.

Only plain YAML: no tags, every alias counted against a limit, duplicate keys refused, dates left as text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from llmgw.base import DocumentError, Place

LIMIT_VALUES = 500_000
LIMIT_BYTES = 64 << 20
_SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")}
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Path = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """One file's values. `lines` has the line, from 1, of every key and list item by its path."""

    name: str
    values: Any
    lines: Mapping[Path, int]

    def place(self, *path: int | str) -> Place:
        """Where `path` stands, or the nearest key above it that does."""
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 0)
        return Place(self.name, "/".join(map(str, path)), line)


def load(text: str, name: str) -> Source:
    """The values of a YAML text. DocumentError for what is not plain YAML, with its line."""
    if len(text) > LIMIT_BYTES:
        raise DocumentError(Place(name), f"is larger than {LIMIT_BYTES >> 20} MiB")
    try:
        root = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise DocumentError(Place(name, line=mark.line + 1 if mark else 0), f"is not YAML: {what}") from None
    reader = _Reader(name)
    return Source(name, reader.value(root, ()) if root else None, reader.lines)


class _Reader:
    """Turns one tree of YAML nodes into values, and remembers where each stood."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self._scalars = yaml.SafeLoader("")
        self._above: set[int] = set()

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > LIMIT_VALUES:
            raise self._error(node, path, f"has more than {LIMIT_VALUES} values, aliases counted each time")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._above:
            raise self._error(node, path, "contains itself")
        self._above.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._above.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        if node.tag != "tag:yaml.org,2002:map":
            raise self._error(node, path, f"has the tag {node.tag}; only plain YAML is read")
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, path, "has a key that is no text")
            key = key_node.value
            if key in found:
                raise self._error(key_node, (*path, key), "stands twice in one mapping")
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*path, key))
        return found

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if node.tag == _TIMESTAMP:
            return node.value
        if node.tag not in _SCALARS:
            raise self._error(node, path, f"has the tag {node.tag}; only plain YAML is read")
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self._error(node, path, str(error)) from None

    def _error(self, node: yaml.Node, path: Path, what: str) -> DocumentError:
        return DocumentError(Place(self.name, "/".join(map(str, path)), node.start_mark.line + 1), what)
