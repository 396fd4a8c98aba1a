"""Reviews: proposing drafts as a group, and proposing them again after a rejection.

`open` -> `approved` -> `merged`; `rejected` from either of the first two, and open again by a
resubmission. What changes a submitted draft takes an approval back (`server.submissions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, select

from clumsies.api.common import DEFAULT_LIMIT
from clumsies.api.reviews import (
    CreateReview,
    Resubmit,
    ReviewChanges,
    ReviewDetail,
    ReviewPage,
    ReviewStatus,
)
from clumsies.errors import Conflict, Refused
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.list_cursors import rows_of_page
from clumsies.server.memory.projects import require_project
from clumsies.server.memory.refs import org_key, read_ref, require_ref_at
from clumsies.server.proposals.review_drafts import find_unreconciled, lock_offered, submit_drafts
from clumsies.server.proposals.review_messages import review_changes, review_detail, review_messages
from clumsies.server.proposals.review_rows import (
    ReviewRow,
    change_review,
    insert_review,
    read_review,
    set_drafts,
)
from clumsies.server.proposals.submissions import NO_DECISION
from clumsies.server.refusals import check_version, invalid
from clumsies.server.schema import project_members, projects, reviews


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """Which reviews a list has; None means any."""

    project_id: str | None = None
    status: ReviewStatus | None = None


def create_review(
    act: Act, expected_commit_id: str | None, data: CreateReview
) -> ReviewDetail | Conflict:
    """A review of open drafts of who acts, which are submitted by it.

    The Conflict, "reconciliation_required", is to be raised when the transaction is kept: it names
    a candidate. Raises Conflict "precondition_failed" where the Ref moved, and others as
    `review_drafts` does.
    """
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    drafts = lock_offered(act, data.drafts)
    require_ref_at(act, ref, expected_commit_id)
    unreconciled = find_unreconciled(act, drafts, data.drafts, ref.commit_id)
    if unreconciled is not None:
        return unreconciled
    submitted = submit_drafts(act, drafts, data.drafts, ref.commit_id)
    review = ReviewRow(
        review_id=act.new_id("review"),
        org_id=act.principal.org_id,
        project_id=submitted[0].project_id,
        author_id=act.principal.user_id,
        title=submitted[0].title if data.title is None else data.title,
        description=data.description or "",
        status="open",
        version=1,
        decision_body=None,
        approved_result_hash=None,
        decided_by=None,
        decided_at=None,
        created_at=act.now,
        updated_at=act.now,
    )
    insert_review(act, review, [draft.draft_id for draft in submitted])
    audit.record(act, "review.created", "review", review.review_id, drafts=len(submitted))
    return review_detail(act, review)


def resubmit_review(
    act: Act, review_id: str, expected_commit_id: str | None, data: Resubmit
) -> ReviewDetail | Conflict:
    """A rejected review of who acts, open again with these drafts; as `create_review`."""
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    review = read_review(act, review_id, lock=True)
    if review.author_id != act.principal.user_id:
        raise Refused("forbidden", "Only its author can submit a review again.")
    if review.status != "rejected":
        raise invalid(f"The review is {review.status}; a rejected one is submitted again.")
    check_version("review", data.expected_review_version, review.version)
    drafts = lock_offered(act, data.drafts)
    if any(draft.project_id != review.project_id for draft in drafts):
        raise invalid("The drafts are not of the review's project; begin a review of their own.")
    require_ref_at(act, ref, expected_commit_id)
    unreconciled = find_unreconciled(act, drafts, data.drafts, ref.commit_id)
    if unreconciled is not None:
        return unreconciled
    submitted = submit_drafts(act, drafts, data.drafts, ref.commit_id)
    set_drafts(act, review_id, [draft.draft_id for draft in submitted])
    review = change_review(
        act,
        review,
        status="open",
        title=review.title if data.title is None else data.title,
        description=review.description if data.description is None else data.description,
        **NO_DECISION,
    )
    audit.record(act, "review.resubmitted", "review", review_id, drafts=len(submitted))
    return review_detail(act, review)


def get_review(act: Act, review_id: str) -> ReviewDetail:
    """A review with its drafts and comments; raises NotFound("not_found")."""
    return review_detail(act, read_review(act, review_id))


def get_changes(act: Act, review_id: str) -> ReviewChanges:
    """What a review would change; raises NotFound("not_found")."""
    return review_changes(act, read_review(act, review_id))


def list_reviews(
    act: Act, wanted: ReviewFilter, cursor: str | None = None, limit: int = DEFAULT_LIMIT
) -> ReviewPage:
    """Reviews of the projects that who acts is a member of, the latest changed first."""
    if wanted.project_id is not None:
        require_project(act, wanted.project_id)
    member = and_(
        project_members.c.project_id == reviews.c.project_id,
        project_members.c.user_id == act.principal.user_id,
    )
    query = (
        select(reviews)
        .join(project_members, member)
        .join(projects, projects.c.project_id == reviews.c.project_id)
        .where(reviews.c.org_id == act.principal.org_id, projects.c.deleted_at.is_(None))
    )
    if wanted.project_id is not None:
        query = query.where(reviews.c.project_id == wanted.project_id)
    if wanted.status is not None:
        query = query.where(reviews.c.status == wanted.status)
    keys = (reviews.c.updated_at, reviews.c.review_id)
    rows, info = rows_of_page(act.connection, query, keys, cursor, limit)
    page = [ReviewRow(**row) for row in rows]
    return ReviewPage(items=review_messages(act, page), page_info=info)
