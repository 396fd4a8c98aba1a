"""Whether a file on disk is the pinned one: its size first, then its SHA-256.

Hashing a profile costs from a tenth of a second to a second, so a verdict is kept for as long
as the file's identity (device, inode, size, times of change) stays what it was when it was
hashed. `Verdicts` lives as long as its process; where it is given a file it also remembers good
verdicts there, one line a path::

    {"version": 1, "files": {"<path>": ["<sha256>", dev, inode, size, mtime_ns, ctime_ns]}}

The change time cannot be set by a program, so bytes that were exchanged under the same size and
modification time are still hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clumsies.errors import IoFailed
from clumsies.files import ensure_private_directory, io_failed, write_private
from clumsies.models.manifest import ModelFile

CHUNK_BYTES = 1024 * 1024
STAMP_VERSION = 1
SETTLED_NS = 2_000_000_000
"""A file changed more recently is not remembered on disk: a second change within the file
system's time step would not show in its times."""

ProblemKind = Literal["missing", "truncated", "foreign"]
Identity = tuple[int, int, int, int, int]


class Cancelled(Exception):
    """The caller asked to stop; what was fetched so far stays for the next time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One file that is not the pinned one; `actual_size` is None where there is no file."""

    path: Path
    kind: ProblemKind
    expected_size: int
    actual_size: int | None

    def describe(self) -> str:
        """The problem as half a sentence."""
        if self.kind == "missing":
            return f"{self.path} is missing"
        if self.kind == "truncated":
            return f"{self.path} has {self.actual_size} of its {self.expected_size} bytes"
        if self.actual_size == self.expected_size:
            return f"{self.path} has other bytes than the pinned file"
        return f"{self.path} has {self.actual_size} bytes instead of {self.expected_size}"


def size_of(path: Path) -> int | None:
    """The size in bytes of the regular file that `path` leads to, or None.

    Raises IoFailed where the file system refuses to tell.
    """
    found = _stat(path)
    return None if found is None else found.st_size


def size_problem(path: Path, pinned: ModelFile) -> Problem | None:
    """What the size alone says against the file at `path`."""
    actual = size_of(path)
    if actual == pinned.size_bytes:
        return None
    kind: ProblemKind = "foreign"
    if actual is None:
        kind = "missing"
    elif actual < pinned.size_bytes:
        kind = "truncated"
    return Problem(path, kind, pinned.size_bytes, actual)


def digest(path: Path, cancel: threading.Event | None = None) -> str:
    """Lower-case hex SHA-256 of a file; raises IoFailed, or Cancelled within a chunk."""
    hasher = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    try:
        with path.open("rb", buffering=0) as stream:
            while count := stream.readinto(buffer):
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                hasher.update(view[:count])
    except OSError as error:
        raise io_failed(error, "read", path) from error
    return hasher.hexdigest()


class Verdicts:
    """Which files were found good or foreign; safe to share between threads.

    `remembered` is the file of good verdicts that outlives the process; its directory must be
    private, since whoever can write there could vouch for any bytes.
    """

    def __init__(
        self, remembered: Path | None = None, wall_clock_ns: Callable[[], int] = time.time_ns
    ):
        self._remembered = remembered
        self._wall_clock_ns = wall_clock_ns
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[Identity, str]] = {}
        self._stamps: dict[str, list[object]] | None = None

    def examine(
        self,
        path: Path,
        pinned: ModelFile,
        *,
        again: bool = False,
        cancel: threading.Event | None = None,
    ) -> Problem | None:
        """What is wrong with the file at `path`; `again` hashes it whatever is remembered."""
        problem = size_problem(path, pinned)
        if problem is None and self._digest(path, pinned, again, cancel) != pinned.sha256:
            return Problem(path, "foreign", pinned.size_bytes, pinned.size_bytes)
        return problem

    def known_foreign(self, path: Path, pinned: ModelFile) -> bool:
        """True where this process has hashed the file as it stands and found other bytes."""
        with self._lock:
            known = self._known.get(path)
        return known is not None and known[0] == _identity_of(path) and known[1] != pinned.sha256

    def _digest(
        self, path: Path, pinned: ModelFile, again: bool, cancel: threading.Event | None
    ) -> str:
        before = _identity_of(path)
        if before is not None and not again:
            known = self._recall(path, before, pinned)
            if known is not None:
                return known
        value = digest(path, cancel)
        if before is not None and before == _identity_of(path):
            with self._lock:
                self._known[path] = (before, value)
            if value == pinned.sha256:
                self._remember(path, before, value)
        return value

    def _recall(self, path: Path, seen: Identity, pinned: ModelFile) -> str | None:
        with self._lock:
            known = self._known.get(path)
            if known is not None and known[0] == seen:
                return known[1]
            stamp = self._load().get(str(path))
        if stamp == [pinned.sha256, *seen]:
            return pinned.sha256
        return None

    def _load(self) -> dict[str, list[object]]:
        if self._stamps is None:
            self._stamps = {} if self._remembered is None else _read_stamps(self._remembered)
        return self._stamps

    def _remember(self, path: Path, seen: Identity, value: str) -> None:
        if self._remembered is None:
            return
        if self._wall_clock_ns() - max(seen[3], seen[4]) < SETTLED_NS:
            return
        with self._lock:
            stamps = self._load()
            stamps[str(path)] = [value, *seen]
            document = json.dumps({"version": STAMP_VERSION, "files": stamps}).encode()
            try:
                ensure_private_directory(self._remembered.parent)
                write_private(self._remembered, [document])
            except IoFailed:
                self._remembered = None  # A read-only home: verify in every process instead.


def _stat(path: Path) -> os.stat_result | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise io_failed(error, "read", path) from error
    return found if stat.S_ISREG(found.st_mode) else None


def _identity_of(path: Path) -> Identity | None:
    """What changes when a file's bytes change: device, inode, size, mtime and ctime in ns."""
    found = _stat(path)
    if found is None:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read_stamps(path: Path) -> dict[str, list[object]]:
    """The remembered verdicts; a missing or damaged file remembers nothing."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or document.get("version") != STAMP_VERSION:
        return {}
    files = document.get("files")
    if not isinstance(files, dict):
        return {}
    return {name: stamp for name, stamp in files.items() if isinstance(stamp, list)}
