"""The old `~/.clumsies/config.toml`: its entries become bindings, each once, and leave the file.

An entry is a table with a directory, a display name and a `ws_id`: either in an array of tables
(`[[workspaces]]` with `path` and `name`) or under the directory as its key
(`[workspaces."/home/me/project"]` with `name`). The display name is matched against known
projects; the `ws_id` is never used.

The file is edited as text: lines are taken out only where the rest then reads as the same settings
without the entry, so comments and all other settings stay as they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clumsies.errors import InvalidRequest, NotFound
from clumsies.files import io_failed, write_private
from clumsies.memory.bindings import Binding, BindingStore, require_directory

CONFIG_BYTES = 64 * 1024
LEGACY_ID = "ws_id"
NAME_KEYS = ("name", "display_name", "project", "workspace_name")
PATH_KEYS = ("path", "root", "workspace_root", "directory", "dir")


@dataclass(frozen=True, slots=True)
class NamedProject:
    """A project that may be meant by a display name."""

    project_id: str
    name: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """`keys` lead from the top of the document to the entry's table."""

    keys: tuple[str | int, ...]
    directory: Path
    name: str | None


def migrate_entry(
    file: Path, directory: Path, projects: Sequence[NamedProject], bindings: BindingStore
) -> Binding | None:
    """Bind the nearest entry at or above `directory` and take it out of the file.

    None where the file is not there or no entry speaks for the directory. Raises
    NotFound("project_binding_unresolved") where no project, or more than one, has the entry's
    name, and InvalidRequest("invalid_config") for a file that cannot be read or edited; the file
    and the bindings are then as they were.
    """
    text = _read(file)
    if text is None:
        return None
    settings = _parse(file, text)
    entry = _nearest(settings, directory)
    if entry is None:
        return None
    project = _matching(entry, projects)
    remaining = without_entry(text, entry.keys)
    if remaining is None:
        raise InvalidRequest(
            "invalid_config",
            f"The entry of {entry.directory} cannot be taken out of {file}; remove it by hand and "
            "run `clumsies init` in the directory.",
        )
    binding = bindings.replace(entry.directory, project.project_id)
    write_private(file.resolve(), [remaining.encode("utf-8")])
    return binding


def resolve_or_migrate(
    file: Path, directory: Path, projects: Sequence[NamedProject], bindings: BindingStore
) -> Binding:
    """The binding that speaks for `directory`; the old file is looked at only where none does.

    Raises what BindingStore.resolve and `migrate_entry` raise.
    """
    try:
        return bindings.resolve(directory)
    except NotFound:
        if migrate_entry(file, directory, projects, bindings) is None:
            raise
    return bindings.resolve(directory)


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_failed(error, "read", file) from error
    if len(data) > CONFIG_BYTES:
        raise InvalidRequest("invalid_config", f"{file} is larger than 64 KiB; move it away.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest("invalid_config", f"{file} is not UTF-8; move it away.") from error


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(
            "invalid_config", f"{file} is not valid TOML; repair it or move it away."
        ) from error


def _entries(value: object, keys: tuple[str | int, ...] = ()) -> Iterator[_Entry]:
    """Every table with a `ws_id` and an absolute directory, in the order of the file."""
    if isinstance(value, dict):
        place = _directory(value, keys)
        if LEGACY_ID in value and place is not None:
            yield _Entry(keys, place, _first_text(value, NAME_KEYS))
        for key, inner in value.items():
            yield from _entries(inner, (*keys, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _entries(inner, (*keys, index))


def _directory(table: dict[str, Any], keys: tuple[str | int, ...]) -> Path | None:
    text = _first_text(table, PATH_KEYS)
    if text is None and keys and isinstance(keys[-1], str):
        text = keys[-1]
    if text is None or "\x00" in text:
        return None
    place = Path(text)
    return place if place.is_absolute() else None


def _first_text(table: dict[str, Any], keys: Sequence[str]) -> str | None:
    return next((table[key] for key in keys if isinstance(table.get(key), str)), None)


def _nearest(settings: dict[str, Any], directory: Path) -> _Entry | None:
    """The entry with the longest real path at or above the directory."""
    place = require_directory(directory)
    found: list[tuple[int, _Entry]] = []
    for entry in _entries(settings):
        root = entry.directory.resolve()
        if root.is_dir() and place.is_relative_to(root):
            found.append((len(root.parts), _Entry(entry.keys, root, entry.name)))
    return max(found, key=lambda item: item[0])[1] if found else None


def _matching(entry: _Entry, projects: Sequence[NamedProject]) -> NamedProject:
    matches = [project for project in projects if project.name == entry.name]
    if len(matches) != 1:
        count = "no project has" if not matches else f"{len(matches)} projects have"
        raise NotFound(
            "project_binding_unresolved",
            f"The old settings bind {entry.directory} to {entry.name!a}, but {count} that name; "
            "bind the directory with `clumsies bind`.",
            {"name": entry.name, "projects": [project.project_id for project in matches]},
        )
    return matches[0]


def without_entry(text: str, keys: Sequence[str | int]) -> str | None:
    """The document with nothing but that table gone; None where no run of lines does it."""
    wanted = _pruned(_without(tomllib.loads(text), keys))
    lines = text.splitlines(keepends=True)
    for start, end in _runs(lines):
        rest = "".join(lines[:start] + lines[end:])
        try:
            if _pruned(tomllib.loads(rest)) == wanted:
                return rest
        except tomllib.TOMLDecodeError:
            continue
    return None


def _runs(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines that may be a table: from a header up to a later one, then single lines."""
    headers = [index for index, line in enumerate(lines) if line.lstrip().startswith("[")]
    for position, start in enumerate(headers):
        for end in (*headers[position + 1 : position + 4], len(lines)):
            yield start, _without_comments(lines, end)
    for index in range(len(lines)):
        yield index, index + 1


def _without_comments(lines: Sequence[str], end: int) -> int:
    """`end` moved up over blank lines and comments, which belong to what follows them."""
    while end > 0 and lines[end - 1].strip()[:1] in ("", "#"):
        end -= 1
    return end


def _without(value: Any, keys: Sequence[str | int]) -> Any:
    head, rest = keys[0], keys[1:]
    if isinstance(value, list):
        assert isinstance(head, int)
        inner = [_without(value[head], rest)] if rest else []
        return [*value[:head], *inner, *value[head + 1 :]]
    if not rest:
        return {key: inner for key, inner in value.items() if key != head}
    return {**value, head: _without(value[head], rest)}


def _pruned(value: Any) -> Any:
    """The value without empty tables and arrays: a container that lost its last entry counts as
    gone, whichever way the text expresses it."""
    if isinstance(value, dict):
        inner = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value
