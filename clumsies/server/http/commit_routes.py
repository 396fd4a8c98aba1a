"""Refs and commits."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import FromQuery
from msgspec import Meta

from clumsies.api.commits import CommitPage, CommitState, CommitTransfer
from clumsies.api.common import API_PREFIX
from clumsies.server.http.dependencies import PathId, SignedIn
from clumsies.server.memory import commits
from clumsies.server.memory.refs import etag_of

_PROJECT = f"{API_PREFIX}/projects/{{project_id:str}}"
Local = FromQuery[Annotated[str, Meta(max_length=200)] | None]


@get(f"{API_PREFIX}/org/commits", sync_to_thread=True)
def list_org_commits(acting: SignedIn) -> CommitPage:
    """The organisation's latest 200 commits, newest first."""
    return acting.read(commits.list_org_commits)


@get(f"{API_PREFIX}/org/commit-state", sync_to_thread=True)
def get_org_commit_state(acting: SignedIn, local_commit_id: Local = None) -> Response[CommitState]:
    """Where the organisation's Ref stands. The ETag is the precondition of a change of it."""
    return _stated(acting.read(lambda act: commits.org_commit_state(act, local_commit_id)))


@get(f"{_PROJECT}/commits", sync_to_thread=True)
def list_project_commits(acting: SignedIn, project_id: PathId) -> CommitPage:
    """A project's latest 200 commits, newest first."""
    return acting.read(lambda act: commits.list_project_commits(act, project_id))


@get(f"{_PROJECT}/commit-state", sync_to_thread=True)
def get_project_commit_state(
    acting: SignedIn, project_id: PathId, local_commit_id: Local = None
) -> Response[CommitState]:
    """Where a project's Ref stands. The ETag is the precondition of a change of it."""
    return _stated(
        acting.read(lambda act: commits.project_commit_state(act, project_id, local_commit_id))
    )


def _stated(state: CommitState) -> Response[CommitState]:
    return Response(state, headers={"etag": etag_of(state.ref.commit_id)})


@get(f"{API_PREFIX}/commits/{{commit_id:str}}", sync_to_thread=True)
def get_commit(acting: SignedIn, commit_id: PathId, have: Local = None) -> CommitTransfer:
    """A whole commit. `have` names one whose texts the client has: they are left out, and
    `base_commit_id` says so."""
    return acting.read(lambda act: commits.transfer(act, commit_id, have))


ROUTES = [
    list_org_commits,
    get_org_commit_state,
    list_project_commits,
    get_project_commit_state,
    get_commit,
]
