"""Failures as they travel: the envelope, and the status of each code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from clumsies.api.common import ErrorBody, ErrorEnvelope
from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, NotFound
from clumsies.server.http.request_ids import request_id_of

_STATUS_OF_CODE = {
    "unauthorized": 401,
    "forbidden": 403,
    "precondition_failed": 412,
    "oidc_code_exchange_failed": 401,
    "oidc_id_token_invalid": 401,
    "oidc_not_configured": 503,
    "oidc_unavailable": 503,
    "server_database_failed": 500,
    "invalid_config": 500,
}
_STATUS_OF_KIND = ((InvalidRequest, 400), (NotFound, 404), (Conflict, 409))
_TOO_LARGE = "The body is larger than 10 MiB; send less at once."
_WORDS = {
    404: ("not_found", "There is nothing at this address; look at /api/v1/openapi.json."),
    405: ("invalid_request", "This address does not take that method; see the header Allow."),
    413: ("invalid_request", _TOO_LARGE),
}
INTERNAL = "The Server failed here; report it with the request's id."


def status_of(error: ClumsiesError) -> int:
    """The HTTP status of an error."""
    found = _STATUS_OF_CODE.get(error.code)
    if found is None:
        found = next((status for kind, status in _STATUS_OF_KIND if isinstance(error, kind)), 500)
    return found


def envelope(
    code: str, message: str, request_id: str, details: Mapping[str, Any] | None = None
) -> ErrorEnvelope:
    """The body of a failure."""
    return ErrorEnvelope(
        error=ErrorBody(
            code=code, message=message, request_id=request_id, details=dict(details or {})
        )
    )


def encoded(envelope_: ErrorEnvelope) -> bytes:
    """The envelope as it is sent; details that are no JSON are shown as text."""
    return msgspec.json.encode(envelope_, enc_hook=str)


def _answer(
    request: Request[Any, Any, Any],
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    body = encoded(envelope(code, message, request_id_of(request.scope), details))
    shown = dict(headers or {})
    if status == 401:
        shown["www-authenticate"] = "Bearer"
    return Response(body, status_code=status, media_type="application/json", headers=shown)


def refused(request: Request[Any, Any, Any], error: ClumsiesError) -> Response[bytes]:
    """The answer for one of our errors; a failure of the Server's own is logged by its code."""
    status = status_of(error)
    if status != 500:
        return _answer(request, status, error.code, error.message, error.details)
    request.app.state.context.log.error(
        "request %s failed: %s", request_id_of(request.scope), error.code
    )
    if error.code == "server_database_failed":
        return _answer(request, status, error.code, error.message)
    return _answer(request, status, "internal_error", INTERNAL)


def misread(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """The answer where the framework understood nothing: no route, no JSON, a wrong field."""
    status = error.status_code
    if isinstance(error, ValidationException) or status == 400:
        code, message, details = _misread_part(error)
        return _answer(request, 400, code, message, details)
    if status >= 500:
        return failed(request, error)
    code, message = _WORDS.get(status, ("invalid_request", "The request cannot be understood."))
    return _answer(request, status, code, message, headers=error.headers)


def _misread_part(error: HTTPException) -> tuple[str, str, dict[str, Any]]:
    extra = error.extra if isinstance(error.extra, list) else []
    if not extra:
        return "invalid_request", f"The request cannot be understood: {error.detail}.", {}
    first = extra[0]
    field = str(first.get("key", "body"))
    what = str(first.get("message", "is not valid"))
    return (
        "invalid_request",
        f"`{field}` cannot be used: {what}.",
        {"field": field, "source": str(first.get("source", "body"))},
    )


def failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer for a fault of ours. The log has its type and place; texts may be memory."""
    log_fault(request.app.state.context.log, request_id_of(request.scope), error)
    return _answer(request, 500, "internal_error", INTERNAL)


def log_fault(log: Any, request_id: str, error: BaseException) -> None:
    """Log an exception without its text."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    log.error("request %s failed: %s at %s", request_id, type(error).__name__, places[-4:])


HANDLERS: dict[Any, Any] = {ClumsiesError: refused, HTTPException: misread, Exception: failed}
