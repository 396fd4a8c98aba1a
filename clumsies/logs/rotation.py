"""A log file with its archives: `name`, `name.1` to `name.3`, each at most 4 MiB and 0600."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

LOG_LIMIT_BYTES = 4 * 1024 * 1024
LOG_ARCHIVES = 3
_MODE = 0o600


class LogFile:
    """A file of lines with its archives. Writing never raises: a log must not stop the work.

    A failed write is reported on stderr once, until one succeeds again.
    """

    def __init__(
        self, path: Path, *, limit_bytes: int = LOG_LIMIT_BYTES, archives: int = LOG_ARCHIVES
    ):
        self.path = path
        self._limit = limit_bytes
        self._archives = archives
        self._mutex = threading.RLock()
        self._descriptor = -1
        self._size = 0
        self._failing = False
        self.reopen()

    def reopen(self) -> None:
        """Open the file that now has the name, cutting what is over the limit to its tail."""
        with self._mutex:
            self.close()
            try:
                for number in range(self._archives + 1):
                    _trim(self._archive(number), self._limit)
                self._open()
            except OSError as error:
                self._failed(error)

    def write(self, line: bytes) -> None:
        """Append the line and its newline, rotating first where it would pass the limit."""
        data = line.replace(b"\n", b" ") + b"\n"
        if len(data) > self._limit:
            data = b'{"event":"log_event_too_large","size_bytes":%d}\n' % len(data)
        with self._mutex:
            try:
                if self._descriptor < 0:
                    self._open()
                if self._size + len(data) > self._limit:
                    self._rotate()
                os.write(self._descriptor, data)
            except OSError as error:
                self._failed(error)
                return
            self._size += len(data)
            self._failing = False

    def fileno(self) -> int:
        """The open file, for `faulthandler`; -1 where it could not be opened."""
        return self._descriptor

    def close(self) -> None:
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def _archive(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags | os.O_NONBLOCK, _MODE)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError("the log is not a regular file")
        if stat.S_IMODE(found.st_mode) != _MODE:
            os.fchmod(descriptor, _MODE)
        self._descriptor, self._size = descriptor, found.st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._archives, 0, -1):
            newer = self._archive(number - 1)
            if newer.exists():
                newer.rename(self._archive(number))
        self._open()

    def _failed(self, error: OSError) -> None:
        if not self._failing and sys.stderr is not None:
            reason = error.strerror or type(error).__name__
            sys.stderr.write(f"clumsies: cannot write {self.path.name}: {reason}\n")
            sys.stderr.flush()
        self._failing = True


def _trim(path: Path, limit: int) -> None:
    """Keep the last whole lines of `path` that fit into the limit."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_size <= limit:
        return
    with path.open("rb") as stream:
        stream.seek(found.st_size - limit)
        tail = stream.read(limit)
    temporary = path.with_name(f".{path.name}.trim")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(tail[tail.find(b"\n") + 1 :])
    temporary.rename(path)
