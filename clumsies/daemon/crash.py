"""What is left behind when the daemon dies: the crash log and the marker of the last start.

A crash is written as its error's type and the code positions of its stack. The error's text is
left out: it may quote what the daemon was working on.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from clumsies.files import write_private
from clumsies.logs import EventLog, LogFile

CRASH_LOOP_S = 120.0
MARKER_NAME = ".daemon-started-at"


class CrashLog:
    """Writes uncaught errors of every thread, and fatal signals, into one file."""

    def __init__(self, file: LogFile):
        self._file = file

    def install(self) -> None:
        """Take over the interpreter's hooks and `faulthandler` for the rest of the process."""
        sys.excepthook = self.record
        threading.excepthook = self._record_thread
        self._arm()

    def reopen(self) -> None:
        self._file.reopen()
        self._arm()

    def record(
        self,
        kind: type[BaseException],
        _error: BaseException,
        trace: TracebackType | None,
        thread: str = "main",
    ) -> None:
        """Write the type and the stack, innermost position last."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [f"{now} {kind.__module__}.{kind.__qualname__} in thread {thread}"]
        while trace is not None:
            code = trace.tb_frame.f_code
            lines.append(f"  {code.co_filename}:{trace.tb_lineno} {code.co_name}")
            trace = trace.tb_next
        for line in lines:
            self._file.write(line.encode("utf-8", "backslashreplace"))
        self._arm()  # Writing may have rotated to another descriptor.

    def _record_thread(self, found: threading.ExceptHookArgs) -> None:
        if found.exc_type is not SystemExit and found.exc_value is not None:
            name = found.thread.name if found.thread else "unknown"
            self.record(found.exc_type, found.exc_value, found.exc_traceback, name)

    def _arm(self) -> None:
        if self._file.fileno() >= 0:
            faulthandler.enable(self._file.fileno(), all_threads=True)


def mark_start(root: Path, log: EventLog, now: float) -> None:
    """Warn where the daemon before this one did not end cleanly a short while ago.

    `now` is seconds since the epoch. A clean end removes the marker (`mark_clean_end`).
    """
    marker = root / MARKER_NAME
    try:
        before = float(marker.read_text("ascii"))
    except (OSError, ValueError):
        before = None
    if before is not None and 0 <= now - before < CRASH_LOOP_S:
        log.emit("crash_loop_suspected", "warning", elapsed_ms=(now - before) * 1000)
    elif before is not None:
        log.emit("unclean_end_found", "warning")
    write_private(marker, [f"{now:.3f}\n".encode("ascii")])


def mark_clean_end(root: Path) -> None:
    (root / MARKER_NAME).unlink(missing_ok=True)
