"""Drafts, their operations, the author's feed of events, and reconciliation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from clumsies.api.common import (
    Answer,
    CommitId,
    Description,
    Identifier,
    Note,
    PageInfo,
    Request,
    Scope,
    Title,
    Version,
)
from clumsies.api.identity import User

MemoryText = Annotated[str, Meta(min_length=1, max_length=8 * 1024 * 1024)]
PathText = Annotated[str, Meta(min_length=1, max_length=1_024)]
Action = Literal["create", "update", "rename", "delete"]
DraftStatus = Literal["open", "submitted", "merged", "discarded"]
EventType = Literal[
    "created",
    "updated",
    "operation_appended",
    "discarded",
    "submitted",
    "reopened",
    "rebased",
    "merged",
]
ConflictKind = Literal["content", "path", "existence", "path_occupied"]


class ResourceReference(Request, frozen=True, kw_only=True):
    """A memory by id, by path, or one that is to be (path alone)."""

    scope: Scope
    id: Identifier | None = None
    path: PathText | None = None


class OperationContent(Request, frozen=True, kw_only=True):
    """A whole text; a description that is absent keeps what is there, "" takes it away."""

    content: MemoryText
    description: Description | None = None


class Operation(Request, frozen=True, kw_only=True):
    """One change. `local_operation_id` makes it idempotent: a repeat is accepted, not repeated."""

    action: Action
    resource: ResourceReference
    content: OperationContent | None = None
    new_path: PathText | None = None
    local_operation_id: Identifier | None = None


class StoredOperation(Answer, frozen=True, kw_only=True):
    """An operation as the Server keeps it."""

    operation_id: str
    action: Action
    resource: ResourceReference
    content: OperationContent | None = None
    new_path: str | None = None
    local_operation_id: str | None = None
    created_at: str


class CreateDraft(Request, frozen=True, kw_only=True):
    """`client_draft_id` makes it idempotent: a repeat by the same author answers with the draft
    that is there."""

    daemon_installation_id: Identifier
    project_id: Identifier
    base_commit_id: CommitId | None = None
    title: Title
    description: Note = ""
    resource: ResourceReference
    operations: Annotated[list[Operation], Meta(max_length=500)] = field(default_factory=list)
    client_draft_id: Identifier | None = None


class ChangeDraft(Request, frozen=True, kw_only=True):
    title: Title | None = None
    description: Note | None = None


class AppendOperation(Request, frozen=True, kw_only=True):
    operation: Operation


class Coordination(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """How far the draft is from its Ref."""

    freshness: Literal["current", "behind"]
    current_commit_id: str | None
    has_upstream_resource_changes: bool
    reconciliation: Literal["unknown", "clean", "conflicts"]
    candidate_id: str | None


class Draft(Answer, frozen=True, kw_only=True, omit_defaults=False):
    draft_id: str
    project_id: str
    base_commit_id: str | None
    author: User
    title: str
    description: str
    resource: ResourceReference
    status: DraftStatus
    coordination: Coordination
    version: int
    created_at: str
    updated_at: str
    client_draft_id: str | None = None
    review_id: str | None = None


class SyncState(Answer, frozen=True, kw_only=True, omit_defaults=False):
    status: Literal["synced", "pending", "failed"]
    server_cursor: str | None
    daemon_installation_id: str | None


class DraftDetail(Answer, frozen=True, kw_only=True, omit_defaults=False):
    draft: Draft
    operations: list[StoredOperation]
    sync_state: SyncState


class DraftPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Draft]
    page_info: PageInfo


class BatchOperation(Request, frozen=True, kw_only=True):
    local_operation_id: Identifier
    draft_id: Identifier
    expected_draft_version: Version
    operation: Operation


class OperationBatch(Request, frozen=True, kw_only=True):
    """All or nothing, in order. Each expects its draft's version just then, so the second
    operation of a draft expects one more than the first. One that its draft took already (by
    `local_operation_id`) is accepted whatever version is expected."""

    daemon_installation_id: Identifier
    operations: Annotated[list[BatchOperation], Meta(min_length=1, max_length=200)]


class AcceptedOperation(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`draft_version` is the draft's after the batch."""

    local_operation_id: str
    operation_id: str
    draft_id: str
    draft_version: int


class BatchAnswer(Answer, frozen=True, kw_only=True, omit_defaults=False):
    accepted_operations: list[AcceptedOperation]
    cursor: str | None


class DraftEvent(Answer, frozen=True, kw_only=True, omit_defaults=False):
    event_id: str
    draft_id: str
    project_id: str
    event_type: EventType
    version: int
    daemon_installation_id: str | None
    created_at: str


class DraftEvents(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """The author's events after a cursor, oldest first."""

    events: list[DraftEvent]
    next_cursor: str | None
    has_more: bool


class ResourceState(Request, frozen=True, kw_only=True):
    """A memory at one moment; without `exists` there is none."""

    exists: bool
    path: PathText | None = None
    content: Annotated[str, Meta(max_length=8 * 1024 * 1024)] | None = None
    description: Description | None = None


class CandidateState(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A memory as the base, the current commit, the draft or the proposal has it."""

    exists: bool
    resource: ResourceReference | None
    content: OperationContent | None


class ConflictDetail(Answer, frozen=True, kw_only=True):
    """Where the draft and the current commit changed the same thing differently.

    The sides are texts of the field, null for none; of existence, `present` or `absent`.
    """

    kind: ConflictKind
    field: str
    base: str | None = None
    current: str | None = None
    draft: str | None = None


class Candidate(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """What a rebase would do. It changes nothing; an edit or an advance of the Ref voids it."""

    candidate_id: str
    draft_id: str
    draft_version: int
    base_commit_id: str | None
    current_commit_id: str | None
    status: Literal["clean", "conflicts"]
    base_state: CandidateState
    current_state: CandidateState
    draft_state: CandidateState
    proposed_state: CandidateState | None
    conflicts: list[ConflictDetail]
    result_hash: str | None
    valid: bool
    created_at: str
    invalidated_at: str | None


class CreateCandidate(Request, frozen=True, kw_only=True):
    expected_draft_version: Version


class Rebase(Request, frozen=True, kw_only=True):
    """`resolved_state` is absent for a clean candidate and required for one with conflicts."""

    candidate_id: Identifier
    expected_draft_version: Version
    resolved_state: ResourceState | None = None
