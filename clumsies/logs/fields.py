"""The closed list of fields that a log line may have, each with its own check.

A value is a number, a flag, or a name, code or id in plain ASCII; what does not pass becomes `?`,
so that no text of a memory, a query, an address or a credential reaches a log by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MAX_CAUSES = 8

TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,127}")
_ROUTE = re.compile(r"/api/v1/[a-z:]{1,32}")


def _token(value: object) -> object:
    return value if isinstance(value, str) and TOKEN.fullmatch(value) else "?"


def _route(value: object) -> object:
    return value if isinstance(value, str) and _ROUTE.fullmatch(value) else "?"


def _number(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int) and not isinstance(value, bool) else "?"


def _flag(value: object) -> object:
    return value if isinstance(value, bool) else "?"


def _causes(value: object) -> object:
    if not isinstance(value, tuple):
        return "?"
    return [
        {name: (_number if name == "os_code" else _token)(item) for name, item in cause.items()}
        for cause in value[:MAX_CAUSES]
        if isinstance(cause, Mapping) and set(cause) <= {"kind", "os_code"}
    ]


SAFE_FIELDS: Mapping[str, Callable[[object], object]] = {
    **dict.fromkeys(
        (
            "build_id",
            "code",
            "error_code",
            "http_method",
            "kind",
            "layer",
            "logger",
            "method",
            "request_id",
            "server_request_id",
            "signal",
            "stage",
            "version",
            "where",
            "worker",
        ),
        _token,
    ),
    **dict.fromkeys(
        (
            "body_bytes",
            "connections",
            "count",
            "draft_count",
            "elapsed_ms",
            "protocol_revision",
            "requests",
            "size_bytes",
            "status",
            "uid",
        ),
        _number,
    ),
    **dict.fromkeys(("activated", "body", "clean", "connect", "decode", "timeout"), _flag),
    "route": _route,
    "causes": _causes,
}
"""Every field that a line may have beside `event`, `level`, `time` and `pid`, and its check."""

_FAMILIES = frozenset(
    (
        "auth",
        "commits",
        "drafts",
        "health",
        "me",
        "memories",
        "organizations",
        "projects",
        "reviews",
        "setup",
        "users",
    )
)


def route_of(path: str) -> str:
    """A request path as a log may show it: the resource family without names or query."""
    parts = path.split("?", 1)[0].split("#", 1)[0].split("/")
    family = parts[3] if parts[:3] == ["", "api", "v1"] and len(parts) > 3 else ""
    return f"/api/v1/{family if family in _FAMILIES else ':resource'}"
