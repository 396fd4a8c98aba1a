"""Which paths a memory may have: the same on every file system, and never outside.

A path is relative, has `/` between its segments and can be written below a directory on Linux,
macOS and Windows alike. Two paths collide where a file system that ignores case, or composes
characters, would see one file, or where one is a folder of the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

SEGMENT_BYTES = 240
"""A segment's limit in UTF-8, below the 255 of common file systems: temporary names are longer."""
PATH_BYTES = 1_024
_FORBIDDEN = frozenset('\\<>:"|?*')
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"{device}{number}" for device in ("com", "lpt") for number in range(1, 10)}
)
_COMPONENT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def is_cache_component(text: str) -> bool:
    """Whether an id may be the name of a directory of ours."""
    return bool(_COMPONENT.fullmatch(text)) and text not in (".", "..")


def path_problem(path: str) -> str | None:
    """Why `path` cannot be a memory's, in words that follow "the path"; None for a good one."""
    try:
        size_bytes = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid text"
    if not path:
        return "is empty"
    if path.startswith("/") or path.endswith("/"):
        return "begins or ends with a slash; it must be relative and name a file"
    if size_bytes > PATH_BYTES:
        return f"is longer than {PATH_BYTES} bytes"
    for segment in path.split("/"):
        problem = _segment_problem(segment)
        if problem is not None:
            return problem
    return None


def _stem(segment: str) -> str:
    """The name without what stands after its last dot; a dot at its beginning belongs to it."""
    return segment.rpartition(".")[0] or segment


def _segment_problem(segment: str) -> str | None:
    return next((words for broken, words in _SEGMENT_RULES if broken(segment)), None)


_SEGMENT_RULES: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda segment: not segment, "has an empty segment"),
    (lambda segment: segment in (".", ".."), "has a `.` or `..` segment"),
    (lambda segment: segment != segment.strip(), "has a segment with white space at an end"),
    (lambda segment: segment.endswith("."), "has a segment that ends with a dot"),
    (
        lambda segment: (
            not segment.isprintable()
            and any(unicodedata.category(character) == "Cc" for character in segment)
        ),
        "has a control character",
    ),
    (
        lambda segment: not _FORBIDDEN.isdisjoint(segment),
        'has one of the characters \\ < > : " | ? *',
    ),
    (
        lambda segment: _stem(segment).lower() in _RESERVED,
        "has a segment that Windows reserves for a device",
    ),
    (
        lambda segment: len(segment.encode("utf-8")) > SEGMENT_BYTES,
        f"has a segment longer than {SEGMENT_BYTES} bytes",
    ),
)


def collision_key(path: str) -> str:
    """Equal for paths that one file system or another takes for the same."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).lower())


def find_collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """The first two paths, in order of key, that cannot stand side by side; None where all can."""
    files: dict[str, str] = {}
    for path in paths:
        key = collision_key(path)
        if key in files:
            return files[key], path
        files[key] = path
    for key in sorted(files):
        for folder in _folders(key):
            if folder in files:
                return files[folder], files[key]
    return None


def _folders(key: str) -> Iterable[str]:
    """Every folder above a path, outermost first."""
    end = key.find("/")
    while end != -1:
        yield key[:end]
        end = key.find("/", end + 1)
