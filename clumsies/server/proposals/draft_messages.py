"""Drafts as they travel."""

from __future__ import annotations

from collections.abc import Sequence

from clumsies.api.drafts import Draft, DraftDetail, ResourceReference, StoredOperation, SyncState
from clumsies.api.operations import to_wire
from clumsies.server.acting import Act
from clumsies.server.proposals.coordination import coordinate
from clumsies.server.proposals.draft_events import last_cursor
from clumsies.server.proposals.draft_rows import (
    DraftRow,
    OperationRow,
    latest_review_ids,
    read_operations,
    read_users,
)


def draft_messages(act: Act, rows: Sequence[DraftRow]) -> list[Draft]:
    """The drafts in their order."""
    people = read_users(act, [row.author_id for row in rows])
    distances = coordinate(act, rows)
    reviews = latest_review_ids(act, [row.draft_id for row in rows])
    return [
        Draft(
            draft_id=row.draft_id,
            project_id=row.project_id,
            base_commit_id=row.base_commit_id,
            author=people[row.author_id],
            title=row.title,
            description=row.description,
            resource=reference_of(row),
            status=row.status,
            coordination=distances[row.draft_id],
            version=row.version,
            created_at=row.created_at,
            updated_at=row.updated_at,
            client_draft_id=row.client_draft_id,
            review_id=reviews.get(row.draft_id),
        )
        for row in rows
    ]


def reference_of(row: DraftRow) -> ResourceReference:
    """What the draft is for."""
    return ResourceReference(scope=row.scope, id=row.target_id, path=row.path)


def details_of(act: Act, rows: Sequence[DraftRow]) -> list[DraftDetail]:
    """The drafts with their operations, in their order."""
    operations = read_operations(act, [row.draft_id for row in rows])
    cursors = {author: last_cursor(act, author) for author in {row.author_id for row in rows}}
    return [
        DraftDetail(
            draft=message,
            operations=[stored(operation, row) for operation in operations[row.draft_id]],
            sync_state=SyncState(
                status="synced",
                server_cursor=cursors[row.author_id],
                daemon_installation_id=row.daemon_installation_id,
            ),
        )
        for row, message in zip(rows, draft_messages(act, rows), strict=True)
    ]


def detail_of(act: Act, row: DraftRow) -> DraftDetail:
    """One draft with its operations."""
    return details_of(act, [row])[0]


def stored(operation: OperationRow, draft: DraftRow) -> StoredOperation:
    """An operation as the Server keeps it."""
    message = to_wire(operation.operation, draft.scope, operation.local_operation_id)
    return StoredOperation(
        operation_id=operation.operation_id,
        action=message.action,
        resource=message.resource,
        content=message.content,
        new_path=message.new_path,
        local_operation_id=message.local_operation_id,
        created_at=operation.created_at,
    )
