"""Files that the hub's own cache already holds, taken over once they are verified.

The cache keeps `models--<owner>--<name>/snapshots/<revision>/<path>`, each a link to its bytes.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

from clumsies.files import FILE_MODE, io_failed, sync_directory, temporary_sibling
from clumsies.models.manifest import Artifact, ModelFile
from clumsies.models.verification import digest, size_of


def snapshot_path(cache: Path, artifact: Artifact, file: ModelFile) -> Path:
    """Where the hub's cache keeps that file."""
    repository = "models--" + artifact.repository.replace("/", "--")
    return cache / repository / "snapshots" / artifact.revision / file.path


def adopt(
    cache: Path, artifact: Artifact, file: ModelFile, target: Path, cancel: threading.Event
) -> bool:
    """True once `target` is the pinned file, linked or copied out of the cache.

    A file that is absent, unreadable or not the pinned one leaves `target` alone. Raises
    IoFailed where the bytes are good and cannot be kept, or Cancelled.
    """
    try:
        source = snapshot_path(cache, artifact, file).resolve(strict=True)
        if size_of(source) != file.size_bytes:
            return False
    except (OSError, RuntimeError):
        return False
    taken = temporary_sibling(target)
    try:
        if not _take(source, taken):
            return False
        # What was taken is hashed, not the source: the cache may change between the two.
        if digest(taken, cancel) != file.sha256:
            return False
        taken.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise io_failed(error, "keep", target) from error
    finally:
        taken.unlink(missing_ok=True)
    return True


def _take(source: Path, taken: Path) -> bool:
    """Link `source` where only its owner, who is us, can write it; copy it otherwise.

    False where it cannot be read at all.
    """
    try:
        found = source.stat()
        stream = source.open("rb")
    except OSError:
        return False
    with stream:
        others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if found.st_uid == os.getuid() and not others_write:
            try:
                os.link(source, taken)
            except OSError:
                pass  # Another file system: copied below.
            else:
                return True
        descriptor = os.open(taken, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as copy:
            shutil.copyfileobj(stream, copy, 1024 * 1024)
            copy.flush()
            os.fsync(copy.fileno())
    return True
