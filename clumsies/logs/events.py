"""Events as JSON lines: sorted keys, `event`, `level`, `time` in UTC, `pid` and safe fields."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from clumsies.logs.failures import failure_of
from clumsies.logs.fields import SAFE_FIELDS, TOKEN
from clumsies.logs.rotation import LogFile

Level = Literal["debug", "info", "warning", "error"]
_RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """Events as lines of one file."""

    def __init__(
        self, file: LogFile, *, level: Level = "info", clock: Callable[[], datetime] = _now
    ):
        self.file = file
        self._least = _RANKS[level]
        self._clock = clock

    def emit(self, event: str, level: Level = "info", **fields: object) -> None:
        """Write one line; None fields are left out.

        Raises ValueError for a field that is not of `SAFE_FIELDS`: a fault of the caller's code.
        """
        unknown = fields.keys() - SAFE_FIELDS.keys()
        if unknown or TOKEN.fullmatch(event) is None:
            raise ValueError(f"not loggable: {event}: {', '.join(sorted(unknown))}")
        if _RANKS[level] < self._least:
            return
        line = {name: SAFE_FIELDS[name](v) for name, v in fields.items() if v is not None}
        line |= {"event": event, "level": level, "pid": os.getpid()}
        line["time"] = self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.file.write(json.dumps(line, sort_keys=True, separators=(",", ":")).encode("ascii"))

    def failed(
        self, event: str, error: BaseException, level: Level = "error", **fields: object
    ) -> None:
        """Write one line about an error's safe form."""
        self.emit(event, level, **fields, **failure_of(error).fields())


class WorkerLog:
    """Failures of one repeating worker: the 1st, 2nd, 4th, 8th… of equal ones, and recovery."""

    def __init__(self, log: EventLog, worker: str):
        self._log = log
        self._worker = worker
        self._signature: str | None = None
        self._count = 0
        self._mutex = threading.Lock()

    def failed(self, error: BaseException) -> None:
        """Count a failure; a changed signature begins anew and is written at once."""
        found = failure_of(error)
        with self._mutex:
            if found.signature != self._signature:
                self._signature, self._count = found.signature, 0
            self._count += 1
            if self._count & (self._count - 1) == 0:
                self._log.emit(
                    "worker_failed",
                    "warning",
                    worker=self._worker,
                    count=self._count,
                    **found.fields(),
                )

    def recovered(self) -> None:
        """Say that the work succeeds again, where it had failed before."""
        with self._mutex:
            if self._signature is not None:
                self._log.emit("worker_recovered", worker=self._worker, count=self._count)
            self._signature, self._count = None, 0


class _LibraryHandler(logging.Handler):
    """Other packages' log records: which logger and what kind of error, never the message."""

    def __init__(self, log: EventLog):
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        error = record.exc_info[1] if record.exc_info else None
        fields = failure_of(error).fields() if error else {}
        self._log.emit("library_log", level, logger=record.name, **fields)


def adopt_library_logs(log: EventLog) -> Callable[[], None]:
    """Send other packages' warnings to `log`; returns what undoes it.

    httpx names every address that it was redirected to at level INFO, so it is kept to warnings.
    """
    root = logging.getLogger()
    handler = _LibraryHandler(log)
    root.addHandler(handler)
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return lambda: root.removeHandler(handler)
