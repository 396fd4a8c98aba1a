"""An ASGI application in this process, asked as if it were on the network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import Any

import httpx

MAX_REQUESTS = 16
CLOSE_TIMEOUT_S = 5.0

App = Callable[[Any, Any, Any], Awaitable[None]]


class _InProcess(httpx.BaseTransport):
    """An ASGI application on an event loop in a thread of its own."""

    def __init__(self, app: App):
        self._asgi = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        self._mutex = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="local-authority", daemon=True
        )
        self._thread.start()
        ready.wait()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._stop.wait()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        left_s = request.extensions.get("timeout", {}).get("read")
        request.read()
        if not self._free.acquire(timeout=left_s):
            raise httpx.PoolTimeout("busy", request=request)
        try:
            return self._answered(request, left_s)
        finally:
            self._free.release()

    def _answered(self, request: httpx.Request, left_s: float | None) -> httpx.Response:
        with self._mutex:
            if self._closed or self._loop is None:
                raise httpx.ConnectError("closed", request=request)
            running = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            status, headers, body = running.result(left_s)
        except TimeoutError:
            running.cancel()
            raise httpx.ReadTimeout("no answer", request=request) from None
        except CancelledError:
            raise httpx.ReadError("closed", request=request) from None
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    async def _answer(self, request: httpx.Request) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        response = await self._asgi.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in response.stream])
        return response.status_code, response.headers.raw, body

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_TIMEOUT_S)


def in_process_transport(app: App) -> httpx.BaseTransport:
    """A transport that has `app` answer in this process, at most `MAX_REQUESTS` requests at once.

    An exception of the application is a 500. `close` gives up what runs and ends the thread.
    """
    return _InProcess(app)
