"""Generations: installed snapshots of a project's commits, as files.

::

    generations/<commit_id, or ref-none>/
      commit-payload.json    the payload as it was verified; its presence is the last proof
      manifest.json          project_id, commit_id, tree_id, ref_name, memories by id
      cache/memory/<path>    one file a memory

A generation is built beside its place and renamed into it, so it is there whole or not at all, and
it is never changed afterwards. It is derived: what it says can be written again from the objects.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from clumsies.errors import IoFailed, NotReady, StoreFailed
from clumsies.files import (
    DIRECTORY_MODE,
    FILE_MODE,
    ensure_private_directory,
    io_failed,
    sync_directory,
)
from clumsies.storage.objects import MAIN_REF, CommitPayload
from clumsies.storage.tree_paths import is_cache_component, path_problem
from clumsies.types import content_hash

MARKER_NAME = "commit-payload.json"
MANIFEST_NAME = "manifest.json"
EMPTY_REF = "ref-none"
MEMORY_FOLDER = Path("cache") / "memory"
FLUSH_THREADS = 8
_TEMPORARY = ".tmp-"


class ManifestMemory(msgspec.Struct, frozen=True):
    """One file of a generation; `hash` is the content hash of its text."""

    path: str
    hash: str
    description: str


class Manifest(msgspec.Struct, frozen=True):
    """What `manifest.json` says; commit and tree are null for an empty Ref."""

    project_id: str
    commit_id: str | None
    tree_id: str | None
    ref_name: str
    memories: dict[str, ManifestMemory]


class EmptyMarker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The marker of an empty Ref's generation."""

    project_id: str
    commit_id: None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the file system says of a generation; equal facts need no second verification."""

    marker: tuple[int, int, int]
    manifest: tuple[int, int, int]


class GenerationStore:
    """The generations of one project, below its `generations` directory."""

    def __init__(
        self,
        directory: Path,
        project_id: str,
        *,
        new_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ):
        self.directory = directory
        self._project_id = project_id
        self._new_name = new_name

    def path(self, commit_id: str | None) -> Path:
        """Where the commit's generation is, or would be."""
        name = EMPTY_REF if commit_id is None else commit_id
        if not is_cache_component(name):
            raise StoreFailed("object_corrupt", "A commit id cannot name a directory; sync again.")
        return self.directory / name

    def install(
        self, payload: CommitPayload | None, *, previous_commit_id: str | None = None
    ) -> Path:
        """Materialise a verified payload (None: an empty Ref) and return its directory.

        Files that the previous generation has with the same bytes are linked from it. A generation
        that is there already is kept if its marker has the same bytes, else
        StoreFailed("commit_generation_corrupt") is raised; see `discard`.
        """
        commit_id = None if payload is None else payload.commit.commit_id
        target = self.path(commit_id)
        if target.exists():
            return self._accept(target, _marker_bytes(payload, self._project_id))
        ensure_private_directory(self.directory)
        building = self.directory / f"{_TEMPORARY}{self._new_name()}"
        try:
            building.mkdir(DIRECTORY_MODE)
            previous = self.path(previous_commit_id) if previous_commit_id else None
            self._build(building, payload, previous)
            try:
                building.rename(target)
            except OSError:
                if target.is_dir():
                    return self._accept(target, _marker_bytes(payload, self._project_id))
                raise
            sync_directory(self.directory)
        except OSError as error:
            raise io_failed(error, "build", target) from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return target

    def _accept(self, target: Path, marker: bytes) -> Path:
        """Another builder was first: fine if it installed the same."""
        try:
            same = (target / MARKER_NAME).read_bytes() == marker
        except OSError:
            same = False
        if not same:
            raise self._corrupt(target, "its marker is not the commit's payload")
        return target

    def _build(self, building: Path, payload: CommitPayload | None, previous: Path | None) -> None:
        manifest = manifest_of(payload, self._project_id)
        memory = building / MEMORY_FOLDER
        memory.mkdir(DIRECTORY_MODE, parents=True)
        written: list[Path] = []
        if payload is not None:
            linkable = _linkable(previous)
            texts = {blob.blob_id: blob.content for blob in payload.blobs}
            for entry in payload.tree.entries:
                if entry.is_memory:
                    path = entry.path or ""
                    if path_problem(path) is not None:
                        raise StoreFailed("object_corrupt", "A memory's path leads outside.")
                    data = texts[entry.blob_id].encode("utf-8")
                    source = linkable.get(manifest.memories[entry.item_id].hash)
                    if not _write(memory / path, data, source):
                        written.append(memory / path)
        for name, data in (
            (MANIFEST_NAME, msgspec.json.encode(manifest)),
            (MARKER_NAME, _marker_bytes(payload, self._project_id)),
        ):
            _write(building / name, data, None)
            written.append(building / name)
        _flush(building, written)

    def verify(self, commit_id: str | None) -> Manifest:
        """The manifest of an installed generation whose manifest and marker agree.

        Raises NotReady("commit_generation_missing") and StoreFailed("commit_generation_corrupt").
        """
        target = self.path(commit_id)
        if not target.is_dir() or target.is_symlink():
            raise NotReady(
                "commit_generation_missing",
                f"The files of the installed commit are not at {target}; retry the sync.",
                {"path": str(target)},
            )
        try:
            manifest = msgspec.json.decode((target / MANIFEST_NAME).read_bytes(), type=Manifest)
            marker = (target / MARKER_NAME).read_bytes()
            owner = (manifest.project_id, manifest.commit_id, manifest.ref_name)
            if owner != (self._project_id, commit_id, MAIN_REF):
                raise self._corrupt(target, "its manifest is another commit's")
            if not _marks(marker, manifest):
                raise self._corrupt(target, "its marker is another commit's")
        except (OSError, msgspec.MsgspecError) as error:
            raise self._corrupt(target, "it cannot be read") from error
        return manifest

    def verify_files(self, commit_id: str | None) -> Manifest:
        """Like `verify`, and every file is there with the bytes that the manifest names."""
        manifest = self.verify(commit_id)
        target = self.path(commit_id)
        for memory in manifest.memories.values():
            place = target / MEMORY_FOLDER / memory.path
            try:
                sound = (
                    path_problem(memory.path) is None
                    and stat.S_ISREG(place.lstat().st_mode)
                    and content_hash(place.read_bytes().decode("utf-8")) == memory.hash
                )
            except (OSError, UnicodeDecodeError):
                sound = False
            if not sound:
                raise self._corrupt(target, "a file is missing or was changed")
        return manifest

    def facts(self, commit_id: str | None) -> Facts | None:
        """What tells cheaply whether a verified generation is still as it was; None if gone."""
        target = self.path(commit_id)
        try:
            return Facts(_fact(target / MARKER_NAME), _fact(target / MANIFEST_NAME))
        except OSError:
            return None

    def discard(self, commit_id: str | None) -> None:
        """Take one generation away, so that it can be installed again."""
        target = self.path(commit_id)
        aside = self.directory / f"{_TEMPORARY}{self._new_name()}"
        try:
            target.rename(aside)
        except FileNotFoundError:
            return
        except OSError as error:
            raise io_failed(error, "remove", target) from error
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)

    def collect(self, needed: Collection[str | None]) -> list[str]:
        """Remove generations whose commit nothing needs, and unfinished ones; the removed names.

        No generation may be in the making.
        """
        keep = {EMPTY_REF if commit_id is None else commit_id for commit_id in needed}
        removed: list[str] = []
        with suppress(FileNotFoundError):
            for entry in sorted(os.scandir(self.directory), key=lambda found: found.name):
                if entry.name in keep or not entry.is_dir(follow_symlinks=False):
                    continue
                try:
                    shutil.rmtree(entry.path)
                except OSError as error:
                    raise io_failed(error, "remove", Path(entry.path)) from error
                removed.append(entry.name)
        return removed

    @staticmethod
    def _corrupt(target: Path, what: str) -> StoreFailed:
        return StoreFailed(
            "commit_generation_corrupt",
            f"{target} cannot be trusted: {what}. It is derived; clear the project's cache.",
            {"path": str(target)},
        )


