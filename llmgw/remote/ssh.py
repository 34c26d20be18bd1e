"""One node by SSH (paramiko): its live text. Unknown and changed host keys are refused, always.

Reached as Ansible reaches it: address, port, user, key and ssh options of the inventory, and ~/.ssh/config below them.
"""

import contextlib
import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import paramiko

from llmgw.base import LlmgwError
from llmgw.site import InventoryHost

KEEPALIVE_S = 10
_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach a host: what ssh would use."""

    host: str
    port: int
    user: str | None
    keys: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    jumps: tuple[str, ...] = field(default=())


def route(host: InventoryHost, config: Mapping[str, str | list[str]], *, home: Path) -> Route:
    """The route of a host: its inventory's words first, `config` (ssh_config's for its address) for the rest."""
    options = _options(host)
    own = host.connection

    def chosen(variable: str, option: str, default: str) -> str:
        return str(own.get(variable) or options.get(option) or config.get(option) or default)

    keys = [str(own["ansible_ssh_private_key_file"])] if "ansible_ssh_private_key_file" in own else []
    identity = options.get("identityfile") or config.get("identityfile") or []
    keys += [identity] if isinstance(identity, str) else list(identity)
    known = options.get("userknownhostsfile") or config.get("userknownhostsfile") or str(home / ".ssh/known_hosts")
    known_text = " ".join(known) if isinstance(known, list) else known
    jumps = options.get("proxyjump") or config.get("proxyjump") or ""
    return Route(
        host=chosen("ansible_host", "hostname", host.name),
        port=int(chosen("ansible_port", "port", "22")),
        user=chosen("ansible_user", "user", "") or None,
        keys=tuple(os.path.expanduser(key) for key in keys),  # noqa: PTH111 -- of the operator's home, as ssh does
        known_hosts=tuple(os.path.expanduser(path) for path in known_text.split()),  # noqa: PTH111
        jumps=tuple(filter(None, (jumps if isinstance(jumps, str) else ",".join(jumps)).split(","))),
    )


def _options(host: InventoryHost) -> dict[str, str]:
    """The `-o Name=value`, -i and -J of the inventory's ssh arguments, names in lower case."""
    words = [word for key in _ARGUMENTS for word in shlex.split(str(host.connection.get(key, "")))]
    found: dict[str, str] = {}
    for word, following in pairwise([*words, ""]):
        if word == "-o" and "=" in following:
            name, _, value = following.partition("=")
            found.setdefault(name.lower(), value)
        elif word == "-J":
            found.setdefault("proxyjump", following)
        elif word == "-i":
            found.setdefault("identityfile", following)
    return found


def route_of(host: InventoryHost) -> Route:
    """The route of a host with the operator's own ~/.ssh/config."""
    home = Path.home()
    path = home / ".ssh" / "config"
    config = paramiko.SSHConfig.from_path(str(path)) if path.is_file() else paramiko.SSHConfig()
    return route(host, config.lookup(str(host.connection.get("ansible_host", host.name))), home=home)


def enrol_command(way: Route) -> str:
    """What fetches a host's key into the file where it is looked for."""
    port = ["-p", str(way.port)] if way.port != 22 else []
    return f"{shlex.join(['ssh-keyscan', *port, '-H', way.host])} >> {shlex.quote(way.known_hosts[0])}"


@contextlib.contextmanager
def connected(way: Route, *, timeout_s: float) -> Iterator[paramiko.SSHClient]:
    """A connection. LlmgwError, with what to do, where the host does not answer or its key is not known."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints a traceback of its own for each failure
    with contextlib.ExitStack() as stack:
        socket: paramiko.Channel | None = None
        for jump in way.jumps:
            client = stack.enter_context(_client(_jump(jump, way), socket, timeout_s))
            transport = client.get_transport()
            assert transport is not None
            socket = transport.open_channel(
                "direct-tcpip", (way.host, way.port), ("127.0.0.1", 0), timeout=timeout_s
            )
        yield stack.enter_context(_client(way, socket, timeout_s))


def _jump(written: str, way: Route) -> Route:
    """A jump host, as ProxyJump writes it: [user@]host[:port]."""
    user, _, rest = written.rpartition("@")
    host, _, port = rest.partition(":")
    return Route(host, int(port or 22), user or way.user, way.keys, way.known_hosts)


@contextlib.contextmanager
def _client(way: Route, socket: paramiko.Channel | None, timeout_s: float) -> Iterator[paramiko.SSHClient]:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    for path in way.known_hosts:
        if Path(path).is_file():
            client.load_host_keys(path)
    try:
        client.connect(
            way.host,
            port=way.port,
            username=way.user,
            key_filename=[key for key in way.keys if Path(key).is_file()] or None,  # type: ignore[arg-type] # it takes several
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
            sock=socket,
        )
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        yield client
    except paramiko.BadHostKeyException as error:
        raise LlmgwError(
            f"{way.host}: its host key is not the one that is known",
            hint="find out why before you change known_hosts",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise LlmgwError(f"{way.host}: {error}", hint=f"ssh -p {way.port} {way.host} true") from error
    finally:
        client.close()


def lines(client: paramiko.SSHClient, command: str, *, timeout_s: float | None) -> Iterator[str]:
    """The lines that a command prints, stderr among them, as they come; ends with it.

    `timeout_s` bounds the wait for the next line; None waits as long as the connection lives.
    """
    transport = client.get_transport()
    assert transport is not None
    channel = transport.open_session(timeout=30)
    channel.set_combine_stderr(True)
    channel.settimeout(timeout_s)
    channel.exec_command(command)
    with contextlib.closing(channel), channel.makefile("rb") as text:
        for line in text:
            yield line.decode("utf-8", "replace").rstrip("\r\n")
