"""One daemon per root and per socket: locks that are held for as long as the process lives."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from clumsies.config import DaemonPlaces
from clumsies.errors import DaemonFailed
from clumsies.files import FILE_MODE, FileLock


def lock_paths(places: DaemonPlaces) -> tuple[Path, Path]:
    """The root's lock, which carries the holder's pid, and the socket's."""
    return places.root / "daemon.lock", places.socket.with_suffix(".lock")


_RETRY_S = 0.5
"""A look at the lock (`running_pid`) holds it for an instant; a daemon tries for longer."""
_POLL_S = 0.02


class DaemonLock:
    """Both locks of one daemon. They end with the process, however it ends."""

    def __init__(self, places: DaemonPlaces):
        self._root, self._socket = (FileLock(path) for path in lock_paths(places))

    def acquire(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take both; raises DaemonFailed("daemon_already_running") naming the holder."""
        end = clock() + _RETRY_S
        for lock in (self._root, self._socket):
            while not lock.try_acquire():
                if clock() < end:
                    sleep(_POLL_S)
                    continue
                self.release()
                pid = _written_pid(lock.path)
                holder = f"process {pid}" if pid else "another process"
                raise DaemonFailed(
                    "daemon_already_running",
                    f"The daemon already runs as {holder}; stop it with `clumsies daemon stop`.",
                )
            _write_pid(lock.path)

    def release(self) -> None:
        self._socket.release()
        self._root.release()


def running_pid(places: DaemonPlaces) -> int | None:
    """The process that holds the root's lock, or None where no daemon runs.

    A shared lock is tried, so that two who look at once do not take each other for a daemon.
    """
    path = lock_paths(places)[0]
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_pid(path)
    finally:
        os.close(descriptor)
    return None


def _write_pid(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    finally:
        os.close(descriptor)


def _written_pid(path: Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None
