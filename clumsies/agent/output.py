"""Standard output as the protocol's own: nothing else in the process can write to it.

The protocol keeps a copy of descriptor 1 and the descriptor itself is turned to standard error,
so that a stray `print`, a C library and a child process all miss the protocol. One thread writes,
so that a host that does not read can delay answers but never the end of the process.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from clumsies.agent.jsonrpc import encode

MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_BACKLOG_BYTES = 16 * 1024 * 1024
"""Of answers that the host has not read; past it no further message is read."""
_FIRST_OWN_DESCRIPTOR = 3
_POLL_S = 0.02


def take_standard_input() -> int:
    """A private copy of descriptor 0, which from now on reads as empty."""
    copy = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_DESCRIPTOR)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return copy


def take_standard_output() -> int:
    """A private copy of descriptor 1, which from now on is standard error."""
    copy = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_DESCRIPTOR)
    os.dup2(2, 1)
    return copy


def keep_standard_error() -> None:
    """Put something behind descriptor 2 where there is nothing: a socket must not come there."""
    try:
        os.fstat(2)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 2:
            os.dup2(nowhere, 2)
            os.close(nowhere)


class Output:
    """Messages to the host in the order in which they were sent, each a whole line.

    `lost` is called from the writing thread once when the host no longer takes any.
    """

    def __init__(self, descriptor: int, lost: Callable[[], object]):
        self._descriptor = descriptor
        self._lost = lost
        self._lines: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._write_all, name="mcp-output", daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message; raises ValueError for one over 4 MiB."""
        line = encode(message)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of {len(line)} bytes")
        with self._changed:
            self._lines.append(line)
            self._backlog_bytes += len(line)
            self._changed.notify()

    @property
    def congested(self) -> bool:
        return self._backlog_bytes > _MAX_BACKLOG_BYTES

    def drain(self, wait_s: float) -> None:
        """Give what is queued up to `wait_s` to be written."""
        end = time.monotonic() + wait_s
        while self._backlog_bytes and time.monotonic() < end:
            time.sleep(_POLL_S)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                line = self._lines.popleft()
            view = memoryview(line)
            try:
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                self._lost()
                return
            with self._changed:
                self._backlog_bytes -= len(line)
