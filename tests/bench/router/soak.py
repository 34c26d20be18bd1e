"""Holds many streams open for minutes and watches the router's memory and tasks.

    python -m tests.bench.router.soak [--streams 2000] [--minutes 10]

Streams are of 100 tokens, one every half second; each that ends is followed by another. Prints a line every 30
seconds.
"""

import argparse
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.router.bench import (
    BUILD,
    ENGINE_PORT,
    FIRST_PORT,
    HERE,
    KEY,
    MODEL,
    family,
    peak,
    pinned,
    stop,
    wait_for,
)
from tests.bench.router.peers import llmgw

GAP_US = 500_000


def status(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def soak(streams: int, minutes: float, folder: Path) -> Iterator[str]:
    admin = FIRST_PORT + 900
    engine = pinned(1, [str(BUILD / "engine"), str(ENGINE_PORT), "50000", str(GAP_US), "50"])
    words = [*llmgw()(folder, FIRST_PORT, ENGINE_PORT), "--admin-listen", f"127.0.0.1:{admin}"]
    router = pinned(0, words, stderr=subprocess.DEVNULL)
    try:
        wait_for(FIRST_PORT, router)
        before = status(admin)
        yield f"idle: {peak(family(router.pid)):.1f} MiB, {before['tasks']} tasks"
        load = [FIRST_PORT, streams, 20, minutes * 60 - 20, 100, 0, KEY, MODEL, router.pid]
        client = pinned(1, [str(BUILD / "load"), *map(str, load)], stdout=subprocess.PIPE)
        began = time.monotonic()
        while client.poll() is None:
            time.sleep(min(30.0, minutes * 6))
            now = status(admin)
            yield (
                f"{time.monotonic() - began:5.0f} s: {peak(family(router.pid)):.1f} MiB, {now['tasks']} tasks, "
                f"{now['under_way']} under way"
            )
        assert client.stdout is not None
        result = json.loads(client.stdout.read())
        time.sleep(2)
        after = status(admin)
        yield f"{result['chunks']} tokens, {result['requests']} streams ended, {result['errors']} errors"
        yield f"after: {peak(family(router.pid)):.1f} MiB, {after['tasks']} tasks, {after['under_way']} under way"
    finally:
        stop(router)
        stop(engine)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--streams", type=int, default=2000)
    words.add_argument("--minutes", type=float, default=10)
    asked = words.parse_args()
    subprocess.run(["make", "-s", "-C", str(HERE)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in soak(asked.streams, asked.minutes, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
