"""Reviews and their comments as they travel."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from clumsies.api.reviews import Change, Comment, Review, ReviewChanges, ReviewDetail
from clumsies.server.acting import Act
from clumsies.server.proposals.coordination import coordinate, current_commit_id, together
from clumsies.server.proposals.draft_messages import details_of
from clumsies.server.proposals.draft_rows import DraftRow, read_drafts, read_operations, read_users
from clumsies.server.proposals.draft_states import Memories, result_of, state_message, state_of
from clumsies.server.proposals.review_rows import ReviewRow, draft_ids_of
from clumsies.server.schema import review_comments


def review_messages(act: Act, rows: Sequence[ReviewRow]) -> list[Review]:
    """The reviews in their order. A review is as far from the Ref as its submitted drafts are."""
    names = draft_ids_of(act, [row.review_id for row in rows])
    drafts = read_drafts(act, {name for listed in names.values() for name in listed})
    submitted = [draft for draft in drafts.values() if draft.status == "submitted"]
    distances = coordinate(act, submitted)
    current = current_commit_id(act)
    people = read_users(act, [name for row in rows for name in (row.author_id, row.decided_by)])
    return [
        Review(
            review_id=row.review_id,
            project_id=row.project_id,
            draft_id=names[row.review_id][0],
            draft_ids=names[row.review_id],
            author=people[row.author_id],
            title=row.title,
            description=row.description,
            status=row.status,
            version=row.version,
            decision_body=row.decision_body,
            approved_result_hash=row.approved_result_hash,
            decided_by=people[row.decided_by] if row.decided_by else None,
            decided_at=row.decided_at,
            coordination=together(
                [
                    distances[name]
                    for name in names[row.review_id]
                    if row.is_active and name in distances
                ],
                current,
            ),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in rows
    ]


def review_message(act: Act, row: ReviewRow) -> Review:
    """One review."""
    return review_messages(act, [row])[0]


def review_detail(act: Act, row: ReviewRow) -> ReviewDetail:
    """A review with its drafts and comments."""
    drafts = details_of(act, drafts_in(act, row))
    return ReviewDetail(
        review=review_message(act, row),
        draft=drafts[0].draft,
        operations=drafts[0].operations,
        drafts=drafts,
        comments=comment_messages(act, row.review_id),
    )


def review_changes(act: Act, row: ReviewRow) -> ReviewChanges:
    """Every draft's memory as its base has it and as the draft leaves it."""
    drafts = drafts_in(act, row)
    operations = read_operations(act, [draft.draft_id for draft in drafts])
    memories = Memories(act)
    changes = []
    for draft in drafts:
        before = memories.at(draft.base_commit_id, draft.target_id)
        after = result_of(memories, draft, [item.operation for item in operations[draft.draft_id]])
        changes.append(
            Change(
                draft_id=draft.draft_id,
                before=state_message(state_of(before), draft.scope, draft.target_id),
                after=state_message(state_of(after), draft.scope, draft.target_id),
            )
        )
    return ReviewChanges(review_id=row.review_id, changes=changes)


def drafts_in(act: Act, row: ReviewRow) -> list[DraftRow]:
    """The drafts of a review in order."""
    names = draft_ids_of(act, [row.review_id])[row.review_id]
    found = read_drafts(act, names)
    return [found[name] for name in names]


def comment_messages(act: Act, review_id: str) -> list[Comment]:
    """The comments of a review, oldest first."""
    rows = act.connection.execute(
        select(review_comments)
        .where(review_comments.c.review_id == review_id)
        .order_by(review_comments.c.created_at, review_comments.c.comment_id)
    ).all()
    people = read_users(act, [row.author_id for row in rows])
    return [
        Comment(
            comment_id=row.comment_id,
            review_id=row.review_id,
            author=people[row.author_id],
            body=row.body,
            review_version=row.review_version,
            anchor_path=row.anchor_path,
            anchor_line=row.anchor_line,
            created_at=row.created_at,
        )
        for row in rows
    ]
