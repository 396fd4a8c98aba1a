"""A directory's Markdown as resources.

`.gitignore` files are honoured at every level; version control, installed packages and virtual
environments are passed over. A file that cannot be read is a warning and never a deletion: the
scan names it, so that what was indexed of it before can be kept.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from clumsies.errors import IoFailed, NotFound
from clumsies.types import Resource, ResourceId

MARKDOWN_SUFFIXES = frozenset({".md", ".markdown"})
PASSED_OVER = frozenset({".git", ".hg", ".svn", ".jj", "node_modules"})
_ENVIRONMENT_MARKERS = ("pyvenv.cfg", "CACHEDIR.TAG")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that was left out; `path` is relative to the directory."""

    path: str
    reason: str


@dataclass(slots=True)
class DirectoryScan:
    """The Markdown below `root`; iterate `resources` to the end, then read the rest."""

    root: Path
    limit_bytes: int
    found: int = 0
    warnings: list[LeftOut] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def resources(self) -> Iterator[Resource]:
        """Every readable resource in order of path; the path is the id.

        Raises NotFound where the directory is not there and IoFailed where it cannot be listed.
        """
        _check_root(self.root)
        yield from self._walk("", [])

    def was_unread(self, path: str) -> bool:
        """Whether an indexed path is one that this scan could not look at."""
        return any(path == name or path.startswith(f"{name}/") for name in self.unread)

    def _walk(self, prefix: str, rules: list[tuple[str, GitIgnoreSpec]]) -> Iterator[Resource]:
        folder = self.root / prefix
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._leave_out(prefix, f"cannot be listed ({error.strerror})", unread=True)
            return
        names = {entry.name for entry in entries}
        if prefix and any(marker in names for marker in _ENVIRONMENT_MARKERS):
            return
        rules = rules + self._rules(prefix, ".gitignore" in names)
        for entry in entries:
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            if not _is_text(path):
                self._leave_out(
                    path.encode("utf-8", "replace").decode(), "has a name that is not UTF-8"
                )
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in PASSED_OVER and not _ignored(f"{path}/", rules):
                    yield from self._walk(path, rules)
            elif Path(entry.name).suffix.lower() in MARKDOWN_SUFFIXES and not _ignored(path, rules):
                resource = self.read(path)
                if resource is not None:
                    yield resource

    def _rules(self, prefix: str, present: bool) -> list[tuple[str, GitIgnoreSpec]]:
        if not present:
            return []
        try:
            text = (self.root / prefix / ".gitignore").read_text("utf-8", errors="replace")
        except OSError as error:
            name = f"{prefix}/.gitignore" if prefix else ".gitignore"
            self._leave_out(name, f"cannot be read ({error.strerror})")
            return []
        return [(f"{prefix}/" if prefix else "", GitIgnoreSpec.from_lines(text.splitlines()))]

    def read(self, path: str) -> Resource | None:
        """The resource at `path`, or None with the reason noted."""
        self.found += 1
        place = self.root / path
        try:
            real = place.resolve(strict=True)
            if not real.is_relative_to(self.root.resolve()):
                self._leave_out(path, "is a link to a place outside the directory")
                return None
            facts = real.stat()
            if not stat.S_ISREG(facts.st_mode):
                self._leave_out(path, "is not a regular file")
                return None
            if facts.st_size > self.limit_bytes:
                self._leave_out(path, self._too_large(facts.st_size), unread=True)
                return None
            content = real.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            self._leave_out(path, "is not UTF-8; save it as UTF-8", unread=True)
            return None
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "a loop of links"
            self._leave_out(path, f"cannot be read ({reason})", unread=True)
            return None
        return Resource(ResourceId(path), path, content) if content.strip() else None

    def _too_large(self, size_bytes: int) -> str:
        limit = self.limit_bytes / 1024 / 1024
        return f"has {size_bytes / 1024 / 1024:.1f} MiB, over the limit of {limit:g} MiB a file"

    def _leave_out(self, path: str, reason: str, *, unread: bool = False) -> None:
        self.warnings.append(LeftOut(path or ".", reason))
        if unread:
            self.unread.append(path)


def read_file(scan: DirectoryScan, place: Path) -> Iterator[Resource]:
    """The resource of one file of the scan's own directory, whatever its suffix; what cannot be
    read is among the scan's warnings. Raises NotFound where there is no such file."""
    if not place.exists() and not place.is_symlink():
        raise NotFound("not_found", f"There is no file {place}; check the path.")
    resource = scan.read(place.name)
    if resource is not None:
        yield resource


def _check_root(root: Path) -> None:
    if not root.exists():
        raise NotFound("not_found", f"There is no directory {root}; check the path.")
    if not root.is_dir():
        raise NotFound("not_found", f"{root} is not a directory; name the folder it is in.")
    if not os.access(root, os.R_OK | os.X_OK):
        raise IoFailed("io_error", f"{root} cannot be listed; check its owner and mode.")


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _ignored(path: str, rules: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """Whether git would ignore `path`: the deepest file that has an opinion decides."""
    for prefix, spec in reversed(rules):
        verdict = spec.check_file(path.removeprefix(prefix)).include
        if verdict is not None:
            return verdict
    return False
