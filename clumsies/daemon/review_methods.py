"""Handlers of proposing and judging: drafts for review, rebases, reviews, merges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clumsies.api.drafts import ResourceState
from clumsies.api.reviews import Decide
from clumsies.daemon import messages_sync as ms
from clumsies.daemon.context import Handler, RequestContext
from clumsies.daemon.resident import Resident
from clumsies.errors import ClumsiesError, InvalidRequest, NotFound, NotReady
from clumsies.memory.draft_rows import (
    Draft,
    DraftFilter,
    find_server_draft,
    get_draft,
    list_drafts,
)
from clumsies.memory.overlay import DraftedMemory
from clumsies.sync.reviews import Reviews, Undecided


class ReviewMethods:
    def __init__(self, resident: Resident):
        self._resident = resident

    def handlers(self) -> dict[str, Handler]:
        return {
            "compare_draft": self.compare,
            "submit_drafts": self.submit,
            "rebase_draft": self.rebase,
            "list_reviews": self.list,
            "get_review": self.get,
            "comment_review": self.comment,
            "decide_review": self.decide,
            "resubmit_review": self.resubmit,
            "merge_review": self.merge,
        }

    def compare(self, request: ms.CompareDraft, _context: RequestContext) -> ms.DraftComparison:
        """What a draft does to its memory, from what is on this machine."""
        states = self._resident.effective.compare(request.draft_id)
        return ms.DraftComparison(
            draft_id=request.draft_id,
            before=_state(states.before),
            after=_state(states.after),
            current=_state(states.current),
        )

    def submit(self, request: ms.SubmitDrafts, _context: RequestContext) -> ms.SubmittedReview:
        """One review of the drafts named, or of all that are open; they are sent first."""
        drafts = self._chosen(request)
        failure = self._synchronized(request.project_id)
        sent = [self._sent(draft.draft_id, failure) for draft in drafts]
        reviews = self._reviews(request.project_id)
        with self._naming_own_drafts():
            review = reviews.submit(sent, request.title, request.description)
        self._synchronized(request.project_id)
        return ms.SubmittedReview(review=review)

    def _synchronized(self, project_id: str) -> ClumsiesError | None:
        """Bring the account in step; what failed may be about another draft than the caller's."""
        try:
            self._resident.synchronize(project_id)
        except ClumsiesError as error:
            return error
        return None

    @contextmanager
    def _naming_own_drafts(self) -> Iterator[None]:
        """A conflict names the draft as this machine does, which is what a rebase takes."""
        try:
            yield
        except Undecided as error:
            name = error.candidate.draft_id
            with self._resident.database.reader() as connection:
                own = find_server_draft(connection, name)
            raise Undecided(error.candidate, None if own is None else own.draft_id) from error

    def _chosen(self, request: ms.SubmitDrafts) -> list[Draft]:
        database = self._resident.database
        if request.draft_ids:
            found = [get_draft(database, name).draft for name in request.draft_ids]
            for draft in found:
                if draft.project_id != request.project_id:
                    raise NotFound(
                        "not_found",
                        f"The draft {draft.draft_id} is another project's; name it with --project.",
                    )
            return found
        wanted = DraftFilter(request.project_id, status="open")
        found = list_drafts(database, wanted, limit=100).drafts
        if not found:
            raise InvalidRequest(
                "invalid_request", "There is no open draft to submit; store something first."
            )
        return sorted(found, key=lambda draft: (draft.created_at, draft.draft_id))

    def _sent(self, draft_id: str, failure: ClumsiesError | None) -> str:
        """The draft's id at its authority; raises unless all of it is there, `failure` first."""
        detail = get_draft(self._resident.database, draft_id)
        waiting = [op for op in detail.operations if op.sync_status != "synced"]
        if waiting or detail.draft.server_draft_id is None:
            if failure is not None:
                raise failure
            raise NotReady(
                "draft_sync_retrying",
                f"The draft {draft_id} is not with the Server yet; `clumsies sync` says why.",
                {"draft_id": draft_id, "waiting": len(waiting)},
            )
        return detail.draft.server_draft_id

    def rebase(self, request: ms.RebaseDraft, _context: RequestContext) -> ms.RebasedDraft:
        """Bring a draft onto the memory as it is; a conflict is shown, and decided by
        `resolved`."""
        project_id = get_draft(self._resident.database, request.draft_id).draft.project_id
        failure = self._synchronized(project_id)
        reviews = self._reviews(project_id)
        remote = reviews.draft(self._sent(request.draft_id, failure)).draft
        candidate = reviews.candidate(remote)
        if candidate is None:
            return ms.RebasedDraft(draft_id=request.draft_id, outcome="current")
        same = request.candidate_id in (None, candidate.candidate_id)
        undecided = request.resolved is None or not same
        if candidate.status == "conflicts" and undecided:
            return ms.RebasedDraft(
                draft_id=request.draft_id, outcome="conflicts", candidate=candidate
            )
        resolved = request.resolved if candidate.status == "conflicts" else None
        answer = reviews.rebase(candidate, resolved)
        self._synchronized(project_id)
        return ms.RebasedDraft(
            draft_id=request.draft_id,
            outcome="rebased",
            candidate=candidate,
            review_reopened=answer.approval_invalidated,
        )

    def list(self, request: ms.ListReviews, _context: RequestContext) -> ms.ReviewList:
        reviews = self._reviews(request.project_id)
        return ms.ReviewList(reviews=reviews.list(request.project_id, request.status))

    def get(self, request: ms.OfReview, _context: RequestContext) -> ms.ShownReview:
        reviews = self._reviews(request.project_id)
        detail = reviews.show(request.review_id)
        return ms.ShownReview(detail=detail, changes=reviews.changes(request.review_id).changes)

    def comment(self, request: ms.CommentReview, _context: RequestContext) -> ms.ReviewComment:
        anchor = None
        if request.anchor_path is not None and request.anchor_line is not None:
            anchor = (request.anchor_path, request.anchor_line)
        elif request.anchor_path is not None or request.anchor_line is not None:
            raise InvalidRequest("invalid_request", "An anchor is a path and a line of it.")
        reviews = self._reviews(request.project_id)
        return ms.ReviewComment(comment=reviews.comment(request.review_id, request.body, anchor))

    def decide(self, request: ms.DecideReview, _context: RequestContext) -> ms.DecidedReview:
        reviews = self._reviews(request.project_id)
        version = request.expected_review_version
        if version is None:
            version = reviews.show(request.review_id).review.version
        decision = Decide(
            decision=request.decision, expected_review_version=version, body=request.body
        )
        review = reviews.decide(request.review_id, decision)
        self._synchronized(request.project_id)
        return ms.DecidedReview(review=review)

    def resubmit(self, request: ms.ResubmitReview, _context: RequestContext) -> ms.SubmittedReview:
        self._synchronized(request.project_id)
        reviews = self._reviews(request.project_id)
        with self._naming_own_drafts():
            review = reviews.resubmit(request.review_id, request.title, request.description)
        self._synchronized(request.project_id)
        return ms.SubmittedReview(review=review)

    def merge(self, request: ms.MergeReview, _context: RequestContext) -> ms.MergedReview:
        """Merge, and bring the result here: the next activation finds it."""
        reviews = self._reviews(request.project_id)
        answer = reviews.merge(request.review_id, request.expected_review_version)
        failure = self._synchronized(request.project_id)  # It is merged whatever happens here.
        if failure is not None:
            self._resident.sync.notify(request.project_id)
        return ms.MergedReview(
            review=answer.review,
            commit_id=answer.commit_id,
            applied_operation_count=answer.applied_operation_count,
            installed=failure is None,
        )

    def _reviews(self, project_id: str) -> Reviews:
        return Reviews(self._resident.client_of(project_id)[0])


def _state(memory: DraftedMemory | None) -> ResourceState:
    if memory is None:
        return ResourceState(exists=False)
    return ResourceState(
        exists=True,
        path=memory.path,
        content=memory.content,
        description=memory.description or None,
    )
