"""How far a profile's preparation is, as any process can see it.

Nothing is announced: the bytes are the sizes of the files and of their `.part` files, a running
preparation is a held lock, and what stopped the last attempt stands in a small file that the
next attempt removes::

    {"version": 1, "code": "...", "reason": "...", "retry_at": seconds since 1970 or null}
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clumsies.errors import NotReady
from clumsies.files import io_failed, write_private

FAILURE_VERSION = 1
PART_SUFFIX = ".part"

State = Literal["missing", "preparing", "ready", "failed"]
Cause = Literal[
    "connection",
    "stalled",
    "http_status",
    "wrong_size",
    "wrong_content",
    "range_refused",
    "offline",
]


class TransferFailed(NotReady):
    """An attempt that brought no trusted file; trying again later may.

    `cause` is stable; `retry_after_s` is what the server asked for, unbounded as yet.
    """

    def __init__(self, cause: Cause, message: str, retry_after_s: float | None = None):
        super().__init__("search_model_unavailable", message, {"cause": cause})
        self.cause = cause
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server may keep a transfer waiting.

    `read_s` bounds the wait for the next bytes; a server that trickles fewer than `window_bytes`
    in `window_s` is given up as well.
    """

    connect_s: float = 10.0
    read_s: float = 30.0
    window_s: float = 60.0
    window_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt ended, and when the next begins (seconds since 1970; None: not by itself).

    `code` is a transfer's cause or an error's stable code.
    """

    code: str
    reason: str
    retry_at: float | None


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The state of a profile; `code`, `reason` and `retry_at` are set only where it failed."""

    state: State
    downloaded_bytes: int
    total_bytes: int
    code: str | None = None
    reason: str | None = None
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes on disk of one file and of the profile; `path` None: another process is at work."""

    path: str | None
    file_bytes: int
    file_total: int
    downloaded_bytes: int
    total_bytes: int


def part_of(path: Path) -> Path:
    """Where a file grows until it is complete and verified."""
    return path.with_name(path.name + PART_SUFFIX)


def is_locked(path: Path) -> bool:
    """True while some process (this one too) holds the lock file `path`.

    The shared lock that asks is given back at once; a preparer that meets it tries again.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise io_failed(error, "open", path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_failure(path: Path, failure: Failure) -> None:
    """Leave word of what stopped an attempt; raises IoFailed."""
    document = {
        "version": FAILURE_VERSION,
        "code": failure.code,
        "reason": failure.reason,
        "retry_at": failure.retry_at,
    }
    write_private(path, [json.dumps(document).encode()])


def read_failure(path: Path) -> Failure | None:
    """What stopped the last attempt, or None; a damaged file says nothing."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("version") != FAILURE_VERSION:
        return None
    code, reason, retry_at = (document.get(key) for key in ("code", "reason", "retry_at"))
    if not isinstance(code, str) or not isinstance(reason, str):
        return None
    return Failure(code, reason, float(retry_at) if isinstance(retry_at, int | float) else None)
