"""The store and the site's secrets, in the forms that remote asks for them."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

from llmgw.base import LlmgwError
from llmgw.cli.workspace import HOSTS, Workspace
from llmgw.plan.progress import Step
from llmgw.remote.inventory import opened
from llmgw.remote.publish import Change
from llmgw.serving import Endpoint, EndpointsFile, EngineKeys, ServedModel
from llmgw.serving.publishing import served_models
from llmgw.site import Site
from llmgw.store import State
from llmgw.store.journal import write
from llmgw.store.published import endpoints, engine_key, engine_keys, next_generation


@dataclass(slots=True)
class StoreJournal:
    """The journal of one plan in the store."""

    state: State
    plan: str
    lost: Event
    _rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def write(self, steps: Sequence[Step]) -> None:
        if self.lost.is_set():
            raise LlmgwError("the lock was broken by somebody: nothing more was begun", hint="llmgw lock show")
        if not steps:
            return
        try:
            write(self.state, self.plan, steps, self._rows)
        except LlmgwError as error:
            raise LlmgwError("\n".join([error.message, *_unwritten(self.plan, steps)]), hint=error.hint) from error


def _unwritten(plan: str, steps: Sequence[Step]) -> list[str]:
    """What the journal did not take, for the operator to know instead: none of what was to begin has begun."""
    return [f"not written down, of plan {plan}:"] + [
        f"  {step.action} {step.phase}: "
        + (f"ended: {step.outcome} {step.message}" if step.outcome else "not begun")
        for step in steps
    ]


@dataclass(slots=True)
class StoreRegistry:
    """The published generation, kept in the store. `starting` and `failed` are models, for their listed state."""

    state: State
    site: Site
    starting: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def publish(self, change: Change) -> EndpointsFile:
        """The endpoint file after the change."""
        return next_generation(self.state, change, self._models, now=datetime.now(UTC))

    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints of the last generation."""
        file = endpoints(self.state)
        return file.endpoints if file else ()

    def outdated(self) -> bool:
        """Whether the models, as they were last published, are not how they stand now."""
        file = endpoints(self.state)
        return file is None or tuple(self._models(file.endpoints)) != file.models

    def _models(self, published: Sequence[Endpoint]) -> list[ServedModel]:
        return served_models(self.site.catalogue, published, starting=self.starting, failed=self.failed)

    def engine_keys(self, replicas: Collection[str]) -> EngineKeys:
        return engine_keys(self.state, replicas)


@dataclass(frozen=True, slots=True)
class SiteSecrets:
    """Engine keys from the store, and the secrets that llmgw.yml names, read where it says when they are needed."""

    state: State
    site: Site
    folder: Path
    variables: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def of(cls, workspace: Workspace, site: Site) -> "SiteSecrets":
        """Those of a workspace. The inventory is read anew, secrets and all, only where llmgw.yml has one that stands
        there."""
        wanted = any(source.inventory for source in site.settings.secrets.values())
        variables = workspace.listing["_meta"]["hostvars"] if wanted else {}
        return cls(workspace.store, site, workspace.site_folder, variables)

    def engine_key(self, replica: str) -> str:
        return engine_key(self.state, replica)

    def secret(self, name: str) -> str:
        """LlmgwError, without the secret, where it cannot be read."""
        source = self.site.settings.secrets[name]
        if source.env is not None:
            found = os.environ.get(source.env)
            if not found:
                raise LlmgwError(f"secret {name}: the environment has no {source.env}")
            return found
        if source.file is not None:
            return _read(self.folder / source.file, name)
        return self._of_inventory(name, source.inventory or "")

    def _of_inventory(self, name: str, variable: str) -> str:
        found = [own[variable] for own in self.variables.values() if variable in own]
        if not found or any(value != found[0] for value in found):
            what = "no host has" if not found else "hosts differ in"
            raise LlmgwError(f"secret {name}: {what} the inventory's {variable}")
        try:
            return opened(found[0], self.folder / HOSTS)
        except LlmgwError as error:
            raise LlmgwError(f"secret {name}: {error.message}", hint=error.hint) from None


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise LlmgwError(f"secret {name}: {path}: {error.strerror}") from None
