"""A view of Effective Memory: what a project's memory is at one moment, without its texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from clumsies.errors import NotFound
from clumsies.storage.objects import MEMORY
from clumsies.types import ContentHash, ResourceId, effective_hash

MemoryState = Literal[
    "project_ref_not_synced",
    "storage_unavailable",
    "generation_missing",
    "generation_corrupt",
    "ready",
]


@dataclass(frozen=True, slots=True)
class EffectiveEntry:
    """One memory of a view. Its text is `content`, or the blob's where that is None."""

    resource_id: ResourceId
    path: str
    scope: str
    content_hash: ContentHash
    description: str
    source_commit_id: str | None
    blob_id: str | None = None
    content: str | None = None
    draft_id: str | None = None
    draft_revision: str | None = None

    @property
    def facts(self) -> tuple[str | None, ...]:
        """What must be indexed again where it differs; the source commit is not looked at, or
        every move of a Ref would touch every resource."""
        return (
            self.path,
            self.scope,
            self.content_hash,
            self.description,
            self.draft_id,
            self.draft_revision,
        )


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Ids whose resources differ between two views, and ids that are gone, both in order."""

    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class EffectiveView:
    """Effective Memory at one moment; `commit_id` is the project's installed commit."""

    project_id: str
    commit_id: str | None
    entries: Mapping[str, EffectiveEntry] = field(repr=False)

    @cached_property
    def effective_hash(self) -> str:
        """The hash of the contract: equal for equal memories, whoever computes it."""
        rows = (
            (
                entry.resource_id,
                MEMORY,
                entry.scope,
                entry.path,
                entry.content_hash,
                entry.draft_id or "",
                entry.draft_revision or "",
            )
            for _, entry in sorted(self.entries.items())
        )
        return effective_hash(self.project_id, self.commit_id, rows)

    @cached_property
    def _ids_by_path(self) -> dict[str, str]:
        """A draft's path goes before an installed one, should both be the same."""
        ordered = sorted(self.entries.values(), key=lambda entry: entry.draft_id is not None)
        return {entry.path: entry.resource_id for entry in ordered}

    def find(self, name: str) -> EffectiveEntry | None:
        """The memory with this id, else with this exact path."""
        found = self.entries.get(name)
        return found or self.entries.get(self._ids_by_path.get(name, ""))

    def require(self, names: Iterable[str]) -> list[EffectiveEntry]:
        """The memories by id, else by path, each once.

        Raises NotFound("memory_resource_not_found") that names all that are missing.
        """
        found = {name: self.find(name) for name in names}
        missing = [name for name, entry in found.items() if entry is None]
        if missing:
            raise NotFound(
                "memory_resource_not_found",
                f"No memory has the id or path {', '.join(map(ascii, missing))}; "
                "activate shows the ids there are.",
                {"missing": missing},
            )
        return list(
            {entry.resource_id: entry for entry in found.values() if entry is not None}.values()
        )

    def changes_since(self, earlier: EffectiveView | None) -> ViewChanges:
        """What to index again to come from `earlier` (None: from nothing) to this view."""
        old = earlier.entries if earlier is not None else {}
        changed = [
            name
            for name, entry in self.entries.items()
            if (before := old.get(name)) is not entry
            and (before is None or before.facts != entry.facts)
        ]
        return ViewChanges(tuple(sorted(changed)), tuple(sorted(old.keys() - self.entries.keys())))


@dataclass(frozen=True, slots=True)
class CacheState:
    """What `memory_cache` answers; a path only where the generation there is verified."""

    project_id: str
    commit_id: str | None
    active_generation_path: str | None
    state: MemoryState
    diagnostic: str | None
