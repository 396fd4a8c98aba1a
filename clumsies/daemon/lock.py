"""One daemon per root and per socket: locks that are held for as long as the process lives."""

from __future__ import annotations

import os
from pathlib import Path

from clumsies.config import DaemonPlaces
from clumsies.errors import DaemonFailed
from clumsies.files import FILE_MODE, FileLock


def lock_paths(places: DaemonPlaces) -> tuple[Path, Path]:
    """The root's lock, which carries the holder's pid, and the socket's."""
    return places.root / "daemon.lock", places.socket.with_suffix(".lock")


class DaemonLock:
    """Both locks of one daemon. They end with the process, however it ends."""

    def __init__(self, places: DaemonPlaces):
        self._root, self._socket = (FileLock(path) for path in lock_paths(places))

    def acquire(self) -> None:
        """Take both; raises DaemonFailed("daemon_already_running") naming the holder."""
        for lock in (self._root, self._socket):
            if not lock.try_acquire():
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
    """The process that holds the root's lock, or None where no daemon runs."""
    path = lock_paths(places)[0]
    if not path.exists():
        return None
    probe = FileLock(path)
    if probe.try_acquire():
        probe.release()
        return None
    return _written_pid(path)


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
