"""What a handler is given beside its request, and what a set of handlers looks like."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from clumsies.config import DaemonPlaces
from clumsies.daemon.wire import AgentRuntime
from clumsies.errors import NotReady
from clumsies.logs import EventLog


class CancelToken:
    """Tells a handler that nobody waits for its answer any more. Once set it stays set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._mutex = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """Set the token and run what `on_cancel` was given, each once."""
        with self._mutex:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the token is set, or now where it is; it must not block or raise."""
        with self._mutex:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the token is set or the time is over; whether it is set."""
        return self._event.wait(timeout_s)

    def raise_if_cancelled(self) -> None:
        """Raise NotReady("request_cancelled") where the token is set."""
        if self._event.is_set():
            raise NotReady("request_cancelled", "The caller has gone; nothing more was done.")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One call: who asks, until when (`deadline`, monotonic seconds), and whether still."""

    request_id: str
    method: str
    deadline: float
    cancel: CancelToken = field(default_factory=CancelToken)
    agent_runtime: AgentRuntime | None = None

    def remaining_s(self) -> float:
        """Seconds until the deadline, not below zero."""
        return max(0.0, self.deadline - time.monotonic())


class Handler(Protocol):
    """A method's work, on a thread of a pool; raises errors of `clumsies.errors`."""

    def __call__(self, request: Any, context: RequestContext, /) -> Any: ...


Handlers = Mapping[str, Handler]
"""By `Method.handler` of `clumsies.daemon.contract`."""


class Service(Protocol):
    """What the daemon serves: handlers over state that lives as long as the process."""

    @property
    def handlers(self) -> Handlers: ...

    def reload(self) -> None:
        """Read the configuration again (SIGHUP)."""

    def close(self) -> None:
        """Finish what was acknowledged and release everything; called once."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """The server at one moment."""

    connections: int
    agent_connections: int
    active_requests: int


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What a service factory is given by the process that it will live in."""

    places: DaemonPlaces
    log: EventLog
    statistics: Callable[[], Statistics]


ServiceFactory = Callable[[ProcessContext], Service]
