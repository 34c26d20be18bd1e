"""The environment that `make env` builds has what pyproject.toml names."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from tests.lab.layer import REPOSITORY


def locked() -> dict[str, list[Version]]:
    """Versions by name, as requirements.lock has them; several where they differ from Python to Python."""
    found: dict[str, list[Version]] = {}
    text = (REPOSITORY / "requirements.lock").read_text()
    for name, version in re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", text, re.MULTILINE):
        found.setdefault(name, []).append(Version(version))
    return found


def test_every_requirement_of_pyproject_is_locked_at_a_version_that_it_allows() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lock = locked()
    extras = project["optional-dependencies"].values()
    words = [*project["dependencies"], *(word for extra in extras for word in extra)]
    wrong = []
    for requirement in map(Requirement, words):
        versions = lock.get(re.sub(r"[-_.]+", "-", requirement.name).lower(), [])
        if not any(version in requirement.specifier for version in versions):
            wrong.append(f"{requirement}: {', '.join(map(str, versions)) or 'not locked'}; make lock")
    assert wrong == []


def test_every_locked_package_has_a_hash() -> None:
    text = (REPOSITORY / "requirements.lock").read_text()
    for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block
