"""What a draft makes of one resource: its operations, in order, on its own base.

Pure: the caller reads base and operations. A draft sees its base commit and nothing else, so its
result is the same whatever is installed meanwhile and whatever other drafts there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clumsies.errors import Conflict
from clumsies.memory.operations import (
    Create,
    Delete,
    Discard,
    Rename,
    StoreOperation,
    Update,
)


@dataclass(frozen=True, slots=True)
class DraftIdentity:
    """The facts of a draft that its overlay depends on."""

    draft_id: str
    scope: str
    target_id: str | None
    path: str | None
    base_commit_id: str | None


@dataclass(frozen=True, slots=True)
class DraftedMemory:
    """A memory as a base has it, or as a draft leaves it."""

    resource_id: str
    path: str
    content: str
    description: str
    scope: str
    source_commit_id: str | None


@dataclass(frozen=True, slots=True)
class Overlay:
    """Ids that a draft takes out of the installed memory, and what it puts in."""

    removed: frozenset[str]
    result: DraftedMemory | None


NOTHING = Overlay(frozenset(), None)


def is_creation(operations: Sequence[StoreOperation]) -> bool:
    """Whether the draft made the resource itself."""
    return any(operation.create is not None for operation in operations)


def provisional_id(draft: DraftIdentity, operations: Sequence[StoreOperation]) -> str:
    """The id of what a draft creates, until a merge gives it one.

    It is the draft's own id; where another machine began the draft, it is the id that the
    operations after the creation use.
    """
    for operation in operations:
        part = operation.only()
        if not isinstance(part, Create | Discard):
            return part.id
    return draft.draft_id


def apply_operations(
    draft: DraftIdentity, base: DraftedMemory | None, operations: Sequence[StoreOperation]
) -> Overlay:
    """The overlay of a draft's operations on its base resource, None where the base has none.

    Raises Conflict("draft_conflict") where an operation needs a resource that is not there.
    """
    parts = [operation.only() for operation in operations]
    if any(isinstance(part, Discard) for part in parts):
        return NOTHING
    created_id = provisional_id(draft, operations)
    memories = {} if base is None else {base.resource_id: base}
    for part in parts:
        if isinstance(part, Create):
            description = part.content.description or ""
            memories[created_id] = DraftedMemory(
                created_id, part.path, part.content.content, description, draft.scope, None
            )
        elif isinstance(part, Delete):
            memories.pop(part.id, None)
        else:
            memories[part.id] = _changed(draft, memories.get(part.id), part)
    own = {draft.draft_id, draft.target_id, base.resource_id if base else None, created_id}
    result = next((memories[name] for name in memories if name in own), None)
    if result is not None and not result.content.strip():
        raise _failed(draft, "leaves a blank text")
    return Overlay(frozenset(name for name in own if name is not None), result)


def _changed(
    draft: DraftIdentity, memory: DraftedMemory | None, part: Update | Rename | Discard
) -> DraftedMemory:
    if memory is None or isinstance(part, Discard):
        raise _failed(draft, "changes a memory that its base commit does not have")
    if isinstance(part, Rename):
        return replace(memory, path=part.new_path)
    if part.content is None:
        raise _failed(draft, "holds an update without content")
    given = part.content.description
    description = memory.description if given is None else given
    return replace(memory, content=part.content.content, description=description)


def _failed(draft: DraftIdentity, what: str) -> Conflict:
    return Conflict(
        "draft_conflict",
        f"The draft {draft.draft_id} {what}; discard or rebase it.",
        {"draft_id": draft.draft_id},
    )
