"""Reviews as they are kept: reading, locking and writing them.

A change makes the version grow by one, whatever it changes. So does a change of one of the drafts:
nobody can decide on what they have not seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from sqlalchemy import delete, insert, select, update

from clumsies.api.reviews import ReviewStatus
from clumsies.server.acting import Act
from clumsies.server.memory.projects import require_project
from clumsies.server.proposals.draft_rows import UNDER_REVIEW
from clumsies.server.refusals import missing
from clumsies.server.schema import review_drafts, reviews


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """A review without its drafts and comments."""

    review_id: str
    org_id: str
    project_id: str
    author_id: str
    title: str
    description: str
    status: ReviewStatus
    version: int
    decision_body: str | None
    approved_result_hash: str | None
    decided_by: str | None
    decided_at: str | None
    created_at: str
    updated_at: str

    @property
    def is_active(self) -> bool:
        """Whether it may still be merged as it is."""
        return self.status in UNDER_REVIEW


def read_review(act: Act, review_id: str, lock: bool = False) -> ReviewRow:
    """A review of a project that who acts is a member of; with `lock` it stays as it is until the
    transaction ends. Raises NotFound("not_found")."""
    query = select(reviews).where(
        reviews.c.review_id == review_id, reviews.c.org_id == act.principal.org_id
    )
    row = act.connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise missing("review")
    review = ReviewRow(**row._mapping)
    require_project(act, review.project_id)
    return review


def lock_reviews(act: Act, review_ids: Collection[str]) -> dict[str, ReviewRow]:
    """The reviews by id as they stand now, held until the transaction ends; in order of id."""
    if not review_ids:
        return {}
    rows = act.connection.execute(
        select(reviews)
        .where(reviews.c.review_id.in_(review_ids))
        .order_by(reviews.c.review_id)
        .with_for_update()
    )
    return {row.review_id: ReviewRow(**row._mapping) for row in rows}


def insert_review(act: Act, review: ReviewRow, draft_ids: Collection[str]) -> None:
    """Keep a new review of these drafts, in this order."""
    act.connection.execute(insert(reviews).values(asdict(review)))
    set_drafts(act, review.review_id, draft_ids)


def set_drafts(act: Act, review_id: str, draft_ids: Collection[str]) -> None:
    """Let the review be of these drafts, in this order."""
    act.connection.execute(delete(review_drafts).where(review_drafts.c.review_id == review_id))
    act.connection.execute(
        insert(review_drafts),
        [
            {"review_id": review_id, "ordinal": ordinal, "draft_id": draft_id}
            for ordinal, draft_id in enumerate(draft_ids, 1)
        ],
    )


def change_review(act: Act, review: ReviewRow, **values: str | None) -> ReviewRow:
    """Write columns of a locked review; its version grows."""
    changed: dict[str, object] = {
        **values,
        "version": review.version + 1,
        "updated_at": max(act.now, review.updated_at),
    }
    act.connection.execute(
        update(reviews).where(reviews.c.review_id == review.review_id).values(changed)
    )
    return replace(review, **changed)  # type: ignore[arg-type]


def draft_ids_of(act: Act, review_ids: Collection[str]) -> dict[str, list[str]]:
    """By review, its drafts in order."""
    rows = act.connection.execute(
        select(review_drafts.c.review_id, review_drafts.c.draft_id)
        .where(review_drafts.c.review_id.in_(review_ids))
        .order_by(review_drafts.c.review_id, review_drafts.c.ordinal)
    )
    found: dict[str, list[str]] = {review_id: [] for review_id in review_ids}
    for review_id, draft_id in rows:
        found[review_id].append(draft_id)
    return found
