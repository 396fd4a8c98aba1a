"""What the OpenAPI document says of each operation's refusals and headers.

The framework knows the answers that a handler gives and none of its refusals; which of them an
operation can have follows from what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clumsies.api.common import REQUEST_ID_HEADER

_WORDS = {
    400: "The request is not one that this operation takes.",
    401: "Nobody is signed in with this token, or what was sent in its place has ended.",
    403: "The role of whoever is signed in does not allow that.",
    404: "There is no such thing, or none that whoever is signed in may see.",
    409: "What is there now stands against it; `details` says what.",
    412: "The Ref has another commit than `If-Match` names.",
    413: "The body is larger than 10 MiB.",
    500: "The Server failed.",
    503: "The identity provider is not set, or does not answer.",
}
_CREDENTIAL_PATHS = frozenset(
    {
        "/api/v1/auth/token",
        "/api/v1/setup/sessions",
        "/api/v1/setup/configuration",
        "/api/v1/setup/oidc-authorizations",
    }
)
"""Where something else than a bearer says who asks."""
_PROVIDER_PATHS = frozenset(
    {
        "/oauth2/authorization/oidc",
        "/api/v1/setup/configuration",
        "/api/v1/setup/oidc-authorizations",
    }
)
"""Where the identity provider is asked before the answer."""


def describe_parameters(operation: dict[str, Any]) -> None:
    """No text of a query, a path or a header means null: what is absent is left out."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        for choice in schema.pop("oneOf", ()):
            if choice.get("type") != "null":
                schema.update(choice)
        if isinstance(schema.get("type"), list):
            (schema["type"],) = (kind for kind in schema["type"] if kind != "null")
        if "enum" in schema:
            schema["enum"] = [value for value in schema["enum"] if value is not None]


def describe_answers(
    path: str, method: str, operation: dict[str, Any], takes_ref: bool, envelope: dict[str, Any]
) -> None:
    """Every status the operation can answer with, and the headers of each.

    `takes_ref` is whether its `If-Match` names a Ref; `envelope` is the schema of a failure.
    """
    answers = operation["responses"]
    for status in [status for status in answers if status[0] in "45"]:
        del answers[status]
    for code in _refusals(path, method, operation, takes_ref):
        content = {"application/json": {"schema": envelope}}
        answers[str(code)] = {"description": _WORDS[code], "content": content}
        if code == 401:
            answers["401"]["headers"] = {"www-authenticate": _header("The scheme to use.")}
    for answer in answers.values():
        answer.setdefault("headers", {})[REQUEST_ID_HEADER] = _header("The request's id.")


def _header(words: str) -> dict[str, Any]:
    return {"description": words, "required": True, "schema": {"type": "string"}}


def _refusals(path: str, method: str, operation: dict[str, Any], takes_ref: bool) -> Iterator[int]:
    """The statuses in ascending order."""
    names = {parameter["name"] for parameter in operation.get("parameters", ())}
    has_body, writes = "requestBody" in operation, method != "get"
    is_signed = operation.get("security") != [{}]
    if names or has_body:
        yield 400
    if is_signed or path in _CREDENTIAL_PATHS:
        yield 401
    if is_signed and (writes or path.startswith("/api/v1/admin/")):
        yield 403
    if is_signed and (has_body or "{" in path or "project_id" in names):
        yield 404
    if is_signed and writes:
        yield 409
    if takes_ref:
        yield 412
    if has_body:
        yield 413
    yield 500
    if path in _PROVIDER_PATHS:
        yield 503
