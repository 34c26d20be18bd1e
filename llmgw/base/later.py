"""Packages whose words are imported when they are asked for: a command pays for what it uses."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def words_of(package: str, words: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562) that has its words in modules of its own.

    `words` are the modules' names and, after each, the words that it has, with blanks between. No word may be the
    name of a module of the package too: importing the module would put it in the word's place.
    """
    module_of = {word: module for module, has in words.items() for word in has.split()}

    def found(word: str) -> Any:
        module = module_of.get(word)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {word!r}")
        return getattr(import_module(f"{package}.{module}"), word)

    return found
