"""From a request's envelope to its answer: gate, decode, run on a pool, deadline, encode.

Handlers are plain callables on two bounded thread pools, so that a model at work never keeps a
quick method waiting. Whatever a handler raises becomes an error envelope with a stable code and
the request's id; only the code reaches the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from clumsies.daemon.context import Handlers, RequestContext
from clumsies.daemon.contract import METHODS, Method, Pool
from clumsies.daemon.wire import (
    PROTOCOL_REVISION,
    Request,
    encode_payload,
    encode_response,
    failure,
    success,
    undecodable,
    usable_request_id,
)
from clumsies.errors import ClumsiesError, DaemonFailed, InvalidRequest, NotReady, from_code
from clumsies.logs import EventLog

QUICK_WORKERS = 8
MODEL_WORKERS = 2
MAX_WAITING = 256
"""Calls of one pool that run or wait; one more is answered `daemon_busy`."""
_IDLE_POLL_S = 0.02


class WorkerPool:
    """Threads with a bounded number of calls that run or wait."""

    def __init__(self, name: str, workers: int, limit: int):
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=f"clumsiesd-{name}")
        self._limit = limit
        self._calls: set[Future[bytes]] = set()

    def submit(self, call: _Call) -> Future[bytes]:
        """Queue the call; raises NotReady("daemon_busy") when the pool is full."""
        if len(self._calls) >= self._limit:
            raise NotReady("daemon_busy", "The daemon has too many requests at once; try again.")
        future = self._threads.submit(call)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    @property
    def active(self) -> int:
        return len(self._calls)

    def close(self) -> None:
        """Take no more calls; what runs goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Dispatcher:
    """Runs requests by the table of methods."""

    def __init__(
        self,
        handlers: Handlers,
        log: EventLog,
        *,
        methods: Mapping[str, Method] = METHODS,
        quick_workers: int = QUICK_WORKERS,
        model_workers: int = MODEL_WORKERS,
        max_waiting: int = MAX_WAITING,
    ):
        self._handlers = handlers
        self._log = log
        self._methods = methods
        self._pools: dict[Pool, WorkerPool] = {
            "quick": WorkerPool("quick", quick_workers, max_waiting),
            "model": WorkerPool("model", model_workers, max_waiting),
        }

    @property
    def active(self) -> int:
        """Calls that run or wait, those that nobody waits for included."""
        return sum(pool.active for pool in self._pools.values())

    async def answer(self, request: Request) -> bytes:
        """The response frame; cancelling this coroutine sets the handler's cancel token."""
        started = time.monotonic()
        request_id = usable_request_id(request.request_id)
        try:
            method = self._admitted(request)
            context = RequestContext(
                request_id,
                request.method,
                started + method.deadline_s,
                agent_runtime=request.agent_runtime,
            )
            call = _Call(self._handlers.get(method.handler), method, request, context)
            frame = await self._carried_out(call)
        except ClumsiesError as error:
            self._failed(request, request_id, error, started)
            return encode_response(failure(error, request_id, request.id))
        except asyncio.CancelledError:
            self._log.emit("ipc_cancelled", method=self._known(request), request_id=request_id)
            raise
        except Exception as error:
            return self._unforeseen(request, request_id, error, started)
        self._log.emit(
            "ipc_completed",
            "debug",
            method=request.method,
            request_id=request_id,
            elapsed_ms=(time.monotonic() - started) * 1000,
        )
        return frame

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no call runs; whether that happened in time."""
        end = time.monotonic() + timeout_s
        while self.active:
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(_IDLE_POLL_S)
        return True

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _admitted(self, request: Request) -> Method:
        """The method, after the protocol gate; the payload has not been decoded yet."""
        method = self._methods.get(request.method)
        if method is None:
            raise InvalidRequest(
                "invalid_request", "The daemon has no such method; update the older of both ends."
            )
        marker = request.agent_runtime
        if method.name == "health":
            return method
        if marker is None:
            if method.needs_marker:
                raise _mismatch("The request does not say its protocol revision")
        elif marker.protocol_revision != PROTOCOL_REVISION:
            raise _mismatch(
                f"The client speaks protocol revision {marker.protocol_revision}, "
                f"this daemon {PROTOCOL_REVISION}"
            )
        return method

    async def _carried_out(self, call: _Call) -> bytes:
        future = self._pools[call.method.pool].submit(call)
        waiting = asyncio.wrap_future(future)
        try:
            await asyncio.wait({waiting}, timeout=call.method.deadline_s)
            if waiting.done():
                return waiting.result()
        finally:
            if not waiting.done():  # Late: what still comes is nobody's, an error included.
                call.context.cancel.cancel()
                waiting.cancel()
        raise from_code(
            call.method.deadline_code,
            f"{call.method.name} did not finish within {call.method.deadline_s:g} s. A change "
            "may still be carried out: look before you repeat it.",
        )

    def _known(self, request: Request) -> str:
        """The method as a log may show it: a name of the table, never the peer's own text."""
        return request.method if request.method in self._methods else "unknown"

    def _failed(
        self, request: Request, request_id: str, error: ClumsiesError, started: float
    ) -> None:
        self._log.failed(
            "ipc_failed",
            error,
            "info",
            method=self._known(request),
            request_id=request_id,
            elapsed_ms=(time.monotonic() - started) * 1000,
        )

    def _unforeseen(
        self, request: Request, request_id: str, error: Exception, started: float
    ) -> bytes:
        self._log.failed(
            "ipc_failed",
            error,
            "error",
            method=self._known(request),
            request_id=request_id,
            elapsed_ms=(time.monotonic() - started) * 1000,
            where=_where(error),
        )
        found = DaemonFailed(
            "internal_error",
            "The daemon met a fault of its own; report it with this request id and daemon.log.",
            {"kind": type(error).__name__},
        )
        return encode_response(failure(found, request_id, request.id))


class _Call:
    """One request on its way through a pool."""

    def __init__(self, handler: object, method: Method, request: Request, context: RequestContext):
        self.method = method
        self.context = context
        self._handler = handler
        self._request = request

    def __call__(self) -> bytes:
        self.context.cancel.raise_if_cancelled()
        try:
            payload = msgspec.json.decode(self._request.payload, type=self.method.request)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise undecodable(error, self.method.name) from error
        if not callable(self._handler):
            raise InvalidRequest(
                "invalid_request", f"This daemon does not serve {self.method.name}; update it."
            )
        answer = self._handler(payload, self.context)
        if not isinstance(answer, self.method.response):
            raise TypeError(f"{self.method.name} answered {type(answer).__name__}")
        return encode_response(success(self._request, encode_payload(answer)))


def _mismatch(what: str) -> DaemonFailed:
    return DaemonFailed(
        "agent_runtime_mismatch",
        f"{what}; run `clumsies daemon restart` and start the agent session anew.",
        {"protocol_revision": PROTOCOL_REVISION},
    )


def _where(error: BaseException) -> str | None:
    """`file.py:line` of the innermost frame: code, never data."""
    trace = error.__traceback__
    found = None
    while trace is not None:
        found = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
