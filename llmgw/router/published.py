"""The published folder: seen again every second, and taken where a file in it was replaced."""

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from llmgw.base import LlmgwError
from llmgw.router.core import Router
from llmgw.router.tallies import count
from llmgw.serving.catalog import Catalog, catalog_of
from llmgw.serving.endpoints import EndpointsFile, EngineKeys, KeysFile, NodesFile
from llmgw.serving.keys import OPEN, SHUT, key_table
from llmgw.serving.reload import LARGEST, decide_reload

log = logging.getLogger("llmgw.router")
ENDPOINTS, KEYS, ENGINE_KEYS, NODES = "endpoints.json", "keys.json", "engine-keys.json", "nodes.json"
STATUS = "endpoints.status"
_Stamp = tuple[int, int, int, int]


class Published:
    """Reads the folder's files when their inode, size or a time of theirs is another, or a read has failed."""

    def __init__(self, router: Router, folder: Path | None) -> None:
        self._router = router
        self._folder = folder
        self._seen: dict[str, _Stamp | None] = {}
        self._engine_keys: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self.nodes: NodesFile | None = None

    def look(self) -> None:
        """Takes what is new, at once. Never raises for what a file holds: the last good one stays in use."""
        file = self._news()
        if file is not None:
            self._apply(file, self._catalog(file))

    async def look_gently(self) -> None:
        """The same while requests run: a large file's steps let others have the loop between them."""
        file = self._news()
        if file is not None:
            await asyncio.sleep(0)
            catalog = self._catalog(file)
            await asyncio.sleep(0)
            self._apply(file, catalog)

    def _news(self) -> EndpointsFile | None:
        """Takes the small files that are new; gives endpoints.json where it is new and good."""
        router = self._router
        if router.loaded_at == 0.0 and (router.config.static or self._folder is None):
            nothing = EndpointsFile(generation=0, written=datetime.now(UTC))
            router.load(self._catalog(nothing), self._engine_keys)
        if self._folder is None:
            return None
        if self._is_new(KEYS):
            self._take_keys()
        if self._is_new(NODES):
            self._take_nodes()
        if self._is_new(ENGINE_KEYS) | self._is_new(ENDPOINTS):
            self._take_engine_keys()
            return self._endpoints()
        return None

    def _is_new(self, name: str) -> bool:
        try:
            found = (self._folder / name).stat()  # type: ignore[operator]
            stamp: _Stamp | None = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        except OSError:
            stamp = None
        known = self._seen.get(name, ())
        self._seen[name] = stamp
        return stamp != known

    def _read(self, name: str) -> bytes:
        """What the file holds. OSError: the next look tries again. What is no regular file never holds up the loop."""
        try:
            with open(self._folder / name, "rb", opener=_at_once) as file:  # type: ignore[operator]
                return file.read(LARGEST + 1) or b""
        except FileNotFoundError:
            raise
        except OSError:
            self._seen.pop(name, None)
            raise

    def _endpoints(self) -> EndpointsFile | None:
        """The file, or None and its problem kept."""
        source = str(self._folder / ENDPOINTS)  # type: ignore[operator]
        try:
            text = self._read(ENDPOINTS)
        except OSError as error:
            self._keep_out(f"{source}: {error.strerror}")
            return None
        decided = decide_reload(text, source, self._router.catalog.generation)
        if decided.file is None:
            self._keep_out(decided.problem)
        return decided.file

    def _catalog(self, file: EndpointsFile) -> Catalog:
        return catalog_of(file, self._router.config.static)

    def _apply(self, file: EndpointsFile, catalog: Catalog) -> None:
        if catalog.generation < self._router.catalog.generation:
            return  # another look has been faster
        self._router.problem = ""
        count(self._router.tallies.reloads, "endpoints_ok")
        self._router.load(catalog, self._engine_keys)
        facts = {"generation": file.generation, "endpoints": len(file.endpoints)}
        log.info("endpoints_reloaded", extra=facts)

    def _keep_out(self, problem: str) -> None:
        count(self._router.tallies.reloads, "endpoints_refused")
        if problem != self._router.problem:
            log.error("endpoints_refused", extra={"problem": problem})
        self._router.problem = problem

    def _take_engine_keys(self) -> None:
        try:
            self._engine_keys = EngineKeys.read(self._read(ENGINE_KEYS), ENGINE_KEYS).keys
        except FileNotFoundError:
            self._engine_keys = {}
        except (OSError, LlmgwError) as error:
            self._refused("engine_keys", error)

    def _take_nodes(self) -> None:
        try:
            self.nodes = NodesFile.read(self._read(NODES), NODES)
        except FileNotFoundError:
            self.nodes = None
        except (OSError, LlmgwError) as error:
            self._refused("nodes", error)

    def _take_keys(self) -> None:
        try:
            self._router.keys = key_table(KeysFile.read(self._read(KEYS), KEYS))
        except FileNotFoundError:
            log.warning("no_keys_file", extra={"keys_in_use": len(self._router.keys.by_digest)})
        except (OSError, LlmgwError) as error:
            if self._router.keys is OPEN:
                self._router.keys = SHUT
            self._refused("keys", error)
        else:
            count(self._router.tallies.reloads, "keys_ok")

    def _refused(self, what: str, error: Exception) -> None:
        count(self._router.tallies.reloads, f"{what}_refused")
        if self._told.get(what) != str(error):
            log.error(f"{what}_refused", extra={"problem": str(error)})
        self._told[what] = str(error)


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for a writer, which a FIFO in the file's place would have it do."""
    return os.open(path, flags | os.O_NONBLOCK)
