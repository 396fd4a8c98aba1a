"""Errors as a log may show them: kind, stable code, and their causes' kinds and OS codes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from clumsies.errors import ClumsiesError
from clumsies.logs.fields import MAX_CAUSES


@dataclass(frozen=True, slots=True)
class Failure:
    """What a log says of an error: never its text."""

    kind: str
    code: str | None = None
    causes: tuple[dict[str, object], ...] = ()

    @property
    def signature(self) -> str:
        """Equal for errors that say the same."""
        return json.dumps([self.kind, self.code, self.causes], sort_keys=True)

    def fields(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind}
        if self.code:
            found["error_code"] = self.code
        if self.causes:
            found["causes"] = self.causes
        return found


def failure_of(error: BaseException) -> Failure:
    """The safe form of `error`: its kind and code, and the kinds and OS codes of its causes."""
    causes: list[dict[str, object]] = []
    seen: set[int] = {id(error)}
    cause = _next_cause(error)
    while cause is not None and id(cause) not in seen and len(causes) < MAX_CAUSES:
        seen.add(id(cause))
        causes.append(_described(cause))
        cause = _next_cause(cause)
    kind = kind_of(error)
    if isinstance(error, ClumsiesError):
        if kind == "application" and causes:
            kind = str(causes[0]["kind"])
        return Failure(kind, error.code, tuple(causes))
    code = None if isinstance(error, OSError) else type(error).__name__
    own = (_described(error),) if isinstance(error, OSError) else ()
    return Failure(kind, code, (*own, *causes)[:MAX_CAUSES])


def kind_of(error: BaseException) -> str:
    """One of the kinds of the diagnostics contract, by the error's type and home."""
    name, home = type(error).__name__, type(error).__module__.split(".")[0]
    if isinstance(error, ClumsiesError):
        return _KINDS_OF_CODES.get(error.code, "application")
    if "Timeout" in name:
        return "timeout"
    kind = _KINDS_OF_NAMES.get(name) or _KINDS_OF_HOMES.get(home)
    return kind or ("io" if isinstance(error, OSError) else "application")


_KINDS_OF_NAMES = {
    "ConnectError": "connect",
    "ConnectionRefusedError": "connect",
    "gaierror": "connect",
    "HTTPStatusError": "http_status",
    "JSONDecodeError": "json",
    "UnicodeDecodeError": "decode",
}
_KINDS_OF_HOMES = {
    "httpx": "transport",
    "httpcore": "transport",
    "apsw": "database",
    "sqlite3": "database",
    "msgspec": "json",
    "keyring": "credentials",
}
_KINDS_OF_CODES = {
    "activation_deadline": "timeout",
    "daemon_ipc_failed": "ipc",
    "daemon_unavailable": "ipc",
    "peer_refused": "ipc",
    "invalid_json": "json",
    "io_error": "io",
    "insufficient_space": "io",
    "local_db_error": "database",
    "request_deadline": "timeout",
}


def _next_cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _described(error: BaseException) -> dict[str, object]:
    found: dict[str, object] = {"kind": kind_of(error)}
    if isinstance(error, OSError) and error.errno is not None:
        found["os_code"] = error.errno
    return found
