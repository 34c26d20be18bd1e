"""Packages that import their words when asked for: the words are where they are said to be."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("llmgw.fabric", "llmgw.plan", "llmgw.plan.text", "llmgw.serving", "llmgw.store")


def folder(package: str) -> Path:
    return ROOT / package.replace(".", "/")


def written(package: str) -> dict[str, str]:
    """The words that type checkers and import-linter see the package import, and the modules that they are from."""
    tree = ast.parse((folder(package) / "__init__.py").read_text())
    return {
        alias.name: str(node.module)
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_word_of_a_package_is_what_type_checkers_take_it_for(package: str) -> None:
    words = written(package)
    made = import_module(package)
    assert sorted(words) == sorted(made.__all__)
    for word, module in words.items():
        assert getattr(made, word) is getattr(import_module(module), word)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_word_of_a_package_has_the_name_of_a_module_of_it(package: str) -> None:
    modules = {path.stem for path in folder(package).iterdir()}
    assert modules & set(written(package)) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_word_that_a_package_does_not_have_is_an_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018


def test_a_look_at_what_runs_imports_neither_placer_nor_readers_of_scans() -> None:
    modules = "llmgw.cli.status, llmgw.cli.planning, llmgw.plan.status, llmgw.plan.text.status, llmgw.cli.colour"
    heavy = "('llmgw.plan.placer', 'llmgw.plan.make', 'llmgw.fabric.parse', 'llmgw.remote', 'aiohttp')"
    text = f"import sys, {modules}; print(*(one for one in {heavy} if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
