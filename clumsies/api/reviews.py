"""Reviews: a group of drafts that is judged and merged as one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from clumsies.api.common import Answer, Identifier, Note, PageInfo, Request, Title, Version
from clumsies.api.drafts import (
    CandidateState,
    Coordination,
    Draft,
    DraftDetail,
    PathText,
    ResourceState,
    StoredOperation,
)
from clumsies.api.identity import User

ReviewStatus = Literal["open", "approved", "rejected", "merged"]


class ReviewDraft(Request, frozen=True, kw_only=True):
    """A draft for a review; one that is behind names the candidate it is reconciled by."""

    draft_id: Identifier
    expected_draft_version: Version
    candidate_id: Identifier | None = None
    resolved_state: ResourceState | None = None


ReviewDrafts = Annotated[list[ReviewDraft], Meta(min_length=1, max_length=100)]


class CreateReview(Request, frozen=True, kw_only=True):
    title: Title | None = None
    description: Note | None = None
    drafts: ReviewDrafts


class Review(Answer, frozen=True, kw_only=True, omit_defaults=False):
    review_id: str
    project_id: str
    draft_id: str
    draft_ids: list[str]
    author: User
    title: str
    description: str
    status: ReviewStatus
    version: int
    decision_body: str | None
    approved_result_hash: str | None
    decided_by: User | None
    decided_at: str | None
    coordination: Coordination
    created_at: str
    updated_at: str


class ReviewPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Review]
    page_info: PageInfo


class Comment(Answer, frozen=True, kw_only=True, omit_defaults=False):
    comment_id: str
    review_id: str
    author: User
    body: str
    review_version: int
    anchor_path: str | None
    anchor_line: int | None
    created_at: str


class CommentPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Comment]
    page_info: PageInfo


class CreateComment(Request, frozen=True, kw_only=True):
    """Anchored to a line (from 1) of a path of the review, or to none."""

    body: Annotated[Note, Meta(min_length=1)]
    expected_review_version: Version
    anchor_path: PathText | None = None
    anchor_line: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None


class ReviewDetail(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`draft` and `operations` are of the first draft; `drafts` has every one with its own."""

    review: Review
    draft: Draft
    operations: list[StoredOperation]
    drafts: list[DraftDetail]
    comments: list[Comment]


class Change(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """One draft of a review: its memory before (at the draft's base) and after."""

    draft_id: str
    before: CandidateState
    after: CandidateState


class ReviewChanges(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """What a review would change, draft by draft, in the order of `draft_ids`."""

    review_id: str
    changes: list[Change]


class Decide(Request, frozen=True, kw_only=True):
    decision: Literal["approved", "rejected"]
    expected_review_version: Version
    body: Note | None = None


class Resubmit(Request, frozen=True, kw_only=True):
    expected_review_version: Version
    drafts: ReviewDrafts
    title: Title | None = None
    description: Note | None = None


class Merge(Request, frozen=True, kw_only=True):
    expected_review_version: Version


class MergeAnswer(Answer, frozen=True, kw_only=True, omit_defaults=False):
    review: Review
    commit_id: str | None
    applied_operation_count: int


class RebaseAnswer(Answer, frozen=True, kw_only=True, omit_defaults=False):
    rebase_id: str
    previous_revision_id: str
    draft: Draft
    review: Review | None
    approval_invalidated: bool
