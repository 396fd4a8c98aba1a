"""A tool call under way: it is answered once or not at all, and tells nothing afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from clumsies.agent.jsonrpc import Id, notification


class RunningCall:
    """One call, ended either by its answer or by the host that gives it up.

    `token` is the host's progress token, None where it did not ask to be told. `cancel` is set
    from the end on; the daemon's client watches it.
    """

    def __init__(self, token: Id | None, send: Callable[[Mapping[str, Any]], object]):
        self.token = token
        self.cancel = threading.Event()
        self._send = send
        self._mutex = threading.Lock()
        self._progress = 0

    def report(self, message: str) -> None:
        """Tell the host how far the call is, where it asked to be told."""
        if self.token is None:
            return
        with self._mutex:
            if self.cancel.is_set():
                return
            self._progress += 1
            params = {
                "progressToken": self.token,
                "progress": self._progress,
                "message": message,
            }
            self._send(notification("notifications/progress", params))

    def end(self) -> bool:
        """Whether this ended the call: it was neither answered nor given up before."""
        with self._mutex:
            if self.cancel.is_set():
                return False
            self.cancel.set()
            return True
