"""Edits that came too late for their draft go on in a draft of their own.

A draft can be merged or discarded, or be given operations by another machine after which an edit
of this one cannot be applied. The edit was acknowledged, so it is never dropped: it moves, with
its id, to a new draft, where people decide about it as about any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apsw
import msgspec

from clumsies.memory.draft_rows import Draft
from clumsies.memory.drafts import random_id
from clumsies.memory.index_jobs import request_build
from clumsies.memory.operations import (
    Create,
    Delete,
    Rename,
    StoreOperation,
    Update,
    encode_operation,
)
from clumsies.memory.refs import coordinate_draft, organization_commit
from clumsies.sync.operation_rows import (
    DRAFT_CONFLICT,
    LocalOperation,
    local_operations,
    path_after,
)


@dataclass(frozen=True, slots=True)
class Place:
    """What the new draft stands on: a memory of a base commit, or none (then it creates one)."""

    base_commit_id: str | None
    target_id: str | None


def carry_pending(connection: apsw.Connection, draft: Draft, place: Place, now: str) -> str | None:
    """Move what the Server has not confirmed of `draft` to a new draft; its id.

    None where there is nothing to move, or nothing that could stand alone: that stays where it
    is, failed as `draft_conflict`.
    """
    rows = local_operations(connection, draft.draft_id)
    synced = [row for row in rows if not row.is_pending]
    moved = [row for row in rows if row.is_pending and not row.is_discard]
    if not moved:
        return None
    draft_id = random_id("draft")
    if place.target_id is None:
        moved = _text_first(moved)
    path = path_after([row.operation for row in synced]) or draft.path
    operations = _rewritten([row.operation for row in moved], path, place, draft_id)
    if operations is None:
        fail_pending(connection, draft.draft_id, now)
        return None
    connection.execute(
        "INSERT INTO local_drafts(draft_id, project_id, base_commit_id, resource_scope, "
        "resource_kind, target_id, path, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            draft_id,
            draft.project_id,
            place.base_commit_id,
            draft.resource_scope,
            draft.resource_kind,
            place.target_id,
            draft.path,
            now,
            now,
        ),
    )
    for row, operation in zip(moved, operations, strict=True):
        _move(connection, row, draft_id, operation, now)
    coordinate_draft(connection, draft_id, organization_commit(connection, draft.project_id))
    request_build(connection, draft.project_id)
    return draft_id


def _text_first(rows: Sequence[LocalOperation]) -> list[LocalOperation]:
    """The first whole text before what is done to it: where it stands does not change that."""
    texts = [row for row in rows if row.operation.update is not None]
    return [*texts[:1], *(row for row in rows if row not in texts[:1])]


def _rewritten(
    operations: Sequence[StoreOperation], path: str | None, place: Place, draft_id: str
) -> list[StoreOperation] | None:
    """The operations on the new draft's memory; None where the first has nothing to stand on."""
    name = place.target_id or draft_id
    found = [_on(operation, name) for operation in operations]
    if place.target_id is not None:
        return None if operations[0].create is not None else found
    first = operations[0].update
    if first is None or first.content is None or path is None:
        return None
    return [StoreOperation(create=Create(path=path, content=first.content)), *found[1:]]


def _on(operation: StoreOperation, name: str) -> StoreOperation:
    part = operation.only()
    if isinstance(part, Update):
        return StoreOperation(update=msgspec.structs.replace(part, id=name))
    if isinstance(part, Rename):
        return StoreOperation(rename=msgspec.structs.replace(part, id=name))
    if isinstance(part, Delete):
        return StoreOperation(delete=msgspec.structs.replace(part, id=name))
    return operation


def _move(
    connection: apsw.Connection,
    row: LocalOperation,
    draft_id: str,
    operation: StoreOperation,
    now: str,
) -> None:
    connection.execute("DELETE FROM local_draft_operations WHERE operation_rowid = ?", (row.rowid,))
    connection.execute(
        "INSERT INTO local_draft_operations(local_operation_id, draft_id, resource_kind, "
        "operation_json, source, created_at, updated_at) VALUES (?, ?, 'memory', ?, ?, ?, ?)",
        (
            row.local_operation_id,
            draft_id,
            encode_operation(operation).decode("utf-8"),
            row.source,
            row.created_at,
            now,
        ),
    )


def fail_pending(connection: apsw.Connection, draft_id: str, now: str) -> None:
    """Operations that can never be sent fail, and stay to be seen."""
    _end_pending(connection, draft_id, "failed", now)


def close_pending(connection: apsw.Connection, draft_id: str, now: str) -> None:
    """The draft was given up here, and that is done with: nothing of it is left to be sent."""
    _end_pending(connection, draft_id, "synced", now)


def _end_pending(connection: apsw.Connection, draft_id: str, status: str, now: str) -> None:
    connection.execute(
        "UPDATE local_draft_operations SET last_error = ?, updated_at = ?, sync_status = ? "
        "WHERE draft_id = ? AND sync_status <> 'synced'",
        (None if status == "synced" else DRAFT_CONFLICT, now, status, draft_id),
    )
