"""An HTTP client on an ASGI application, without a socket."""

from __future__ import annotations

from typing import Any

import httpx
from anyio.from_thread import BlockingPortal


class InProcess(httpx.BaseTransport):
    """Calls the application in the portal's thread."""

    def __init__(self, app: Any, portal: BlockingPortal):
        self._inner = httpx.ASGITransport(app=app)
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        answer = await self._inner.handle_async_request(request)
        raw = b"".join([chunk async for chunk in answer.stream])  # type: ignore[union-attr]
        return httpx.Response(answer.status_code, headers=answer.headers.raw, content=raw)
