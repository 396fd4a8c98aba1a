"""What a command asks of the team's Server itself; the daemon signs and sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clumsies.cli import output
from clumsies.cli.connection import Connection
from clumsies.errors import from_code


def ask_server(
    daemon: Connection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The Server's answer to a request below `/api/v1`; raises the error that it answered."""
    answer = daemon.call(
        "server_request",
        {
            "method": method,
            "path": f"/api/v1{path}",
            "headers": dict(headers or {}),
            "body": None if body is None else json.dumps(body),
        },
    )
    if "x-clumsies-cache" in answer["headers"]:
        output.warn("the Server cannot be reached; this is what it said before")
    try:
        found = json.loads(answer["body"])
    except ValueError:
        found = {}
    if not 200 <= answer["status"] < 300:
        error = found.get("error", {}) if isinstance(found, dict) else {}
        raise from_code(
            error.get("code", "server_request_failed"),
            error.get("message", f"The Server answered {answer['status']}; try again."),
        )
    return dict(found)
