"""The process that keeps a lab: starts its namespaces, and removes all of it when the lab's owner is gone.

    python -m tests.lab.keeper NAME [tied]

Prints "up PID" (the PID of the lab's first process) or what went wrong. Tied to an owner, it reads standard
input, which ends with the owner, however that dies. It ends on SIGTERM too, and when the lab's first process
does; and if it is killed outright, the kernel ends the lab after it, and the next lab of that name sweeps up
what is left.
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.kernel import die_with_parent
from tests.lab.state import Places, sweep

HOST_SH = Path(__file__).resolve().parent / "host.sh"


def _start_switch(places: Places) -> tuple[subprocess.Popen[str], int]:
    """The lab's first process, by unshare(1) and by the machine's PID."""
    with places.log("switch").open("ab") as log:
        unshare = subprocess.Popen(
            ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--net", "bash", str(HOST_SH), "switch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,
        )
    assert unshare.stdout
    word, _, pid = unshare.stdout.readline().partition(" ")
    if word != "ready":
        unshare.kill()
        raise RuntimeError(places.log("switch").read_text())
    return unshare, int(pid)


def _wait(unshare: "subprocess.Popen[str]", *, ends: int, owner: int | None) -> None:
    """Until the switch is gone, a signal has come (`ends` is readable then), or the owner's pipe has."""
    switch = os.pidfd_open(unshare.pid)
    watched = [switch, ends, *([] if owner is None else [owner])]
    while True:
        ready = select.select(watched, [], [])[0]
        if ready != [owner] or not os.read(ready[0], 4096):
            return


def main(name: str, *options: str) -> int:
    """Keep the lab of that name, whose folder is written, until it is over."""
    places = Places(name)
    woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wakes)
    try:
        unshare, switch = _start_switch(places)
        record = places.read() | {"keeper": os.getpid(), "switch": switch}
        places.record.write_text(json.dumps(record, indent=1))
        sys.stdout.write(f"up {switch}\n")
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _wait(unshare, ends=woken, owner=sys.stdin.fileno() if "tied" in options else None)
        os.kill(switch, signal.SIGKILL)
        unshare.wait()
    except (OSError, RuntimeError, ValueError) as error:
        sys.stdout.write(f"{error}\n")
    finally:
        sweep(places)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
