"""A file on its way: the bytes so far, and the entity tag that they came with.

`<name>.part` holds the start of the file, `<name>.part.etag` the strong entity tag of the answer
that it came from, where there was one. A tag is never beside bytes of another answer.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from clumsies.files import FILE_MODE, io_failed, sync_directory, write_private
from clumsies.models.manifest import ModelFile
from clumsies.models.status import part_of
from clumsies.models.verification import digest, size_of

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Part:
    """The part of one pinned file; its directory exists, and one process at a time writes it."""

    def __init__(self, file: ModelFile, target: Path):
        self.file = file
        self.target = target
        self.path = part_of(target)
        self._etag_path = self.path.with_name(self.path.name + ".etag")

    def length(self) -> int:
        """Bytes so far; a part longer than its file is none of it, and is removed."""
        have = size_of(self.path) or 0
        if have > self.file.size_bytes:
            self.discard()
            return 0
        return have

    def range_headers(self, have: int) -> dict[str, str]:
        """What asks for the rest after `have` bytes, if the file is still the same one."""
        if have == 0:
            return {}
        headers = {"Range": f"bytes={have}-"}
        etag = self._etag()
        if etag is not None:
            headers["If-Range"] = etag
        return headers

    def is_continued_by(self, headers: Mapping[str, str], have: int) -> bool:
        """True where a 206 of these headers carries exactly the rest after `have` bytes."""
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        if have == 0 or found is None:
            return False
        first, last, total = found.groups()
        known, answered = self._etag(), _strong(headers.get("etag"))
        return (
            int(first) == have
            and int(last) == self.file.size_bytes - 1
            and total in ("*", str(self.file.size_bytes))
            and (known is None or answered is None or known == answered)
        )

    def begin(self, etag: str | None) -> None:
        """Start again from nothing, with the tag of the answer whose bytes follow."""
        self.discard()
        strong = _strong(etag)
        if strong is not None:
            write_private(self._etag_path, [strong.encode("ascii")])

    @contextmanager
    def appending(self) -> Iterator[FileIO]:
        """The part open at its end, unbuffered: a killed process loses no byte it has counted.

        Raises IoFailed for a refused write, too; what was written is on the disk afterwards.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with FileIO(os.open(self.path, flags, FILE_MODE), "wb") as stream:
                try:
                    yield stream
                finally:
                    os.fsync(stream.fileno())
        except OSError as error:
            raise io_failed(error, "write", self.path) from error

    def keep(self, cancel: threading.Event) -> bool:
        """True once the complete part is the target; False where it was wrong and is removed.

        Raises IoFailed, or Cancelled.
        """
        if digest(self.path, cancel) != self.file.sha256:
            self.discard()
            return False
        try:
            self.path.chmod(FILE_MODE)
            self.path.rename(self.target)
            sync_directory(self.target.parent)
            self._etag_path.unlink(missing_ok=True)
        except OSError as error:
            raise io_failed(error, "keep", self.target) from error
        return True

    def discard(self) -> None:
        """Remove the bytes, then their tag."""
        try:
            self.path.unlink(missing_ok=True)
            self._etag_path.unlink(missing_ok=True)
        except OSError as error:
            raise io_failed(error, "remove", self.path) from error

    def _etag(self) -> str | None:
        try:
            return _strong(self._etag_path.read_text("ascii"))
        except (OSError, ValueError):
            return None


def write_all(stream: FileIO, chunk: bytes) -> None:
    """Every byte of `chunk`, in as many writes as the kernel takes."""
    view = memoryview(chunk)
    while view:
        view = view[stream.write(view) :]


def _strong(etag: str | None) -> str | None:
    """An entity tag that vouches for bytes; a weak one does not (RFC 9110, 8.8.1)."""
    return etag if etag is not None and etag.startswith('"') and etag.isascii() else None
