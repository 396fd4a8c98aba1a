"""Frames and envelopes of the daemon's socket. Neither end trusts the other's bytes.

============  =======  ==================================================================
offset        size     meaning
============  =======  ==================================================================
0             4        body length, unsigned, big-endian, 1 to 16 MiB
4             length   one JSON object in UTF-8: a `Request` or a `Response`
============  =======  ==================================================================

A request carries an `id` that its response repeats; responses come in any order. A response
without an `id` is an *error frame*: the peer could not read a frame and closes the connection.
An unknown field of an envelope is refused by name, never ignored.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from clumsies.errors import ClumsiesError, DaemonFailed, InvalidRequest, from_code

PROTOCOL_REVISION = 1
"""The only number that decides whether a client and a daemon understand each other."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
HEADER_BYTES = 4
MAX_BUILD_ID_CHARS = 128
EMPTY_PAYLOAD = msgspec.Raw(b"{}")

_UCRED = struct.Struct("3i")
_XUCRED = struct.Struct("IIh2x16I")
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_REQUEST_ID = re.compile(r"req_[A-Za-z0-9_-]{1,64}")


class AgentRuntime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who speaks. The revision gates; the build id is for diagnosis and refuses nothing."""

    protocol_revision: Annotated[int, msgspec.Meta(ge=1)]
    build_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BUILD_ID_CHARS)]


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One call. `payload` is kept as JSON until the protocol gate has passed."""

    id: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    method: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    payload: msgspec.Raw = EMPTY_PAYLOAD
    agent_runtime: AgentRuntime | None = None
    request_id: str = ""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failure as it crosses the socket; `code` is one of `clumsies.errors`."""

    code: str
    message: str
    request_id: str
    details: dict[str, Any] = {}


class Response(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The answer to the request of the same `id`; `payload` is `{}` on failure."""

    id: int | None = None
    ok: bool
    payload: msgspec.Raw
    error: ErrorBody | None = None


_ENCODER = msgspec.json.Encoder()
_REQUESTS = msgspec.json.Decoder(Request)
_RESPONSES = msgspec.json.Decoder(Response)


def new_request_id() -> str:
    """A fresh `req_…` that names one call in both processes' logs."""
    return "req_" + os.urandom(12).hex()


def usable_request_id(given: str) -> str:
    """`given` where it is a well-formed `req_…`, else a fresh one."""
    return given if _REQUEST_ID.fullmatch(given) else new_request_id()


def encode_frame(body: bytes) -> bytes:
    """Header and body; raises DaemonFailed for a body that no peer would read."""
    check_length(len(body))
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def encode_request(request: Request) -> bytes:
    """The request as a frame; raises InvalidRequest where it is over 16 MiB."""
    body = _ENCODER.encode(request)
    if len(body) > MAX_FRAME_BYTES:
        raise InvalidRequest(
            "invalid_request", "The request is larger than 16 MiB; send less text at once."
        )
    return encode_frame(body)


def encode_response(response: Response) -> bytes:
    """The response as a frame; raises DaemonFailed where it is over 16 MiB."""
    return encode_frame(_ENCODER.encode(response))


def encode_payload(payload: object) -> msgspec.Raw:
    """A Struct or mapping as the JSON object that an envelope carries.

    Raises InvalidRequest for text that UTF-8 cannot hold, such as a file name in other bytes.
    """
    try:
        return msgspec.Raw(_ENCODER.encode(payload))
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "invalid_request",
            "A text or the name of a directory is not UTF-8; rename it, or send valid text.",
        ) from error


def decode_request(body: bytes) -> Request:
    """The request; raises InvalidRequest("invalid_json" or "invalid_request")."""
    try:
        request = _REQUESTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, "request") from error
    if not bytes(request.payload).lstrip().startswith(b"{"):
        raise InvalidRequest("invalid_request", "The request's `payload` has to be an object.")
    return request


def decode_response(body: bytes) -> Response:
    """The response; raises DaemonFailed("daemon_ipc_failed")."""
    try:
        return _RESPONSES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DaemonFailed(
            "daemon_ipc_failed",
            "The daemon's answer cannot be read; run `clumsies daemon restart` so that both are "
            "of one version.",
        ) from error


def undecodable(error: Exception, what: str) -> InvalidRequest:
    """The stable form of a decoder's refusal, with the field that was refused by name."""
    if isinstance(error, msgspec.ValidationError):
        return InvalidRequest("invalid_request", f"The {what} is refused: {error}.")
    return InvalidRequest("invalid_json", f"The {what} is not valid JSON in UTF-8.")


def success(request: Request, payload: msgspec.Raw) -> Response:
    """The answer of a method that did its work."""
    return Response(id=request.id, ok=True, payload=payload)


def failure(error: ClumsiesError, request_id: str, frame_id: int | None = None) -> Response:
    """The answer of a method that failed; without `frame_id` an error frame."""
    body = ErrorBody(
        code=error.code,
        message=error.message,
        request_id=request_id,
        details=_plain(error.details),
    )
    return Response(id=frame_id, ok=False, payload=EMPTY_PAYLOAD, error=body)


def error_of(response: Response) -> ClumsiesError:
    """The error that a failed response carries; `details` gain its request id."""
    body = response.error
    if body is None:
        return DaemonFailed("daemon_ipc_failed", "The daemon failed and did not say why.")
    return from_code(body.code, body.message, {**body.details, "request_id": body.request_id})


class FrameBuffer:
    """Frames out of bytes as they arrive, for a reader that waits by itself."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, received: bytes) -> None:
        self._bytes += received

    def pop(self) -> bytes | None:
        """The next whole body, or None; raises DaemonFailed for an impossible length."""
        if len(self._bytes) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._bytes[:HEADER_BYTES], "big")
        check_length(length)
        end = HEADER_BYTES + length
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[HEADER_BYTES:end])
        del self._bytes[:end]
        return body

    @property
    def torn(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._bytes)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows it; raises OSError."""
    if sys.platform == "darwin":  # struct xucred: version, uid, number of groups, 16 groups
        found = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
        return int(_XUCRED.unpack(found)[1])
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(found)[1])


def torn_frame() -> DaemonFailed:
    """A peer that ended in the middle of a frame."""
    return DaemonFailed("daemon_ipc_failed", "The connection ended in the middle of a frame.")


def check_length(length: int) -> None:
    """Raise DaemonFailed for a body length that no frame has."""
    if not 1 <= length <= MAX_FRAME_BYTES:
        raise DaemonFailed(
            "daemon_ipc_failed",
            f"A frame of {length} bytes is not allowed: it has 1 to {MAX_FRAME_BYTES} bytes.",
        )


def _plain(details: Mapping[str, object]) -> dict[str, Any]:
    """Details as JSON can carry them; what it cannot becomes its type's name."""
    plain: dict[str, Any] = {}
    for name, value in details.items():
        try:
            _ENCODER.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            plain[name] = type(value).__name__
        else:
            plain[name] = value
    return plain
