"""Proposing, judging and merging, as one person does it: the requests behind a command.

A draft that is behind and merges cleanly is reconciled on the way, because there is nothing to
decide. One with conflicts is never touched: the caller gets the candidate, and decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from clumsies.api.commits import CommitState
from clumsies.api.common import MAX_LIMIT
from clumsies.api.drafts import Candidate, CreateCandidate, Draft, Rebase, ResourceState
from clumsies.api.drafts import DraftDetail as RemoteDraft
from clumsies.api.reviews import (
    Comment,
    CreateComment,
    CreateReview,
    Decide,
    Merge,
    MergeAnswer,
    RebaseAnswer,
    Resubmit,
    Review,
    ReviewChanges,
    ReviewDetail,
    ReviewDraft,
    ReviewPage,
)
from clumsies.errors import Conflict
from clumsies.memory.refs import etag_of
from clumsies.sync.accounts import Peer
from clumsies.sync.answers import MAX_COMMIT_BODY_BYTES

ATTEMPTS = 4
"""How often a moved Ref is read anew before its caller hears of it."""


class Undecided(Conflict):
    """A draft and the memory changed the same thing; `candidate` shows both.

    `draft_id` is what the machine calls the draft, where that is not the Server's name of it.
    """

    def __init__(self, candidate: Candidate, draft_id: str | None = None):
        name = draft_id or candidate.draft_id
        super().__init__(
            "reconciliation_required",
            f"The draft {name} and the memory changed the same place; "
            f"`clumsies drafts rebase {name}` shows both and takes your decision.",
            {
                "draft_id": name,
                "candidate_id": candidate.candidate_id,
                "current_commit_id": candidate.current_commit_id,
            },
        )
        self.candidate = candidate


class Reviews:
    """Reviews and drafts of one account, at its authority."""

    def __init__(self, client: Peer):
        self._client = client

    def draft(self, draft_id: str) -> RemoteDraft:
        return self._client.call(
            "GET",
            f"/api/v1/drafts/{quote(draft_id)}",
            RemoteDraft,
            max_bytes=MAX_COMMIT_BODY_BYTES,
        )

    def submit(
        self, draft_ids: Sequence[str], title: str | None, description: str | None
    ) -> Review:
        """One review of these drafts. Raises Undecided where one has conflicts."""
        for attempt in range(1, ATTEMPTS + 1):
            drafts = [self._ready(draft_id) for draft_id in draft_ids]
            request = CreateReview(title=title, description=description, drafts=drafts)
            try:
                return self._client.call(
                    "POST", "/api/v1/reviews", ReviewDetail, json=request, headers=self._at_ref()
                ).review
            except Conflict as error:
                if attempt == ATTEMPTS or error.code not in _MOVED:
                    raise
        raise AssertionError("unreachable")

    def resubmit(
        self, review_id: str, title: str | None = None, description: str | None = None
    ) -> Review:
        """The review again, with its drafts as they are now."""
        found = self.show(review_id).review
        request = Resubmit(
            expected_review_version=found.version,
            drafts=[self._ready(draft_id) for draft_id in found.draft_ids],
            title=title,
            description=description,
        )
        path = f"/api/v1/reviews/{quote(review_id)}/submissions"
        headers = self._at_ref()
        return self._client.call("POST", path, ReviewDetail, json=request, headers=headers).review

    def _ready(self, draft_id: str) -> ReviewDraft:
        """The draft as a review takes it: current, or with a candidate that decides itself."""
        draft = self.draft(draft_id).draft
        if draft.coordination.freshness == "current":
            return ReviewDraft(draft_id=draft_id, expected_draft_version=draft.version)
        candidate = self.candidate(draft)
        if candidate is None:
            return ReviewDraft(draft_id=draft_id, expected_draft_version=draft.version)
        if candidate.status == "conflicts":
            raise Undecided(candidate)
        return ReviewDraft(
            draft_id=draft_id,
            expected_draft_version=draft.version,
            candidate_id=candidate.candidate_id,
        )

    def candidate(self, draft: Draft) -> Candidate | None:
        """What a rebase of the draft would do; None where there is nothing to rebase."""
        path = f"/api/v1/drafts/{quote(draft.draft_id)}/reconciliation-candidates"
        request = CreateCandidate(expected_draft_version=draft.version)
        try:
            return self._client.call("POST", path, Candidate, json=request)
        except Conflict as error:
            if error.code != "draft_already_current":
                raise
            return None

    def rebase(self, candidate: Candidate, resolved: ResourceState | None = None) -> RebaseAnswer:
        """Carry a candidate out; one with conflicts needs the state that was decided on."""
        request = Rebase(
            candidate_id=candidate.candidate_id,
            expected_draft_version=candidate.draft_version,
            resolved_state=resolved,
        )
        return self._client.call(
            "POST",
            f"/api/v1/drafts/{quote(candidate.draft_id)}/rebases",
            RebaseAnswer,
            json=request,
            headers={"if-match": etag_of(candidate.current_commit_id)},
        )

    def list(self, project_id: str, status: str | None = None) -> list[Review]:
        """Reviews of the project, the latest changed first."""
        query = {"project_id": project_id, "limit": str(MAX_LIMIT)}
        if status is not None:
            query["status"] = status
        return self._client.call("GET", "/api/v1/reviews", ReviewPage, query=query).items

    def show(self, review_id: str) -> ReviewDetail:
        return self._client.call(
            "GET",
            f"/api/v1/reviews/{quote(review_id)}",
            ReviewDetail,
            max_bytes=MAX_COMMIT_BODY_BYTES,
        )

    def changes(self, review_id: str) -> ReviewChanges:
        """Before and after of every draft of the review."""
        path = f"/api/v1/reviews/{quote(review_id)}/changes"
        return self._client.call("GET", path, ReviewChanges, max_bytes=MAX_COMMIT_BODY_BYTES)

    def comment(self, review_id: str, body: str, anchor: tuple[str, int] | None = None) -> Comment:
        """A comment on the review, or on a line (from 1) of a path in it."""
        request = CreateComment(
            body=body,
            expected_review_version=self.show(review_id).review.version,
            anchor_path=None if anchor is None else anchor[0],
            anchor_line=None if anchor is None else anchor[1],
        )
        path = f"/api/v1/reviews/{quote(review_id)}/comments"
        return self._client.call("POST", path, Comment, json=request)

    def decide(self, review_id: str, request: Decide) -> Review:
        path = f"/api/v1/reviews/{quote(review_id)}/decisions"
        return self._client.call("POST", path, ReviewDetail, json=request).review

    def merge(self, review_id: str, expected_version: int | None = None) -> MergeAnswer:
        """Merge the review as one. Drafts that fell behind are reconciled where that decides
        itself; `expected_version` is of the review that the caller saw."""
        for attempt in range(1, ATTEMPTS + 1):
            review = self.show(review_id).review
            version = review.version if expected_version is None else expected_version
            request = Merge(expected_review_version=version)
            try:
                return self._client.call(
                    "POST",
                    f"/api/v1/reviews/{quote(review_id)}/merges",
                    MergeAnswer,
                    json=request,
                    headers=self._at_ref(),
                )
            except Conflict as error:
                if attempt == ATTEMPTS or error.code not in _MOVED:
                    raise
                if error.code == "reconciliation_required" and self._reconcile(review.draft_ids):
                    expected_version = None
        raise AssertionError("unreachable")

    def _reconcile(self, draft_ids: Sequence[str]) -> bool:
        """Rebase every draft that is behind; whether one was. Raises Undecided for a conflict."""
        rebased = False
        for draft_id in draft_ids:
            draft = self.draft(draft_id).draft
            if draft.coordination.freshness == "current":
                continue
            candidate = self.candidate(draft)
            if candidate is None:
                continue
            if candidate.status == "conflicts":
                raise Undecided(candidate)
            self.rebase(candidate)
            rebased = True
        return rebased

    def _at_ref(self) -> dict[str, str]:
        state = self._client.call("GET", "/api/v1/org/commit-state", CommitState)
        return {"if-match": etag_of(state.ref.commit_id)}


_MOVED = frozenset({"precondition_failed", "reconciliation_required", "candidate_invalid"})
