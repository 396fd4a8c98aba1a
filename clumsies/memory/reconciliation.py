"""What becomes of a draft when the resource changed under it: base, current and draft states.

Existence, path, content and description are merged each by itself, content by lines
(memory.text_merge). A field that one side alone changed is taken from there; what both changed
differently is a conflict, and so is a deletion against an edit. Nothing is proposed while there is
a conflict: people give the whole resolved state then.

A state's canonical form, which result_hash is made of, is compact JSON in UTF-8 with the keys in
this order, characters outside ASCII written as themselves:

| state  | bytes |
|---|---|
| absent | `{"exists":false}` |
| there  | `{"exists":true,"path":…,"content":…,"description":…}`, the last only where it is |
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Literal

import msgspec

from clumsies.errors import InvalidRequest
from clumsies.memory.operations import (
    Create,
    Delete,
    MemoryContent,
    Rename,
    StoreOperation,
    Update,
    check_content,
)
from clumsies.memory.text_merge import merge_texts
from clumsies.storage.tree_paths import collision_key

ConflictKind = Literal["content", "path", "existence", "path_occupied"]
ConflictField = Literal["existence", "path", "content", "description"]


class ResourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource at one commit, or as a draft leaves it. An absent one has no other field.

    One that exists has a path and a content; an empty description is none. Raises ValueError for
    others, which msgspec turns into ValidationError where it decodes.
    """

    exists: bool
    path: str | None = None
    content: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        if self.description == "":
            msgspec.structs.force_setattr(self, "description", None)
        if self.exists and (self.path is None or self.content is None):
            raise ValueError("a resource that exists has a path and a content")
        if not self.exists and (self.path, self.content, self.description) != (None, None, None):
            raise ValueError("a resource that does not exist has no path, content or description")


ABSENT = ResourceState(exists=False)


class StateConflict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What both sides changed, as each has it: texts, or whether it exists where that is the field.

    The description belongs to the content: its conflict is of that kind. "path_occupied": another
    resource of the current tree stands where `draft`, the path to be, would.
    """

    kind: ConflictKind
    field: ConflictField
    base: str | bool | None = None
    current: str | bool | None = None
    draft: str | bool | None = None


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`proposed` is there exactly where it is clean; conflicts are in order of field."""

    status: Literal["clean", "conflicts"]
    proposed: ResourceState | None = None
    conflicts: list[StateConflict] = []


def reconcile(
    base: ResourceState,
    current: ResourceState,
    draft: ResourceState,
    occupied: Collection[str] = (),
) -> Reconciliation:
    """What the draft, made on `base`, comes to on `current`.

    `occupied` are the collision keys (storage.tree_paths) of all other resources of the current
    tree. A merged text that no memory may have, such as a blank one, is a conflict of content.
    """
    if draft in (base, current):
        return Reconciliation(status="clean", proposed=current)
    if current == base:
        return _outcome(draft, path_conflicts(base, current, draft, occupied))
    if base.exists and current.exists and draft.exists:
        return _merged(base, current, draft, occupied)
    conflict = StateConflict(
        kind="existence",
        field="existence",
        base=base.exists,
        current=current.exists,
        draft=draft.exists,
    )
    return _outcome(None, [conflict])


def path_conflicts(
    base: ResourceState,
    current: ResourceState,
    wanted: ResourceState,
    occupied: Collection[str],
) -> list[StateConflict]:
    """The path_occupied conflict of a state that is to follow `current`; none where it fits.

    A path is occupied where another resource has it, lies below it, or is a folder above it, to
    any file system. A path that `current` has already is not asked about.
    """
    if wanted.path is None or wanted.path == current.path:
        return []
    if not _is_occupied(collision_key(wanted.path), occupied):
        return []
    return [_conflict("path_occupied", "path", base.path, current.path, wanted.path)]


def operations_between(
    current: ResourceState, wanted: ResourceState, resource_id: str
) -> list[StoreOperation]:
    """The operations, in stored form, that make `wanted` of `current`; none where it is that.

    A resource that is to be again after it was deleted is a new one: its creation has no id.
    """
    if wanted == current:
        return []
    if wanted.path is None or wanted.content is None:
        return [StoreOperation(delete=Delete(id=resource_id))]
    if not current.exists:
        content = MemoryContent(content=wanted.content, description=wanted.description)
        return [StoreOperation(create=Create(path=wanted.path, content=content))]
    operations = []
    if wanted.path != current.path:
        rename = Rename(id=resource_id, new_path=wanted.path)
        operations.append(StoreOperation(rename=rename))
    if (wanted.content, wanted.description) != (current.content, current.description):
        content = MemoryContent(content=wanted.content, description=wanted.description or "")
        operations.append(StoreOperation(update=Update(id=resource_id, content=content)))
    return operations


def canonical_state(state: ResourceState) -> bytes:
    """The bytes of the module's table."""
    return msgspec.json.encode(state)


def result_hash(state: ResourceState) -> str:
    """`sha256:` and the hex SHA-256 of the canonical form."""
    return f"sha256:{sha256(canonical_state(state)).hexdigest()}"


def _merged(
    base: ResourceState,
    current: ResourceState,
    draft: ResourceState,
    occupied: Collection[str],
) -> Reconciliation:
    conflicts: list[StateConflict] = []
    path = _picked(base.path, current.path, draft.path)
    if path is None:
        conflicts.append(_conflict("path", "path", base.path, current.path, draft.path))
    else:
        wanted = msgspec.structs.replace(draft, path=path)
        conflicts += path_conflicts(base, current, wanted, occupied)
    content = _merged_content(base.content or "", current.content or "", draft.content or "")
    if content is None:
        conflicts.append(
            _conflict("content", "content", base.content, current.content, draft.content)
        )
    texts = (base.description or "", current.description or "", draft.description or "")
    description = _picked(*texts)
    if description is None:
        conflicts.append(_conflict("content", "description", *texts))
    if conflicts:
        return _outcome(None, conflicts)
    proposed = ResourceState(exists=True, path=path, content=content, description=description)
    return _outcome(proposed, [])


def _outcome(proposed: ResourceState | None, conflicts: list[StateConflict]) -> Reconciliation:
    if conflicts:
        return Reconciliation(status="conflicts", conflicts=conflicts)
    return Reconciliation(status="clean", proposed=proposed)


def _conflict(
    kind: ConflictKind,
    field: ConflictField,
    base: str | None,
    current: str | None,
    draft: str | None,
) -> StateConflict:
    return StateConflict(kind=kind, field=field, base=base, current=current, draft=draft)


def _picked(base: str | None, current: str | None, draft: str | None) -> str | None:
    """The one that changed, as a whole; None where both changed and not to the same."""
    if draft in (base, current):
        return current
    return draft if current == base else None


def _merged_content(base: str, current: str, draft: str) -> str | None:
    """The text picked whole or merged by lines; None for a conflict."""
    picked = _picked(base, current, draft)
    if picked is not None:
        return picked
    merged = merge_texts(base, current, draft).text
    if merged is None:
        return None
    try:
        check_content(merged)
    except InvalidRequest:
        return None
    return merged


def _is_occupied(key: str, occupied: Collection[str]) -> bool:
    parts = key.split("/")
    if any("/".join(parts[:count]) in occupied for count in range(1, len(parts) + 1)):
        return True
    return any(other.startswith(f"{key}/") for other in occupied)
