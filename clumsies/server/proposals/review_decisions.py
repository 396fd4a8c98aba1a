"""Approving and rejecting. Whoever may decide may decide on their own review too."""

from __future__ import annotations

from clumsies.api.reviews import Decide, ReviewDetail
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.proposals.draft_events import record_events
from clumsies.server.proposals.draft_rows import DraftRow, change_draft, read_drafts
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.proposals.review_drafts import group_hash, outcomes
from clumsies.server.proposals.review_messages import review_detail
from clumsies.server.proposals.review_rows import (
    ReviewRow,
    change_review,
    draft_ids_of,
    read_review,
)
from clumsies.server.refusals import check_version, invalid


def decide(act: Act, review_id: str, data: Decide) -> ReviewDetail:
    """Approve an open review, or reject an open or approved one: its drafts are open again.

    An approval is for what the drafts come to just then. Raises Refused("forbidden"),
    Conflict("version_conflict"), and InvalidRequest where the review is in another state.
    """
    review = read_review(act, review_id, lock=True)
    act.principal.require("review:decide")
    may_be = ("open",) if data.decision == "approved" else ("open", "approved")
    if review.status not in may_be:
        raise invalid(f"The review is {review.status} and cannot be {data.decision} now.")
    check_version("review", data.expected_review_version, review.version)
    drafts = lock_submitted_of(act, review)
    values: dict[str, str | None] = {
        "status": data.decision,
        "decision_body": data.body,
        "approved_result_hash": None,
        "decided_by": act.principal.user_id,
        "decided_at": act.now,
    }
    if data.decision == "approved":
        values["approved_result_hash"] = group_hash(outcomes(act, Memories(act), drafts))
        review = change_review(act, review, **values)
    else:
        review = change_review(act, review, **values)
        reopened = [change_draft(act, draft, status="open") for draft in drafts]
        record_events(act, [("reopened", draft) for draft in reopened])
    audit.record(act, f"review.{data.decision}", "review", review_id, version=review.version)
    return review_detail(act, review)


def lock_submitted_of(act: Act, review: ReviewRow) -> list[DraftRow]:
    """The drafts of a locked review that are still submitted, locked, in the review's order."""
    names = draft_ids_of(act, [review.review_id])[review.review_id]
    rows = read_drafts(act, names, lock=True)
    return [rows[name] for name in names if rows[name].status == "submitted"]