def manifest_of(payload: CommitPayload | None, project_id: str) -> Manifest:
    """The manifest of a payload's generation."""
    if payload is None:
        return Manifest(project_id, None, None, MAIN_REF, {})
    hashes = {blob.blob_id: content_hash(blob.content) for blob in payload.blobs}
    memories = {
        entry.item_id: ManifestMemory(entry.path or "", hashes[entry.blob_id], entry.description)
        for entry in payload.tree.entries
        if entry.is_memory
    }
    tree_id = payload.tree.tree_id
    return Manifest(project_id, payload.commit.commit_id, tree_id, MAIN_REF, memories)


def _marker_bytes(payload: CommitPayload | None, project_id: str) -> bytes:
    return msgspec.json.encode(EmptyMarker(project_id, None) if payload is None else payload)


def _marks(marker: bytes, manifest: Manifest) -> bool:
    """Whether the marker's commit is the manifest's, and a project's."""
    if manifest.commit_id is None:
        empty = msgspec.json.decode(marker, type=EmptyMarker)
        return empty.project_id == manifest.project_id
    payload = msgspec.json.decode(marker, type=CommitPayload)
    commit = payload.commit
    found = (commit.commit_id, commit.scope, commit.project_id, commit.tree_id)
    wanted = (manifest.commit_id, "project", manifest.project_id, manifest.tree_id)
    return found == wanted and payload.tree.tree_id == manifest.tree_id


def _linkable(previous: Path | None) -> dict[str, Path]:
    """Files of the previous generation by content hash; empty where it cannot be read."""
    if previous is None:
        return {}
    try:
        manifest = msgspec.json.decode((previous / MANIFEST_NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return {}
    return {
        memory.hash: previous / MEMORY_FOLDER / memory.path
        for memory in manifest.memories.values()
        if path_problem(memory.path) is None
    }


def _write(place: Path, data: bytes, source: Path | None) -> bool:
    """Make the file, as a link to `source` where that has the same bytes; whether it is a link."""
    place.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    if source is not None:
        with suppress(OSError):
            if stat.S_ISREG(source.lstat().st_mode) and source.read_bytes() == data:
                os.link(source, place, follow_symlinks=False)
                return True
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError as error:
        raise IoFailed(
            "io_error",
            f"Two memories fall on one file at {place}; this file system ignores case. "
            "Rename one of them.",
        ) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
    return False


def _flush(building: Path, written: list[Path]) -> None:
    """Bring the files, then every directory, to the disk.

    Side by side, because the file system then joins many flushes into one of its own commits: a
    thousand files one after the other were measured at 7 s, on eight threads at 0.2 s.
    """
    with ThreadPoolExecutor(FLUSH_THREADS) as flushing:
        for _ in flushing.map(_flush_file, written):
            pass
        folders = [Path(folder) for folder, _, _ in os.walk(building)]
        for folder in folders:
            folder.chmod(DIRECTORY_MODE)
        for _ in flushing.map(sync_directory, folders):
            pass


def _flush_file(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, FILE_MODE)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fact(place: Path) -> tuple[int, int, int]:
    found = place.lstat()
    return found.st_ino, found.st_size, found.st_mtime_ns
