"""Sockets to listen on: made here, given by systemd, or taken over from a router that is being replaced.

A listening socket that is closed loses the connections that wait in it, and SO_REUSEPORT does not help those. So a
new router takes the very sockets of the old one over a Unix socket, and no connection notices.
"""

import array
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from llmgw.base import LlmgwError, UsageError

BACKLOG = 4096
_FIRST_FD = 3  # sd_listen_fds(3): SD_LISTEN_FDS_START
_MOST_FDS = 64
_ONE_TURN_S = 10.0


def split_address(text: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or `:port`; UsageError where it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address", hint="write host:port, [::1]:port, unix:/path or fd:N")
    return host.strip("[]"), int(port)


def listening(text: str, *, reuse_port: bool) -> socket.socket:
    """A listening socket for an address: `host:port`, `unix:/path`, or `fd:N` for one that was inherited."""
    if text.startswith("fd:"):
        if not text[3:].isdigit():
            raise UsageError(f"{text!r} is no address", hint="fd:N is the number of an inherited socket")
        return _inherited(int(text[3:]))
    try:
        return (
            _unix(Path(text[5:]))
            if text.startswith("unix:")
            else _tcp(*split_address(text), reuse_port=reuse_port)
        )
    except OSError as error:
        raise LlmgwError(f"cannot listen on {text}: {error.strerror or error}") from None


def _inherited(number: int) -> socket.socket:
    try:
        found = socket.socket(fileno=number)
    except OSError:
        raise LlmgwError(f"fd:{number} is no socket of this process") from None
    found.settimeout(0)
    return found


def _tcp(host: str, port: int, *, reuse_port: bool) -> socket.socket:
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # noqa: S104 - asked for
    family, _, _, _, address = infos[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.settimeout(0)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _unix(path: Path) -> socket.socket:
    """A Unix socket; one that nobody answers any more is replaced."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(0)
        if path.is_socket() and not _answers(path):
            path.unlink()
        made.bind(str(path))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def activated(environment: Mapping[str, str], pid: int) -> dict[str, list[socket.socket]]:
    """The sockets that systemd passed to this process, by their FileDescriptorName (sd_listen_fds(3)).

    Sockets whose unit gives them no name are under `public`. Empty where the process was started otherwise.
    """
    if environment.get("LISTEN_PID") != str(pid) or not environment.get("LISTEN_FDS", "").isdigit():
        return {}
    count = int(environment["LISTEN_FDS"])
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[socket.socket]] = {}
    for index in range(count):
        name = names[index] if index < len(names) else ""
        role = name if name in ("admin", "metrics") else "public"
        found.setdefault(role, []).append(_inherited(_FIRST_FD + index))
    return found


def taken_over(path: Path) -> tuple[dict[str, list[socket.socket]], socket.socket] | None:
    """The sockets of the router that listens at `path`, by role, and the connection to it; None where none is
    there.

    The old router goes on accepting until `release` is called with the connection.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(_ONE_TURN_S)
    try:
        link.connect(str(path))
        text, numbers = _received(link)
        roles = json.loads(text)
    except (OSError, ValueError):
        link.close()
        return None
    found: dict[str, list[socket.socket]] = {}
    for role, number in zip(roles, numbers, strict=True):
        found.setdefault(role, []).append(_inherited(number))
    return found, link


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    numbers = array.array("i")
    text, ancillary, _, _ = link.recvmsg(65536, socket.CMSG_SPACE(_MOST_FDS * numbers.itemsize))
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(value[: len(value) - len(value) % numbers.itemsize])
    return text, list(numbers)


def release(link: socket.socket) -> None:
    """Tells the old router that the new one accepts now."""
    with contextlib.suppress(OSError):
        link.sendall(b"ready\n")
    link.close()


class Handover:
    """Offers this router's listening sockets to the next one of the same user.

    `gone` is called when it has them.
    """

    def __init__(self, path: Path, sockets: Sequence[tuple[str, socket.socket]], gone: Callable[[], None]) -> None:
        self._path = path
        self._sockets = list(sockets)
        self._gone = gone
        if path.exists() and not path.is_socket():
            raise LlmgwError(f"cannot offer sockets on {path}: it exists and is no socket")
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            self.door = _unix(draft)
            draft.chmod(0o600)
            draft.rename(path)
        except OSError as error:
            raise LlmgwError(f"cannot offer sockets on {path}: {error.strerror or error}") from None
        self._inode = path.stat().st_ino

    def answer(self, link: socket.socket) -> bool:
        """Gives the sockets to whoever has connected.

        Whether the new router took them. To be called from a thread.
        """
        with link:
            link.settimeout(_ONE_TURN_S)
            if link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8] != os.getuid().to_bytes(
                4, "little"
            ):
                return False
            roles = json.dumps([role for role, _ in self._sockets]).encode()
            try:
                socket.send_fds(link, [roles], [sock.fileno() for _, sock in self._sockets])
                return link.recv(16) == b"ready\n"
            except OSError:
                return False

    def taken(self) -> None:
        self._gone()

    def close(self) -> None:
        """Takes the door away, unless it is the next router's by now."""
        self.door.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
