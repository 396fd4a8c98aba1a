"""The thread that synchronizes: at an interval, and when somebody has something to send.

There is no backoff that grows: what failed for the network's sake is sent again at the next
interval, never because something else was stored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SyncWorker:
    """Runs `cycle(is_tick)` in one thread. `cycle` must not raise."""

    def __init__(
        self,
        cycle: Callable[[bool], None],
        interval_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._cycle = cycle
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted = False
        self._due = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, with a first cycle at once."""
        self._due = True
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
        self._thread.start()

    def wake(self, *, as_tick: bool = False) -> None:
        """Run a cycle soon; `as_tick`: as if the interval were over."""
        with self._changed:
            self._wanted = True
            self._due = self._due or as_tick
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """End after the cycle that runs; whether it ended in time."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        following = self._clock()
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._wanted or self._due or self._stopped,
                    max(0.0, following - self._clock()),
                )
                if self._stopped:
                    return
                tick = self._due or self._clock() >= following
                self._wanted = self._due = False
            if tick:
                following = self._clock() + self._interval_s
            self._cycle(tick)
