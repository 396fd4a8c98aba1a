"""Drafts, their operations, the author's feed, candidates and rebases."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter

from clumsies.api.common import API_PREFIX, DEFAULT_LIMIT, MAX_LIMIT
from clumsies.api.drafts import (
    AppendOperation,
    BatchAnswer,
    Candidate,
    ChangeDraft,
    CreateCandidate,
    CreateDraft,
    DraftDetail,
    DraftEvents,
    DraftPage,
    DraftStatus,
    OperationBatch,
    Rebase,
)
from clumsies.api.reviews import RebaseAnswer
from clumsies.server.http.dependencies import IfMatchRef, IfMatchVersion, PathId, SignedIn
from clumsies.server.proposals import candidates, draft_events, draft_operations, drafts, rebases

PREFIX = f"{API_PREFIX}/drafts"
ONE = f"{PREFIX}/{{draft_id:str}}"
MAX_CURSOR = 500
ProjectFilter = Annotated[
    str | None, QueryParameter(pattern=r"^[A-Za-z0-9_.-]+\Z", min_length=1, max_length=200)
]
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, QueryParameter(max_length=MAX_CURSOR)]
_REPEATED = {200: ResponseSpec(DraftDetail, description="It was created before.")}


@post(PREFIX, sync_to_thread=True, responses=_REPEATED)
def create_draft(acting: SignedIn, data: JSONBody[CreateDraft]) -> Response[DraftDetail]:
    """Begin a draft; 200 with the one that is there for a repeat of `client_draft_id`."""
    detail, created = acting.write(lambda act: drafts.create_draft(act, data))
    return Response(detail, status_code=201 if created else 200)


@get(PREFIX, sync_to_thread=True)
def list_drafts(
    acting: SignedIn,
    project_id: ProjectFilter = None,
    status: FromQuery[DraftStatus | None] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> DraftPage:
    """Your drafts, the latest created first."""
    wanted = drafts.DraftFilter(project_id, status)
    return acting.read(lambda act: drafts.list_drafts(act, wanted, cursor, limit))


@get(ONE, sync_to_thread=True)
def get_draft(acting: SignedIn, draft_id: PathId) -> DraftDetail:
    """One draft with its operations."""
    return acting.read(lambda act: drafts.get_draft(act, draft_id))


@patch(ONE, sync_to_thread=True)
def change_draft(
    acting: SignedIn,
    draft_id: PathId,
    data: JSONBody[ChangeDraft],
    if_match_version: IfMatchVersion,
) -> DraftDetail:
    """Another title or description."""
    return acting.write(
        lambda act: drafts.change_draft_words(act, draft_id, if_match_version, data)
    )


@delete(ONE, sync_to_thread=True, status_code=200)
def discard_draft(
    acting: SignedIn, draft_id: PathId, if_match_version: IfMatchVersion
) -> DraftDetail:
    """Give a draft up. A repeat answers with it as it is."""
    return acting.write(lambda act: drafts.discard_draft(act, draft_id, if_match_version))


@post(f"{ONE}/operations", sync_to_thread=True)
def append_operation(
    acting: SignedIn,
    draft_id: PathId,
    data: JSONBody[AppendOperation],
    if_match_version: IfMatchVersion,
) -> DraftDetail:
    """One operation more."""
    return acting.write(
        lambda act: draft_operations.append_operation(act, draft_id, if_match_version, data)
    )


@post(f"{API_PREFIX}/draft-operation-batches", sync_to_thread=True)
def append_batch(acting: SignedIn, data: JSONBody[OperationBatch]) -> BatchAnswer:
    """Operations of several drafts, in order, all or none."""
    return acting.write(lambda act: draft_operations.append_batch(act, data))


@get(f"{API_PREFIX}/draft-events", sync_to_thread=True)
def list_events(
    acting: SignedIn, after_cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> DraftEvents:
    """What happened to your drafts after a cursor, oldest first."""
    return acting.read(lambda act: draft_events.list_events(act, after_cursor, limit))


@post(f"{ONE}/reconciliation-candidates", sync_to_thread=True)
def create_candidate(
    acting: SignedIn, draft_id: PathId, data: JSONBody[CreateCandidate]
) -> Candidate:
    """What a rebase of the draft on the Ref would do. The draft stays as it is."""
    return acting.write(
        lambda act: candidates.create_candidate(act, draft_id, data.expected_draft_version)
    )


@get(f"{ONE}/reconciliation-candidates/{{candidate_id:str}}", sync_to_thread=True)
def get_candidate(acting: SignedIn, draft_id: PathId, candidate_id: PathId) -> Candidate:
    """A candidate, and whether it is still valid."""
    return acting.read(lambda act: candidates.get_candidate(act, draft_id, candidate_id))


@post(f"{ONE}/rebases", sync_to_thread=True)
def rebase_draft(
    acting: SignedIn, draft_id: PathId, data: JSONBody[Rebase], if_match_ref: IfMatchRef
) -> RebaseAnswer:
    """Carry a candidate out: the draft begins with the Ref's commit then."""
    return acting.write(lambda act: rebases.rebase_draft(act, draft_id, if_match_ref, data))


ROUTES = [
    create_draft,
    list_drafts,
    get_draft,
    change_draft,
    discard_draft,
    append_operation,
    append_batch,
    list_events,
    create_candidate,
    get_candidate,
    rebase_draft,
]
