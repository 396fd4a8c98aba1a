"""Errors that many requests end with."""

from __future__ import annotations

from clumsies.errors import Conflict, InvalidRequest, NotFound


def missing(what: str) -> NotFound:
    """The answer for what is not there and for what the asker may not know of."""
    return NotFound("not_found", f"There is no such {what} here; list what you can see.")


def invalid(message: str, **details: object) -> InvalidRequest:
    return InvalidRequest("invalid_request", message, details)


def version_conflict(entity: str, expected: int, actual: int) -> Conflict:
    """The thing has another version than the request names."""
    return Conflict(
        "version_conflict",
        f"The {entity} changed meanwhile: it has version {actual}, not {expected}; read it again.",
        {"entity": entity, "expected_version": expected, "actual_version": actual},
    )


def check_version(entity: str, expected: int, actual: int) -> None:
    """Raise Conflict("version_conflict") unless they are the same."""
    if expected != actual:
        raise version_conflict(entity, expected, actual)
