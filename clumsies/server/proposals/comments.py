"""What people say about a review, as a whole or at a line of a path in it."""

from __future__ import annotations

from sqlalchemy import insert

from clumsies.api.common import PageInfo
from clumsies.api.reviews import Comment, CommentPage, CreateComment
from clumsies.server.acting import Act
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.proposals.review_drafts import outcomes
from clumsies.server.proposals.review_messages import comment_messages, drafts_in
from clumsies.server.proposals.review_rows import ReviewRow, read_review
from clumsies.server.refusals import check_version, invalid
from clumsies.server.schema import review_comments


def list_comments(act: Act, review_id: str) -> CommentPage:
    """Every comment, oldest first; raises NotFound("not_found")."""
    review = read_review(act, review_id)
    return CommentPage(items=comment_messages(act, review.review_id), page_info=PageInfo())


def create_comment(act: Act, review_id: str, data: CreateComment) -> Comment:
    """A comment on the version of the review that its author saw. The version stays.

    Raises Conflict("version_conflict"), and InvalidRequest for an anchor that is half given or at
    a path that no draft of the review has before or after.
    """
    review = read_review(act, review_id, lock=True)
    check_version("review", data.expected_review_version, review.version)
    if not data.body.strip():
        raise invalid("The comment is blank; write something.")
    if (data.anchor_path is None) != (data.anchor_line is None):
        raise invalid("An anchor is anchor_path and anchor_line; give both or neither.")
    if data.anchor_path is not None and data.anchor_path not in _paths(act, review):
        raise invalid("No draft of the review has the anchor's path; take one of its changes.")
    comment_id = act.new_id("comment")
    act.connection.execute(
        insert(review_comments).values(
            comment_id=comment_id,
            review_id=review_id,
            author_id=act.principal.user_id,
            body=data.body,
            review_version=review.version,
            anchor_path=data.anchor_path,
            anchor_line=data.anchor_line,
            created_at=act.now,
        )
    )
    made = comment_messages(act, review_id)
    return next(comment for comment in made if comment.comment_id == comment_id)


def _paths(act: Act, review: ReviewRow) -> set[str]:
    """The paths of the review's memories, before and after."""
    memories = Memories(act)
    found: set[str] = set()
    for item in outcomes(act, memories, drafts_in(act, review)):
        place = memories.place(item.draft.base_commit_id, item.draft.target_id)
        if place is not None and place[0] is not None:
            found.add(place[0])
        if item.result is not None:
            found.add(item.result.path)
    return found
