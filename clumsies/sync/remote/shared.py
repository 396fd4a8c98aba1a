"""One transport for several clients."""

from __future__ import annotations

import httpx


class _Shared(httpx.BaseTransport):
    def __init__(self, transport: httpx.BaseTransport):
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transport.handle_request(request)


def shared_transport(transport: httpx.BaseTransport) -> httpx.BaseTransport:
    """The transport for one of several clients: closing it leaves it open for the others."""
    return _Shared(transport)
