"""Drafts as they are kept: reading, locking and writing them and their operations.

A row is locked before it is judged: what a caller decides on holds until its transaction ends. A
change makes the version grow by one, whatever it changes, and voids every candidate of the draft.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import delete, insert, select, update

from clumsies.api.common import Scope
from clumsies.api.drafts import DraftStatus
from clumsies.api.identity import User
from clumsies.errors import Refused
from clumsies.memory.operations import StoreOperation, decode_operation, encode_operation
from clumsies.server.acting import Act
from clumsies.server.identity.users import user_message
from clumsies.server.memory.objects import insert_new
from clumsies.server.memory.projects import require_project
from clumsies.server.refusals import missing
from clumsies.server.schema import (
    draft_operations,
    draft_reconciliation_candidates,
    drafts,
    review_drafts,
    reviews,
    users,
)

UNDER_REVIEW = ("open", "approved")
"""Of a review: its drafts are submitted by it and by no other."""


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A draft without its operations. `target_id` is None while it creates its memory."""

    draft_id: str
    org_id: str
    project_id: str
    author_id: str
    client_draft_id: str | None
    request_hash: str | None
    daemon_installation_id: str | None
    scope: Scope
    target_id: str | None
    path: str | None
    title: str
    description: str
    base_commit_id: str | None
    status: DraftStatus
    version: int
    created_at: str
    updated_at: str

    @property
    def is_active(self) -> bool:
        """Whether it still proposes something."""
        return self.status in ("open", "submitted")


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation as a draft keeps it, in its place among the others."""

    operation_id: str
    draft_id: str
    ordinal: int
    local_operation_id: str | None
    operation: StoreOperation
    created_at: str


def read_draft(act: Act, draft_id: str) -> DraftRow:
    """A draft that who acts may see: their own, or one that was given to a review, of a project
    they are a member of. Raises NotFound("not_found")."""
    row = act.connection.execute(
        select(drafts).where(drafts.c.draft_id == draft_id, drafts.c.org_id == act.principal.org_id)
    ).first()
    if row is None:
        raise missing("draft")
    draft = DraftRow(**row._mapping)
    require_project(act, draft.project_id)
    if draft.author_id != act.principal.user_id and not _was_submitted(act, draft_id):
        raise missing("draft")
    return draft


def _was_submitted(act: Act, draft_id: str) -> bool:
    found = act.connection.execute(
        select(review_drafts.c.review_id).where(review_drafts.c.draft_id == draft_id).limit(1)
    )
    return found.first() is not None


def require_author(act: Act, draft: DraftRow) -> None:
    """Raise Refused("forbidden") unless who acts wrote the draft: others may read it at most."""
    if draft.author_id != act.principal.user_id:
        raise Refused("forbidden", "The draft is another person's; begin one of your own.")


def read_drafts(act: Act, draft_ids: Collection[str], lock: bool = False) -> dict[str, DraftRow]:
    """The drafts by id, whoever's they are. With `lock` they stay as they are until the transaction
    ends, and are locked in order of id."""
    query = select(drafts).where(drafts.c.draft_id.in_(draft_ids)).order_by(drafts.c.draft_id)
    rows = act.connection.execute(query.with_for_update() if lock else query)
    found = [DraftRow(**row._mapping) for row in rows]
    return {draft.draft_id: draft for draft in found}


def latest_review_ids(act: Act, draft_ids: Collection[str]) -> dict[str, str]:
    """By draft, the review it was given to last."""
    rows = act.connection.execute(
        select(review_drafts.c.draft_id, reviews.c.review_id)
        .join(reviews, review_drafts.c.review_id == reviews.c.review_id)
        .where(review_drafts.c.draft_id.in_(draft_ids))
        .order_by(reviews.c.created_at, reviews.c.review_id)
    )
    return {str(draft_id): str(review_id) for draft_id, review_id in rows}


def insert_draft(act: Act, draft: DraftRow) -> bool:
    """Keep a new draft; False where its author has one under the same client's id."""
    insert_new(act.connection, drafts, [asdict(draft)])
    return draft.draft_id in read_drafts(act, [draft.draft_id])


def change_draft(act: Act, draft: DraftRow, **values: str | None) -> DraftRow:
    """Write columns of a locked draft; its version grows and its candidates are void."""
    changed: dict[str, object] = {
        **values,
        "version": draft.version + 1,
        "updated_at": max(act.now, draft.updated_at),
    }
    act.connection.execute(
        update(drafts).where(drafts.c.draft_id == draft.draft_id).values(changed)
    )
    void_candidates(act, [draft.draft_id])
    return replace(draft, **changed)  # type: ignore[arg-type]


def void_candidates(act: Act, draft_ids: Iterable[str]) -> None:
    """Mark what was proposed for the drafts so far as no longer valid."""
    table = draft_reconciliation_candidates
    act.connection.execute(
        update(table)
        .where(table.c.draft_id.in_(list(draft_ids)), table.c.invalidated_at.is_(None))
        .values(invalidated_at=act.now)
    )


def read_operations(act: Act, draft_ids: Collection[str]) -> dict[str, list[OperationRow]]:
    """By draft, its operations in order; a draft without any has an empty list."""
    rows = act.connection.execute(
        select(draft_operations)
        .where(draft_operations.c.draft_id.in_(draft_ids))
        .order_by(draft_operations.c.draft_id, draft_operations.c.ordinal)
    )
    found: dict[str, list[OperationRow]] = {draft_id: [] for draft_id in draft_ids}
    for row in rows:
        found[row.draft_id].append(
            OperationRow(
                row.operation_id,
                row.draft_id,
                row.ordinal,
                row.local_operation_id,
                decode_operation(row.operation_json.encode("utf-8")),
                row.created_at,
            )
        )
    return found


def operations_of(act: Act, draft_id: str) -> list[OperationRow]:
    """One draft's operations in order."""
    return read_operations(act, [draft_id])[draft_id]


def add_operation(
    act: Act,
    draft_id: str,
    ordinal: int,
    operation: StoreOperation,
    local_operation_id: str | None = None,
) -> OperationRow:
    """Keep an operation at its place."""
    row = OperationRow(act.new_id("op"), draft_id, ordinal, local_operation_id, operation, act.now)
    act.connection.execute(
        insert(draft_operations).values(
            operation_id=row.operation_id,
            draft_id=draft_id,
            ordinal=ordinal,
            local_operation_id=local_operation_id,
            operation_json=encode_operation(operation).decode("utf-8"),
            created_at=row.created_at,
        )
    )
    return row


def replace_operations(
    act: Act, draft_id: str, operations: Sequence[StoreOperation]
) -> list[OperationRow]:
    """Put these in the place of all operations of the draft."""
    act.connection.execute(delete(draft_operations).where(draft_operations.c.draft_id == draft_id))
    return [
        add_operation(act, draft_id, ordinal, operation)
        for ordinal, operation in enumerate(operations, 1)
    ]


def read_users(act: Act, user_ids: Iterable[str | None]) -> Mapping[str, User]:
    """People of the organisation by id."""
    wanted = {user_id for user_id in user_ids if user_id is not None}
    query = select(users).where(users.c.user_id.in_(wanted), users.c.org_id == act.principal.org_id)
    return {row["user_id"]: user_message(row) for row in act.connection.execute(query).mappings()}
