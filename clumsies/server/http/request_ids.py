"""The outermost layer: request ids, the bound of a body, and an answer whatever happens.

A client's id is taken from `x-clumsies-request-id`, else `x-request-id`, where it is 1 to 128 of
`[A-Za-z0-9_.-]`; otherwise one is made. Every answer carries it.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, cast

import msgspec

from clumsies.api.common import (
    CLIENT_REQUEST_ID_HEADER,
    MAX_BODY_BYTES,
    REQUEST_ID_HEADER,
    ErrorBody,
    ErrorEnvelope,
)

_ID = re.compile(rb"[A-Za-z0-9_.-]{1,128}")
_NAMES = (CLIENT_REQUEST_ID_HEADER.encode("ascii"), REQUEST_ID_HEADER.encode("ascii"))
_KEY = "clumsies.request_id"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def request_id_of(scope: Any) -> str:
    """The id of the request."""
    return str(scope[_KEY])


def chosen_request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The client's id where it can be used, else a new `req_<32 hex>`."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name.lower(), value.strip())
    for name in _NAMES:
        value = found.get(name, b"")
        if _ID.fullmatch(value):
            return value.decode("ascii")
    return f"req_{uuid.uuid4().hex}"


class RequestIds:
    """Wraps the application; see the module."""

    def __init__(self, app: AsgiApp, log: logging.Logger):
        self._app = app
        self._log = log

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[_KEY] = chosen_request_id(scope["headers"])
        started, status = time.monotonic(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (_NAMES[1], request_id.encode("ascii"))]
                message = {**message, "headers": headers}
            await send(message)

        try:
            if _declared_size(scope["headers"]) > MAX_BODY_BYTES:
                await _fail(send_with_id, 413, "invalid_request", request_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception as error:
            self._log.error("request %s failed: %s", request_id, type(error).__name__)
            if status:
                raise
            await _fail(send_with_id, 500, "internal_error", request_id)
        self._log.info(
            "%s %s %s %d %.1f ms",
            request_id,
            scope["method"],
            scope.get("path_template", "-"),
            status,
            (time.monotonic() - started) * 1000,
        )


def _declared_size(headers: Iterable[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _fail(send: Send, status: int, code: str, request_id: str) -> None:
    words = {
        413: "The body is larger than 10 MiB; send less at once.",
        500: "The Server failed here; report it with the request's id.",
    }
    body = msgspec.json.encode(
        ErrorEnvelope(error=ErrorBody(code=code, message=words[status], request_id=request_id))
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    await send(cast(Message, {"type": "http.response.start", "status": status, "headers": headers}))
    await send(cast(Message, {"type": "http.response.body", "body": body}))
