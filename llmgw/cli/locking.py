"""Holding the site's lock for a command that changes something: the option that says how long to wait for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmgw.cli.workspace import Workspace, say

if TYPE_CHECKING:
    from llmgw.store import Lock

_F = TypeVar("_F", bound=Callable[..., Any])


def lock_option(command: _F) -> _F:
    """--lock-timeout, given to the command as `lock_timeout`."""
    return click.option(
        "--lock-timeout",
        default=0.0,
        metavar="S",
        help="Wait so many seconds for another change to end, instead of ending with exit code 4.",
    )(command)


@contextmanager
def change(workspace: Workspace, command: str, *, wait_s: float) -> "Iterator[Lock]":
    """Hold the lock while inside, as `command`. What is wrong with the site's files is said before it is taken.

    Says whose broken lock was passed over. LockedError, naming the holder, where another has it after `wait_s`.
    """
    from llmgw.store import locked

    workspace.site  # noqa: B018 -- read for its errors
    with locked(workspace.store, command, wait_s=wait_s, tell=say) as lock:
        yield lock
