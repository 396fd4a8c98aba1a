"""Where Refs stand, and commits on their way to whoever may read them."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import ColumnElement, Row, bindparam, exists, select

from clumsies.api.commits import CommitPage, CommitState, CommitTransfer
from clumsies.api.common import API_PREFIX, MAX_LIMIT, PageInfo
from clumsies.errors import NotFound
from clumsies.server.acting import Act
from clumsies.server.memory.objects import commit_of, payload_of, read_tree
from clumsies.server.memory.projects import require_project
from clumsies.server.memory.refs import org_key, project_key, ref_message, ref_of
from clumsies.server.schema import commits, project_members, projects, refs
from clumsies.storage.objects import Commit

_COMMIT_ID = re.compile(r"[0-9a-f]{64}")


def _is_mine(project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the acting user, by `_asking`, is a member of the project, and it is there."""
    return exists(
        select(projects.c.project_id)
        .join(project_members, project_members.c.project_id == projects.c.project_id)
        .where(
            projects.c.project_id == project_id,
            projects.c.org_id == bindparam("asking_org_id"),
            projects.c.deleted_at.is_(None),
            project_members.c.user_id == bindparam("asking_user_id"),
        )
    )


def _asking(act: Act) -> dict[str, str]:
    return {"asking_org_id": act.principal.org_id, "asking_user_id": act.principal.user_id}


_STATE = (
    select(refs, *(column.label(f"latest_{column.name}") for column in commits.c))
    .outerjoin(commits, commits.c.commit_id == refs.c.commit_id)
    .where(refs.c.ref_key == bindparam("ref_key"))
)
_PROJECT_STATE = _STATE.where(_is_mine(refs.c.project_id))
"""Made once, as every client asks for a state all the time and making a statement costs more than
running it."""


def org_commit_state(act: Act, local_commit_id: str | None) -> CommitState:
    """Where the organisation's memory stands beside the commit that the client has."""
    named = {"ref_key": org_key(act.principal.org_id)}
    return _state(act.connection.execute(_STATE, named).first(), local_commit_id)


def project_commit_state(act: Act, project_id: str, local_commit_id: str | None) -> CommitState:
    """Where a project of the acting user stands; raises NotFound("not_found")."""
    named = {"ref_key": project_key(project_id)} | _asking(act)
    return _state(act.connection.execute(_PROJECT_STATE, named).first(), local_commit_id)


def _state(row: Row[Any] | None, local_commit_id: str | None) -> CommitState:
    if row is None:
        raise NotFound("not_found", "There is no such project that you are a member of.")
    ref = ref_of(row)
    name = ref.commit_id
    return CommitState(
        update_available=local_commit_id != name,
        ref=ref_message(ref),
        latest=None if name is None else _latest(row),
        download_url=None if name is None else f"{API_PREFIX}/commits/{name}",
        incremental_supported=True,
    )


def _latest(row: Any) -> Commit:
    return Commit(
        **{name: getattr(row, f"latest_{name}") for name in Commit.__struct_fields__},
    )


def list_org_commits(act: Act) -> CommitPage:
    """The organisation's latest commits, newest first."""
    return _page(act, commits.c.scope == "org", commits.c.project_id.is_(None))


def list_project_commits(act: Act, project_id: str) -> CommitPage:
    """A project's latest commits, newest first; raises NotFound("not_found")."""
    require_project(act, project_id)
    return _page(act, commits.c.scope == "project", commits.c.project_id == project_id)


def _page(act: Act, *of: ColumnElement[bool]) -> CommitPage:
    query = (
        select(commits)
        .where(commits.c.org_id == act.principal.org_id, *of)
        .order_by(commits.c.version.desc(), commits.c.commit_id)
        .limit(MAX_LIMIT)
    )
    found = [commit_of(row) for row in act.connection.execute(query)]
    return CommitPage(items=found, page_info=PageInfo())


def transfer(act: Act, commit_id: str, have: str | None = None) -> CommitTransfer:
    """A commit with its tree and texts; raises NotFound("not_found").

    Without the texts of the commit `have`, where the acting user may read that too.
    """
    if _readable(act, commit_id) is None:
        raise NotFound("not_found", "There is no such commit that you may read.")
    base = _readable(act, have) if have is not None and _COMMIT_ID.fullmatch(have) else None
    held = [] if base is None else read_tree(act.connection, base.tree_id)
    payload = payload_of(act.connection, commit_id, frozenset(entry.blob_id for entry in held))
    return CommitTransfer(
        commit=payload.commit,
        tree=payload.tree,
        blobs=payload.blobs,
        project_org_selection=payload.project_org_selection,
        base_commit_id=None if base is None else base.commit_id,
    )


def _readable(act: Act, commit_id: str) -> Commit | None:
    query = select(commits).where(
        commits.c.commit_id == commit_id,
        commits.c.org_id == act.principal.org_id,
        (commits.c.scope == "org") | _is_mine(commits.c.project_id),
    )
    row = act.connection.execute(query, _asking(act)).first()
    return None if row is None else commit_of(row)
