"""Drafts: proposals of one author about one memory, carried by one project.

`open`, then `submitted` by a review, then `merged`; a rejected review opens its drafts again, and
`discarded` ends either. A draft is never removed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec
from sqlalchemy import and_, select

from clumsies.api.common import DEFAULT_LIMIT
from clumsies.api.drafts import (
    ChangeDraft,
    CreateDraft,
    DraftDetail,
    DraftPage,
    DraftStatus,
    Operation,
)
from clumsies.errors import Conflict
from clumsies.memory.paths import check_path
from clumsies.server.acting import Act
from clumsies.server.list_cursors import rows_of_page
from clumsies.server.memory.objects import read_commit
from clumsies.server.memory.projects import require_project
from clumsies.server.proposals.draft_events import record_events
from clumsies.server.proposals.draft_messages import detail_of, draft_messages
from clumsies.server.proposals.draft_operations import checked
from clumsies.server.proposals.draft_rows import (
    DraftRow,
    add_operation,
    change_draft,
    insert_draft,
    read_draft,
)
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.proposals.submissions import lock_for_edit, note_discard
from clumsies.server.refusals import check_version, invalid
from clumsies.server.schema import drafts, project_members, projects


@dataclass(frozen=True, slots=True)
class DraftFilter:
    """Which drafts a list has; None means any."""

    project_id: str | None = None
    status: DraftStatus | None = None


def create_draft(act: Act, data: CreateDraft) -> tuple[DraftDetail, bool]:
    """A new draft with its first operations, and True; the one that is there, and False, where the
    author created it under this `client_draft_id` before.

    Raises InvalidRequest for a base the organisation never had and for operations that cannot be
    applied to it, Conflict("already_exists") where the same id came with another body.
    """
    require_project(act, data.project_id)
    asked = hashlib.sha256(msgspec.json.encode(data)).hexdigest()
    repeated = _repeated(act, data.client_draft_id, asked)
    if repeated is not None:
        return detail_of(act, repeated), False
    if data.resource.scope != "org":
        raise invalid("A new draft is for the organisation's memory; send scope `org`.")
    if data.resource.path is not None:
        check_path(data.resource.path)
    _check_base(act, data.base_commit_id)
    _check_local_ids(data.operations)
    draft, operations = checked(Memories(act), _begun(act, data, asked), [], data.operations)
    if draft.target_id is None and draft.path is None:
        raise invalid("A draft needs a memory's id, or the path of one that is to be.")
    if not insert_draft(act, draft):
        repeated = _repeated(act, data.client_draft_id, asked)
        assert repeated is not None, draft.draft_id
        return detail_of(act, repeated), False
    for ordinal, (kept, sent) in enumerate(zip(operations, data.operations, strict=True), 1):
        add_operation(act, draft.draft_id, ordinal, kept, sent.local_operation_id)
    record_events(act, [("created", draft)], data.daemon_installation_id)
    return detail_of(act, draft), True


def _begun(act: Act, data: CreateDraft, asked: str) -> DraftRow:
    return DraftRow(
        draft_id=act.new_id("draft"),
        org_id=act.principal.org_id,
        project_id=data.project_id,
        author_id=act.principal.user_id,
        client_draft_id=data.client_draft_id,
        request_hash=asked,
        daemon_installation_id=data.daemon_installation_id,
        scope=data.resource.scope,
        target_id=data.resource.id,
        path=data.resource.path,
        title=data.title,
        description=data.description,
        base_commit_id=data.base_commit_id,
        status="open",
        version=1,
        created_at=act.now,
        updated_at=act.now,
    )


def _repeated(act: Act, client_draft_id: str | None, asked: str) -> DraftRow | None:
    if client_draft_id is None:
        return None
    row = act.connection.execute(
        select(drafts).where(
            drafts.c.author_id == act.principal.user_id,
            drafts.c.client_draft_id == client_draft_id,
        )
    ).first()
    if row is None:
        return None
    draft = DraftRow(**row._mapping)
    if draft.request_hash != asked:
        raise Conflict(
            "already_exists",
            "Another draft was created under this client_draft_id; give each its own.",
            {"client_draft_id": client_draft_id, "draft_id": draft.draft_id},
        )
    return draft


def _check_base(act: Act, commit_id: str | None) -> None:
    """A base is a commit that the organisation's Ref once stood at: only those are kept."""
    if commit_id is None:
        return
    commit = read_commit(act.connection, commit_id)
    if commit is None or commit.scope != "org" or commit.org_id != act.principal.org_id:
        raise invalid(
            "The base is not a commit of this organisation; read its Ref and begin from there.",
            base_commit_id=commit_id,
        )


def _check_local_ids(operations: list[Operation]) -> None:
    names = [item.local_operation_id for item in operations if item.local_operation_id]
    if len(set(names)) != len(names):
        raise invalid("Two operations have the same local_operation_id; give each its own.")


def get_draft(act: Act, draft_id: str) -> DraftDetail:
    """A draft with its operations, for its author and, once it was submitted, for the project."""
    return detail_of(act, read_draft(act, draft_id))


def list_drafts(
    act: Act, wanted: DraftFilter, cursor: str | None = None, limit: int = DEFAULT_LIMIT
) -> DraftPage:
    """The drafts of who acts in projects they are a member of, the latest created first."""
    if wanted.project_id is not None:
        require_project(act, wanted.project_id)
    member = and_(
        project_members.c.project_id == drafts.c.project_id,
        project_members.c.user_id == drafts.c.author_id,
    )
    query = (
        select(drafts)
        .join(project_members, member)
        .join(projects, projects.c.project_id == drafts.c.project_id)
        .where(drafts.c.author_id == act.principal.user_id, projects.c.deleted_at.is_(None))
    )
    if wanted.project_id is not None:
        query = query.where(drafts.c.project_id == wanted.project_id)
    if wanted.status is not None:
        query = query.where(drafts.c.status == wanted.status)
    keys = (drafts.c.created_at, drafts.c.draft_id)
    rows, info = rows_of_page(act.connection, query, keys, cursor, limit)
    page = [DraftRow(**row) for row in rows]
    return DraftPage(items=draft_messages(act, page), page_info=info)


def change_draft_words(
    act: Act, draft_id: str, expected_version: int, data: ChangeDraft
) -> DraftDetail:
    """Another title or description, for people; raises Conflict("version_conflict")."""
    draft = lock_for_edit(act, draft_id)
    if not draft.is_active:
        raise invalid(f"The draft is {draft.status} and cannot be changed.", draft_id=draft_id)
    check_version("draft", expected_version, draft.version)
    draft = change_draft(
        act,
        draft,
        title=draft.title if data.title is None else data.title,
        description=draft.description if data.description is None else data.description,
    )
    record_events(act, [("updated", draft)])
    return detail_of(act, draft)


def discard_draft(act: Act, draft_id: str, expected_version: int) -> DraftDetail:
    """Give the draft up; one that is discarded already stays so, whatever version is expected.

    Raises Conflict("version_conflict"), and InvalidRequest for a merged one.
    """
    draft = lock_for_edit(act, draft_id)
    if draft.status == "discarded":
        return detail_of(act, draft)
    if draft.status == "merged":
        raise invalid("The draft is merged; change the memory by a new draft.", draft_id=draft_id)
    check_version("draft", expected_version, draft.version)
    discarded = change_draft(act, draft, status="discarded")
    if draft.status == "submitted":
        note_discard(act, draft_id)
    record_events(act, [("discarded", discarded)])
    return detail_of(act, discarded)
