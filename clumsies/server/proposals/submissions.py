"""Changing a draft that may be submitted: its review learns of it in the same transaction.

A submitted draft is still its author's. An edit or a rebase makes the review's version grow and
takes an approval back, because what was approved is not what stands there now. A discard takes
the draft out of what will be merged; a review with no draft left ends as rejected.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from clumsies.server.acting import Act
from clumsies.server.proposals.draft_rows import (
    UNDER_REVIEW,
    DraftRow,
    read_draft,
    read_drafts,
    require_author,
)
from clumsies.server.proposals.review_rows import ReviewRow, change_review, lock_reviews
from clumsies.server.schema import drafts, review_drafts, reviews

WITHDRAWN = "Every draft of this review was discarded."
NO_DECISION: dict[str, str | None] = {
    "decision_body": None,
    "approved_result_hash": None,
    "decided_by": None,
    "decided_at": None,
}


def lock_for_edit(act: Act, draft_id: str) -> DraftRow:
    """The author's draft, locked together with the review that it is submitted by.

    Raises NotFound("not_found") where it cannot be seen, Refused("forbidden") for anybody else.
    """
    return lock_all_for_edit(act, [draft_id])[draft_id]


def lock_all_for_edit(act: Act, draft_ids: Collection[str]) -> dict[str, DraftRow]:
    """As `lock_for_edit`, for several."""
    for draft_id in sorted(draft_ids):
        require_author(act, read_draft(act, draft_id))
    return lock_submitted(act, draft_ids)


def lock_submitted(act: Act, draft_ids: Collection[str]) -> dict[str, DraftRow]:
    """The drafts, locked after the reviews that they are submitted by."""
    lock_reviews(act, _active_reviews(act, draft_ids))
    return read_drafts(act, draft_ids, lock=True)


def _active_reviews(act: Act, draft_ids: Collection[str]) -> list[str]:
    rows = act.connection.scalars(
        select(reviews.c.review_id)
        .join(review_drafts, review_drafts.c.review_id == reviews.c.review_id)
        .where(review_drafts.c.draft_id.in_(draft_ids), reviews.c.status.in_(UNDER_REVIEW))
        .distinct()
    )
    return list(rows)


def note_edit(act: Act, draft: DraftRow) -> tuple[ReviewRow, bool] | None:
    """Tell the review of a submitted draft that the draft changed; the review then, and whether
    that took an approval back. None for a draft that is not submitted."""
    if draft.status != "submitted":
        return None
    [review] = lock_reviews(act, _active_reviews(act, [draft.draft_id])).values()
    if review.status == "approved":
        return change_review(act, review, status="open", **NO_DECISION), True
    return change_review(act, review), False


def note_discard(act: Act, draft_id: str) -> None:
    """Tell the review of a draft, which was submitted and is discarded now."""
    [review] = lock_reviews(act, _active_reviews(act, [draft_id])).values()
    left = act.connection.execute(
        select(drafts.c.draft_id)
        .join(review_drafts, review_drafts.c.draft_id == drafts.c.draft_id)
        .where(review_drafts.c.review_id == review.review_id, drafts.c.status == "submitted")
        .limit(1)
    ).first()
    if left is not None:
        change_review(act, review, status="open", **NO_DECISION)
        return
    ended = {**NO_DECISION, "decision_body": WITHDRAWN, "decided_at": act.now}
    ended["decided_by"] = act.principal.user_id
    change_review(act, review, status="rejected", **ended)
