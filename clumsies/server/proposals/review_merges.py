"""Merging: all drafts of a review become one commit, or none does.

The organisation's Ref is locked from the beginning and must stand where the request says, so that
of two merges from one place one wins and the other is told that the Ref moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import insert

from clumsies.api.reviews import Merge, MergeAnswer
from clumsies.errors import Conflict
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.server.memory.refs import org_key, read_ref, require_ref_at
from clumsies.server.proposals.candidates import reconciliation_required
from clumsies.server.proposals.coordination import is_behind
from clumsies.server.proposals.draft_events import record_events
from clumsies.server.proposals.draft_rows import change_draft
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.proposals.review_decisions import lock_submitted_of
from clumsies.server.proposals.review_drafts import Outcome, check_together, group_hash, outcomes
from clumsies.server.proposals.review_messages import review_message
from clumsies.server.proposals.review_rows import ReviewRow, change_review, read_review
from clumsies.server.refusals import check_version, invalid, version_conflict
from clumsies.server.schema import review_merges


@dataclass(frozen=True, slots=True)
class _Merged:
    """A draft's outcome, and what is published of it under which id."""

    outcome: Outcome
    resource_id: str | None
    change: ResourceChange | None


def merge_review(
    act: Act, review_id: str, expected_commit_id: str | None, data: Merge
) -> MergeAnswer | Conflict:
    """Publish what the review's drafts come to; they and the review are merged then.

    The Conflict, "reconciliation_required", is to be raised when the transaction is kept: it names
    a candidate. Raises Refused("forbidden"), Conflict "precondition_failed" and
    "version_conflict", and InvalidRequest where the review is in another state.
    """
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    review = read_review(act, review_id, lock=True)
    act.principal.require("review:merge")
    require_ref_at(act, ref, expected_commit_id)
    if not review.is_active:
        raise invalid(f"The review is {review.status} and cannot be merged now.")
    check_version("review", data.expected_review_version, review.version)
    drafts = lock_submitted_of(act, review)
    for draft in drafts:
        if is_behind(draft, ref.commit_id):
            return reconciliation_required(act, draft, ref.commit_id)
    memories = Memories(act)
    found = outcomes(act, memories, drafts)
    if review.status == "approved" and review.approved_result_hash != group_hash(found):
        raise version_conflict("review", data.expected_review_version, review.version)
    check_together(memories, found, ref.commit_id)
    return _publish(act, review, [_merged(act, outcome) for outcome in found])


def _merged(act: Act, outcome: Outcome) -> _Merged:
    draft, result = outcome.draft, outcome.result
    if result is None:
        gone = draft.target_id and ResourceChange(draft.target_id, is_deleted=True)
        return _Merged(outcome, draft.target_id, gone or None)
    name = draft.target_id or act.new_id("mem")
    change = ResourceChange(name, result.path, result.content, result.description)
    return _Merged(outcome, name, change)


def _publish(act: Act, review: ReviewRow, merged: Sequence[_Merged]) -> MergeAnswer:
    changes = [item.change for item in merged if item.change is not None]
    commit = publish_org(act, changes, carrying_project_id=review.project_id)
    commit_id = None if commit is None else commit.commit_id
    rows = [
        change_draft(
            act,
            item.outcome.draft,
            status="merged",
            target_id=item.resource_id,
            path=item.change.path if item.change and item.change.path else item.outcome.draft.path,
        )
        for item in merged
    ]
    record_events(act, [("merged", row) for row in rows])
    count = sum(len(item.outcome.operations) for item in merged)
    review = change_review(act, review, status="merged")
    act.connection.execute(
        insert(review_merges).values(
            review_id=review.review_id,
            commit_id=commit_id,
            merged_by=act.principal.user_id,
            applied_operation_count=count,
            created_at=act.now,
        )
    )
    audit.record(
        act,
        "review.merged",
        "review",
        review.review_id,
        commit_id=commit_id,
        drafts=len(merged),
        operations=count,
    )
    return MergeAnswer(
        review=review_message(act, review), commit_id=commit_id, applied_operation_count=count
    )
