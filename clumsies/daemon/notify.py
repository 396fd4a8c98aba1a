"""Telling the service manager how the daemon stands (the `sd_notify` protocol)."""

from __future__ import annotations

import contextlib
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def reloading() -> str:
    """The message that a reload begins; READY ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


class Notifier:
    """Sends states to the manager's datagram socket; without one, or when it is gone, to nobody."""

    def __init__(self, address: str | None):
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def send(self, message: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
        ):
            channel.settimeout(1.0)
            channel.sendto(message.encode("utf-8"), self._address)
