"""Durable private files: whole or not at all, readable by their owner alone.

Files are 0600 and directories 0700. A write goes to a temporary name in the same directory, is
flushed to the disk and renamed, so that a reader sees the old bytes or the new bytes and a crash
leaves at most a temporary file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from clumsies.errors import IoFailed, NotReady

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_LOCK_POLL_S = 0.05


def io_failed(error: OSError, action: str, path: Path) -> IoFailed:
    """The stable form of an operating-system refusal, naming the path and what helps."""
    if error.errno == errno.ENOSPC:
        return IoFailed(
            "insufficient_space", f"No space left to {action} {path}; free some and run it again."
        )
    reason = error.strerror or type(error).__name__
    return IoFailed("io_error", f"Cannot {action} {path}: {reason}. Check its owner and mode.")


def ensure_private_directory(path: Path) -> Path:
    """Make `path` (and what is missing above it) a directory of mode 0700 that is no symlink.

    Raises IoFailed where it cannot be made or belongs to someone else.
    """
    try:
        # `parents=True` would give what is above the mode of the umask.
        for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
            missing.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
            raise IoFailed("io_error", f"{path} is not a directory of its own; move it away.")
        if found.st_uid != os.getuid():
            raise IoFailed("io_error", f"{path} belongs to another user; choose another place.")
        if stat.S_IMODE(found.st_mode) != DIRECTORY_MODE:
            path.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise io_failed(error, "prepare", path) from error
    return path


def sync_directory(path: Path) -> None:
    """Make a rename inside `path` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_sibling(path: Path) -> Path:
    """A fresh hidden name in the directory of `path`, for a write that ends in a rename."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_private(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Replace `path` by the chunks' bytes atomically, mode 0600; the directory must exist.

    Raises IoFailed; the old file is then as it was.
    """
    temporary = temporary_sibling(path)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise io_failed(error, "write", path) from error
    finally:
        temporary.unlink(missing_ok=True)


class FileLock:
    """An exclusive lock between processes, held through an open file (`flock`).

    The kernel releases it when its holder ends, however that happens. The file stays: removing
    it would let two processes lock two different files of one name.
    """

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise io_failed(error, "lock", self.path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise io_failed(error, "lock", self.path) from error
        self._descriptor = descriptor
        return True

    def acquire(
        self,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the lock, waiting at most `timeout_s`; raises NotReady when it stays taken."""
        deadline = clock() + timeout_s
        while not self.try_acquire():
            if clock() >= deadline:
                raise NotReady(
                    "search_index_preparing",
                    f"Another process holds {self.path.name}; wait for it to end and run it again.",
                )
            sleep(_LOCK_POLL_S)

    def release(self) -> None:
        """Give the lock up; releasing twice does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def __enter__(self) -> FileLock:
        if not self.held:
            raise RuntimeError("acquire the lock before entering it")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
