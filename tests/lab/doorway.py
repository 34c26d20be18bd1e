"""A door from the machine into a lab: a port of the machine's own loopback whose connections are made inside.

    python -m tests.lab.doorway LAB_PID NETWORK_PID LISTEN_PORT HOST PORT

Listens on 127.0.0.1 where it was started, then moves onto the network of a process (the lab's first, or a host's) and
connects from there. Prints
"open", and ends with the lab.
"""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from tests.lab.kernel import LabError, join_network
from tests.lab.layer import REPOSITORY
from tests.lab.spaces import Spaces

LISTEN = "127.0.0.1"


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(1 << 16):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """One connection: the same bytes each way, and an end of either as an end of the other."""
    try:
        inner_reader, inner_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
    inner_writer.close()
    writer.close()


async def serve(listener: socket.socket, host: str, port: int, *, until: int) -> None:
    """Pass connections on until `until` (a pidfd) is ready."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(until, over.set)
    server = await asyncio.start_server(lambda r, w: _pass(r, w, host, port), sock=listener)
    sys.stdout.write(f"open {listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await over.wait()
    server.close()


def main(lab_pid: str, network_pid: str, listen_port: str, host: str, port: str) -> int:
    """Hold the door."""
    lab = os.pidfd_open(int(lab_pid))
    listener = socket.create_server((LISTEN, int(listen_port)))
    join_network(f"/proc/{network_pid}/ns/net")
    asyncio.run(serve(listener, host, int(port), until=lab))
    return 0


@dataclass(frozen=True, slots=True)
class Door:
    """An open door. It ends with the lab, or when it is shut."""

    port: int
    process: "subprocess.Popen[str]"

    def shut(self) -> None:
        """Close it, and every connection through it."""
        self.process.terminate()
        self.process.communicate()


def open_door(spaces: Spaces, listen_port: int, target: tuple[str, int], *, via: int = 0) -> Door:
    """A door that is open when this returns; LabError where the port is taken.

    With `via`, a host's init_pid, the target is as that host sees it: its own loopback, for instance.
    """
    host, port = target
    pids = [str(spaces.switch_pid), str(via or spaces.switch_pid)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.lab.doorway", *pids, str(listen_port), host, str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=spaces.environment(),
        start_new_session=True,
    )
    assert process.stdout
    assert process.stderr
    word, _, listens = process.stdout.readline().partition(" ")
    if word != "open":
        why = process.stderr.read().strip().rpartition("\n")[2]
        raise LabError(f"no door at {LISTEN}:{listen_port}: {why}")
    return Door(int(listens), process)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
