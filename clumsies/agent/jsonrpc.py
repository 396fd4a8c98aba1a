"""JSON-RPC 2.0, one message a line: what a line means, and what is refused with which code.

Lines are UTF-8 and at most 1 MiB. An id is a string or an integer; a batch, a fractional id or
a null id is refused. Nothing that was read can make a line that cannot be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_PROTOCOL_VERSION = -32022

MAX_LINE_BYTES = 1024 * 1024
"""Of a line that is read, its end excluded."""

Id = str | int


class ProtocolError(Exception):
    """A message that cannot be carried out, as the error object of its answer."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Mapping[str, Any] | None = None,
        request_id: Id | None = None,
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id = request_id


class Request(NamedTuple):
    """A message that is to be answered under its id."""

    request_id: Id
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """A message that is never answered, whatever is wrong with it."""

    method: str
    params: dict[str, Any]


class LineBuffer:
    """Lines out of bytes as they arrive; one that is too long is dropped up to its end."""

    def __init__(self, limit: int = MAX_LINE_BYTES):
        self._limit = limit
        self._pending = bytearray()
        self._dropping = False

    def feed(self, received: bytes) -> Iterator[bytes | None]:
        """Every line that is now whole, without its end; None for one that is too long."""
        self._pending += received
        start = 0
        while (end := self._pending.find(b"\n", start)) >= 0:
            line = bytes(self._pending[start:end])
            start = end + 1
            if self._dropping:
                self._dropping = False
                continue
            yield line if len(line) <= self._limit else None
        del self._pending[:start]
        if len(self._pending) > self._limit:
            self._pending.clear()
            if not self._dropping:
                self._dropping = True
                yield None


def too_long() -> ProtocolError:
    """The refusal of a line over the limit."""
    return ProtocolError(
        INVALID_REQUEST, f"The message is longer than {MAX_LINE_BYTES} bytes; send less at once."
    )


def decode(line: bytes) -> Request | Notification | None:
    """The message of a line; None for what wants no answer: a blank line, a response.

    Raises ProtocolError, with the id where the line has a usable one.
    """
    if not line.strip():
        return None
    message = _parse(line)
    if isinstance(message, list):
        raise ProtocolError(INVALID_REQUEST, "Batches are not accepted; send one message a line.")
    if not isinstance(message, dict):
        raise ProtocolError(INVALID_REQUEST, "A message has to be a JSON object.")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    request_id = _id_of(message)
    try:
        method, params = _call_of(message)
    except ProtocolError as error:
        error.request_id = request_id
        if request_id is None and "id" not in message and error.code == INVALID_PARAMS:
            return None
        raise
    if request_id is None:
        return Notification(method, params)
    return Request(request_id, method, params)


def encode(message: Mapping[str, Any]) -> bytes:
    """The message as one line, its end included."""
    return dumps(message).encode("utf-8") + b"\n"


def dumps(value: object) -> str:
    """Compact JSON; the one serialisation of everything that leaves."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def success(request_id: Id, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(error: ProtocolError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": error.request_id, "error": body}


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _parse(line: bytes) -> Any:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
        if b"\\u" in line:
            # A lone surrogate can be written as an escape, but not sent back as UTF-8.
            dumps(value).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(PARSE_ERROR, "The line is not JSON in UTF-8.") from error
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _id_of(message: Mapping[str, Any]) -> Id | None:
    """The id, None for a notification."""
    if "id" not in message:
        return None
    request_id = message["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise ProtocolError(INVALID_REQUEST, "An `id` has to be a string or an integer.")
    return request_id


def _call_of(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'A message has to say `"jsonrpc": "2.0"`.')
    method = message.get("method")
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "A message has to name its `method`.")
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "`params` has to be an object.", {"field": "params"})
    return method, params
