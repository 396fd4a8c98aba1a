"""Reviews, their comments, decisions and merges."""

from __future__ import annotations

from typing import TypeVar

from litestar import get, post
from litestar.params import FromQuery, JSONBody

from clumsies.api.common import API_PREFIX, DEFAULT_LIMIT
from clumsies.api.reviews import (
    Comment,
    CommentPage,
    CreateComment,
    CreateReview,
    Decide,
    Merge,
    MergeAnswer,
    Resubmit,
    ReviewChanges,
    ReviewDetail,
    ReviewPage,
    ReviewStatus,
)
from clumsies.errors import Conflict
from clumsies.server.http.dependencies import IfMatchRef, PathId, SignedIn
from clumsies.server.http.draft_routes import Cursor, Limit, ProjectFilter
from clumsies.server.proposals import comments, review_decisions, review_merges, reviews

PREFIX = f"{API_PREFIX}/reviews"
ONE = f"{PREFIX}/{{review_id:str}}"
_Answer = TypeVar("_Answer")


def _kept(answer: _Answer | Conflict) -> _Answer:
    """The answer of a transaction that was kept; raises the Conflict that it ended with."""
    if isinstance(answer, Conflict):
        raise answer
    return answer


@post(PREFIX, sync_to_thread=True)
def create_review(
    acting: SignedIn, data: JSONBody[CreateReview], if_match_ref: IfMatchRef
) -> ReviewDetail:
    """Propose open drafts of yours as one."""
    return _kept(acting.write(lambda act: reviews.create_review(act, if_match_ref, data)))


@get(PREFIX, sync_to_thread=True)
def list_reviews(
    acting: SignedIn,
    project_id: ProjectFilter = None,
    status: FromQuery[ReviewStatus | None] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> ReviewPage:
    """Reviews of your projects, the latest changed first."""
    wanted = reviews.ReviewFilter(project_id, status)
    return acting.read(lambda act: reviews.list_reviews(act, wanted, cursor, limit))


@get(ONE, sync_to_thread=True)
def get_review(acting: SignedIn, review_id: PathId) -> ReviewDetail:
    """One review with its drafts and comments."""
    return acting.read(lambda act: reviews.get_review(act, review_id))


@get(f"{ONE}/changes", sync_to_thread=True)
def get_review_changes(acting: SignedIn, review_id: PathId) -> ReviewChanges:
    """Every memory of the review before and after."""
    return acting.read(lambda act: reviews.get_changes(act, review_id))


@get(f"{ONE}/comments", sync_to_thread=True)
def list_comments(acting: SignedIn, review_id: PathId) -> CommentPage:
    """What was said, oldest first."""
    return acting.read(lambda act: comments.list_comments(act, review_id))


@post(f"{ONE}/comments", sync_to_thread=True)
def create_comment(acting: SignedIn, review_id: PathId, data: JSONBody[CreateComment]) -> Comment:
    """Say something, at a line or about the whole."""
    return acting.write(lambda act: comments.create_comment(act, review_id, data))


@post(f"{ONE}/decisions", sync_to_thread=True)
def decide(acting: SignedIn, review_id: PathId, data: JSONBody[Decide]) -> ReviewDetail:
    """Approve or reject."""
    return acting.write(lambda act: review_decisions.decide(act, review_id, data))


@post(f"{ONE}/submissions", sync_to_thread=True)
def resubmit_review(
    acting: SignedIn, review_id: PathId, data: JSONBody[Resubmit], if_match_ref: IfMatchRef
) -> ReviewDetail:
    """Propose a rejected review again."""
    return _kept(
        acting.write(lambda act: reviews.resubmit_review(act, review_id, if_match_ref, data))
    )


@post(f"{ONE}/merges", sync_to_thread=True)
def merge_review(
    acting: SignedIn, review_id: PathId, data: JSONBody[Merge], if_match_ref: IfMatchRef
) -> MergeAnswer:
    """Publish the review's drafts as one commit."""
    return _kept(
        acting.write(lambda act: review_merges.merge_review(act, review_id, if_match_ref, data))
    )


ROUTES = [
    create_review,
    list_reviews,
    get_review,
    get_review_changes,
    list_comments,
    create_comment,
    decide,
    resubmit_review,
    merge_review,
]
