#!/usr/bin/env python3
"""A cable with a delay, a loss and a rate, for kernels without netem.

    wire.py PORT TAP DELAY_MS LOSS_PERCENT RATE_KBIT

Run on the lab's network, it is the cable between PORT (a host's veth, pulled out of the bridge) and TAP, which
it makes and plugs into the bridge. It ends when TAP is deleted. Frames cross with their virtio headers, so that
checksums and segments which the kernel left to the adapter stay right (Linux: Documentation/networking/tuntap,
packet(7)). What is lost is drawn from a fixed seed: the same frames in the same order, the same losses.
"""

import fcntl
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x2, 0x1000, 0x4000
ETH_P_ALL = 3
QUEUE_S = 0.8  # a frame that would wait longer for its turn on a slow cable is dropped, as a switch does


@dataclass
class Way:
    """One direction of the cable."""

    out: int
    delay_s: float
    loss: float
    bytes_per_s: float
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    waiting: "deque[tuple[float, bytes]]" = field(default_factory=deque)
    free_at: float = 0.0

    def take(self, frame: bytes, now: float) -> None:
        """Note the frame and when it comes out, or lose it."""
        if self.loss and self.chance.random() < self.loss:
            return
        start = max(now, self.free_at)
        if self.bytes_per_s:
            if start - now > QUEUE_S:
                return
            self.free_at = start + len(frame) / self.bytes_per_s
            start = self.free_at
        self.waiting.append((start + self.delay_s, frame))

    def give(self, now: float) -> None:
        """Put out what is due."""
        while self.waiting and self.waiting[0][0] <= now:
            _, frame = self.waiting.popleft()
            try:
                os.write(self.out, frame)
            except BlockingIOError:
                pass  # the other end's queue is full
            except OSError as error:
                if error.errno not in (
                    22,
                    90,
                    105,
                ):  # EINVAL, EMSGSIZE, ENOBUFS: this frame is lost, as on any wire
                    raise


def open_port(name: str) -> int:
    """A host's veth, every frame that comes in by it."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, ETH_P_ALL))
    return port.detach()


def open_tap(name: str) -> int:
    """A new end of the cable, plugged into the bridge."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    subprocess.run(["ip", "link", "set", name, "master", "br0", "up"], check=True)
    return tap


def carry(ways: "dict[int, Way]") -> None:
    """Frames from one end to the other, until an end is gone."""
    ready = selectors.DefaultSelector()
    for end in ways:
        os.set_blocking(end, False)
        ready.register(end, selectors.EVENT_READ)
    while True:
        due = [way.waiting[0][0] for way in ways.values() if way.waiting]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        for key, _ in ready.select(wait_s):
            read_all(key.fd, ways[key.fd])
        now = time.monotonic()
        for way in ways.values():
            way.give(now)


def read_all(end: int, way: Way) -> None:
    """Every frame that has arrived there."""
    try:
        while True:
            way.take(os.read(end, 1 << 17), time.monotonic())
    except BlockingIOError:
        pass


def main(port: str, tap: str, delay_ms: str, loss_percent: str, rate_kbit: str) -> None:
    """Be the cable."""
    ends = open_port(port), open_tap(tap)
    quality = float(delay_ms) / 1000, float(loss_percent) / 100, float(rate_kbit) * 1000 / 8
    carry({ends[0]: Way(ends[1], *quality), ends[1]: Way(ends[0], *quality)})


if __name__ == "__main__":
    main(*sys.argv[1:])
