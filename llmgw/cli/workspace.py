"""What a command works on: the site folder, the store, a session to the nodes. Opened when first asked for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from llmgw.base.errors import LlmgwError

if TYPE_CHECKING:
    from llmgw.remote.playbook import Session
    from llmgw.site import Catalogue, Site, SiteSettings
    from llmgw.store import State

SETTINGS, CATALOGUE, HOSTS = "llmgw.yml", "models.yml", "hosts.yml"
_NO_SITE = "llmgw init DIR writes a site folder; --site or LLMGW_SITE names it"


@dataclass(frozen=True)
class Workspace:
    """The site and the store that the command line, the environment and the defaults name."""

    folder: Path | None
    state_file: Path | None
    verbose: int = 0
    debug: bool = False

    @classmethod
    def of(cls, site: str | None, state: str | None, *, verbose: int, debug: bool) -> Self:
        folder = Path(site) if site else Path() if Path(SETTINGS).is_file() else None
        return cls(folder, Path(state) if state else None, verbose, debug)

    @property
    def site_folder(self) -> Path:
        """The site folder. LlmgwError where none is named."""
        if self.folder is None:
            raise LlmgwError(
                f"no site: there is no {SETTINGS} here",
                hint="name the folder with --site or LLMGW_SITE, or make one with llmgw init DIR",
            )
        return self.folder

    def path(self, name: str) -> Path:
        """A file of the site folder."""
        return self.site_folder / name

    @cached_property
    def settings(self) -> "SiteSettings":
        from llmgw.site import parse_settings
        from llmgw.store.files import read_text

        path = self.path(SETTINGS)
        return parse_settings(read_text(path, hint=_NO_SITE), str(path))

    @cached_property
    def catalogue(self) -> "Catalogue":
        from llmgw.site import parse_catalogue
        from llmgw.store.files import read_text

        settings, path = self.settings, self.path(CATALOGUE)
        return parse_catalogue(read_text(path, hint=_NO_SITE), str(path), settings)

    @cached_property
    def listing(self) -> dict[str, Any]:
        """The inventory as ansible-inventory prints it now, with whatever secrets it holds."""
        from llmgw.remote.inventory import read_listing

        return read_listing(self.path(HOSTS))

    @cached_property
    def site(self) -> "Site":
        """The whole site. A static inventory that has not changed since it was last read is taken from the store."""
        self.catalogue  # noqa: B018 -- what is wrong with llmgw's own files is said before Ansible is asked
        return self._made(self._current_listing())

    def _current_listing(self) -> dict[str, Any]:
        from llmgw.remote.inventory import fingerprint
        from llmgw.site import kept_listing
        from llmgw.store.history import last_listing, save_listing

        stamp = fingerprint(self.path(HOSTS), self.site_folder)
        known = last_listing(self.store) if stamp and self.store_path.exists() else None
        if known and known.fingerprint == stamp:
            return known.listing
        listing = kept_listing(self.listing)
        self._made(listing)  # what cannot be a site is not remembered
        save_listing(self.store, listing, stamp, now=datetime.now(UTC))
        return listing

    def _made(self, listing: dict[str, Any]) -> "Site":
        from llmgw.site import make_site

        return make_site(self.settings, listing, self.catalogue, inventory_name=str(self.path(HOSTS)))

    @cached_property
    def remembered_site(self) -> "Site":
        """The site with the inventory as it was last read, whatever has changed; read now where it never was."""
        from llmgw.store.history import last_listing

        known = last_listing(self.store) if self.store_path.exists() else None
        return self._made(known.listing) if known else self.site

    @property
    def store_path(self) -> Path:
        """Where the store is: --state, LLMGW_STATE, else $XDG_STATE_HOME/llmgw/SITE/state.db; SITE is left out where
        no site is named (maps can be read without one)."""
        if self.state_file:
            return self.state_file
        home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        below = self.settings.name if self.folder else ""
        return Path(home) / "llmgw" / below / "state.db"

    @cached_property
    def store(self) -> "State":
        from llmgw.store.database import open_state

        return open_state(self.store_path)

    def close(self) -> None:
        """Close the store, where it was opened."""
        if "store" in vars(self):
            self.store.close()

    @contextmanager
    def session(self) -> Iterator["Session"]:
        """Runs of playbooks that share connections."""
        from llmgw.remote.playbook import open_session

        with open_session(self.path(HOSTS), connect_s=self.settings.timeouts.connect_s) as session:
            yield session


def operator() -> str:
    """Who runs the command: user@host, as plans, locks and the history name them."""
    import getpass
    import socket

    return f"{getpass.getuser()}@{socket.gethostname()}"


pass_workspace = click.make_pass_decorator(Workspace)


def say(text: str) -> None:
    """A message for the operator: stderr, so that stdout is the answer alone."""
    click.echo(text, err=True)
