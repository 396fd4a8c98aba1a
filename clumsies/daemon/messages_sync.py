"""Messages of the Server: signing in, synchronizing, proposing and judging.

What the Server itself said is passed on as it says it (`clumsies.api`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from clumsies.api.common import Identifier, Note, Title
from clumsies.api.drafts import Candidate, PathText, ResourceState
from clumsies.api.identity import OrgRole
from clumsies.api.reviews import Change, Comment, Review, ReviewDetail, ReviewStatus
from clumsies.daemon.messages import Message, OfProject

ServerUrl = Annotated[str, Meta(min_length=1, max_length=2_048)]


class ReplaceProjectConfig(Message):
    """The Server to use beside the local authority; null for none. The session of another Server
    is forgotten. `project_id` is the project that a person has selected; left out, it stays."""

    server_url: ServerUrl | None = None
    project_id: Identifier | UnsetType | None = UNSET


class SelectProject(Message):
    """The project a person looks at; it is kept in step like a bound one. Null for none."""

    project_id: Identifier | None = None


class SignIn(Message):
    """A sign-in's code, which the daemon exchanges: tokens never leave it."""

    server_url: ServerUrl
    code: Annotated[str, Meta(min_length=1, max_length=4_096)]
    redirect_uri: Annotated[str, Meta(min_length=1, max_length=2_048)]
    code_verifier: Annotated[str, Meta(min_length=43, max_length=128)]


class SignedIn(Message, omit_defaults=False):
    """Who is signed in, as the Server says it now."""

    server_url: str
    user_id: str
    email: str
    display_name: str
    role: OrgRole
    org_id: str
    org_name: str
    project_count: int


class SignedOut(Message, omit_defaults=False):
    """`revoked` says whether the Server heard of it; here the session is gone either way."""

    server_url: str | None
    revoked: bool


class ServerRequest(Message):
    """A request to the authority of a project; without one, to the configured Server."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: Annotated[str, Meta(min_length=1, max_length=8_192)]
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    project_id: Identifier | None = None


class ServerResponse(Message, omit_defaults=False):
    """What the Server answered, a failure included."""

    status: int
    headers: dict[str, str]
    body: str


class RetryProjectSync(Message):
    project_id: Identifier
    channel: Literal["drafts", "commits", "all"] = "all"


class SubmitDrafts(Message):
    """Drafts of one project for one review; none named means all that are open."""

    project_id: Identifier
    draft_ids: list[Identifier] = field(default_factory=list)
    title: Title | None = None
    description: Note | None = None


class SubmittedReview(Message, omit_defaults=False):
    review: Review


class RebaseDraft(Message):
    """Without `resolved` a draft with conflicts stays as it is, and is shown."""

    draft_id: Identifier
    candidate_id: Identifier | None = None
    resolved: ResourceState | None = None


class RebasedDraft(Message, omit_defaults=False):
    """`current` means there was nothing to do, `conflicts` that somebody has to decide."""

    draft_id: str
    outcome: Literal["current", "rebased", "conflicts"]
    candidate: Candidate | None = None
    review_reopened: bool = False


class CompareDraft(Message):
    draft_id: Identifier


class DraftComparison(Message, omit_defaults=False):
    """A draft's memory at its base, as the draft leaves it, and as it is installed now."""

    draft_id: str
    before: ResourceState
    after: ResourceState
    current: ResourceState


class ListReviews(OfProject):
    status: ReviewStatus | None = None


class ReviewList(Message, omit_defaults=False):
    reviews: list[Review]


class OfReview(Message):
    project_id: Identifier
    review_id: Identifier


class ShownReview(Message, omit_defaults=False):
    """A review with the text of every draft before and after."""

    detail: ReviewDetail
    changes: list[Change]


class CommentReview(OfReview):
    body: Annotated[str, Meta(min_length=1, max_length=65_536)]
    anchor_path: PathText | None = None
    anchor_line: Annotated[int, Meta(ge=1)] | None = None


class ReviewComment(Message, omit_defaults=False):
    comment: Comment


class DecideReview(OfReview):
    """`expected_review_version` is of the review that the person saw; left out, the latest."""

    decision: Literal["approved", "rejected"]
    body: Note | None = None
    expected_review_version: int | None = None


class DecidedReview(Message, omit_defaults=False):
    review: Review


class ResubmitReview(OfReview):
    title: Title | None = None
    description: Note | None = None


class MergeReview(OfReview):
    expected_review_version: int | None = None


class MergedReview(Message, omit_defaults=False):
    """`installed` says whether the merged memory is on this machine already."""

    review: Review
    commit_id: str | None
    applied_operation_count: int
    installed: bool
