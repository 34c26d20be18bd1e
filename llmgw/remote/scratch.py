"""Private folders for the time of one run, and the removal of those that a killed process has left.

Such a folder can hold secrets. While its process lives it holds a lock on it: that also tells a live process in a
container with process numbers of its own from a dead one.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "llmgw-run-"
LEFT_S = 120.0
"""A playbook goes on for a while when llmgw is killed; its folder is left to it for so long."""


@contextmanager
def run_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that only this account may look into, gone afterwards. None: where temporary files go."""
    parent = parent or Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove this account's folders whose process is gone for a while."""
    for folder in parent.glob(PREFIX + "*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > LEFT_S and _is_free(folder):
                shutil.rmtree(folder)


def _is_free(folder: Path) -> bool:
    """Whether no process holds the folder's lock. OSError where it is no folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
