"""What an owner or admin sees and changes of their organisation as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from sqlalchemy import RowMapping, Select, delete, func, insert, select, update

from clumsies.api.admin import (
    AdminOrganization,
    AdminProject,
    AdminProjectPage,
    AuditEvent,
    AuditPage,
    ChangeOrganization,
    CreatedToken,
    CreateToken,
    CreateTokenFor,
    ExportedMemory,
    PersonalToken,
    Removal,
    TokenPage,
)
from clumsies.api.identity import ProjectRole
from clumsies.api.projects import ProjectMember, ProjectMemberPage
from clumsies.errors import InvalidRequest, NotFound
from clumsies.server import audit
from clumsies.server.acting import Act, Acting
from clumsies.server.identity.personal_tokens import (
    create_token,
    revoke_token,
    token_message,
    tokens_query,
)
from clumsies.server.identity.users import user_message, user_row
from clumsies.server.memory.objects import read_entries, read_texts
from clumsies.server.memory.refs import org_key, read_ref
from clumsies.server.paging import Page
from clumsies.server.schema import (
    audit_events,
    orgs,
    project_members,
    projects,
    resources,
    users,
)
from clumsies.storage.objects import TreeEntry
from clumsies.storage.timestamps import rfc3339
from clumsies.types import content_hash

EXPORT_BATCH = 50
"""Texts that an export reads, and holds, at once."""


def get_organization(act: Act) -> AdminOrganization:
    """The organisation, with how much there is of everything."""
    act.principal.require("admin:write")
    org_id = act.principal.org_id
    row = act.connection.execute(select(orgs).where(orgs.c.org_id == org_id)).mappings().one()

    def count(*conditions: Any) -> int:
        return int(act.connection.execute(select(func.count()).where(*conditions)).scalar_one())

    return AdminOrganization(
        org_id=org_id,
        name=row["name"],
        member_count=count(users.c.org_id == org_id, users.c.status != "disabled"),
        project_count=count(projects.c.org_id == org_id, projects.c.deleted_at.is_(None)),
        memory_count=count(resources.c.org_id == org_id),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def change_organization(act: Act, data: ChangeOrganization) -> AdminOrganization:
    """Another name."""
    act.principal.require("admin:write")
    act.connection.execute(
        update(orgs)
        .where(orgs.c.org_id == act.principal.org_id)
        .values(name=data.name, updated_at=act.now)
    )
    audit.record(act, "organization.changed", "organization", act.principal.org_id)
    return get_organization(act)


def _projects(act: Act) -> Select[Any]:
    members = (
        select(func.count())
        .where(project_members.c.project_id == projects.c.project_id)
        .scalar_subquery()
    )
    return (
        select(projects, members.label("member_count"))
        .where(projects.c.org_id == act.principal.org_id, projects.c.deleted_at.is_(None))
        .order_by(projects.c.created_at, projects.c.project_id)
    )


def _project_message(row: RowMapping) -> AdminProject:
    return AdminProject(**{name: row[name] for name in AdminProject.__struct_fields__})


def list_org_projects(act: Act, page: Page) -> AdminProjectPage:
    """Every project of the organisation, whoever is a member, the oldest first."""
    act.principal.require("admin:write")
    found, info = page.of(page.rows(act.connection, _projects(act)))
    return AdminProjectPage(items=[_project_message(row) for row in found], page_info=info)


def get_org_project(act: Act, project_id: str) -> AdminProject:
    """One project; raises NotFound("not_found")."""
    act.principal.require("admin:write")
    query = _projects(act).where(projects.c.project_id == project_id)
    row = act.connection.execute(query).mappings().first()
    if row is None:
        raise NotFound("not_found", "There is no such project; list the projects again.")
    return _project_message(row)


def list_org_project_members(act: Act, project_id: str, page: Page) -> ProjectMemberPage:
    """A project's members, the first to join first; raises NotFound("not_found")."""
    get_org_project(act, project_id)
    found, info = page.of(page.rows(act.connection, _members(project_id)))
    return ProjectMemberPage(items=[_member_message(row) for row in found], page_info=info)


def _members(project_id: str) -> Select[Any]:
    return (
        select(
            users,
            project_members.c.project_id,
            project_members.c.role.label("project_role"),
            project_members.c.joined_at,
        )
        .join_from(project_members, users, users.c.user_id == project_members.c.user_id)
        .where(project_members.c.project_id == project_id)
        .order_by(project_members.c.joined_at, users.c.user_id)
    )


def _member_message(row: RowMapping) -> ProjectMember:
    return ProjectMember(
        project_id=row["project_id"],
        user=user_message(row),
        role=cast(ProjectRole, row["project_role"]),
        joined_at=row["joined_at"],
    )


def put_project_member(act: Act, project_id: str, user_id: str, role: ProjectRole) -> ProjectMember:
    """Make a member of the organisation one of the project, or change their role in it."""
    get_org_project(act, project_id)
    user = user_row(act.connection, act.principal.org_id, user_id, lock=True)
    if user["status"] == "disabled":
        raise InvalidRequest("invalid_request", "The member is disabled; let them in again first.")
    this = (project_members.c.project_id == project_id) & (project_members.c.user_id == user_id)
    changed = act.connection.execute(update(project_members).where(this).values(role=role))
    if changed.rowcount == 0:
        act.connection.execute(
            insert(project_members).values(
                project_id=project_id, user_id=user_id, role=role, joined_at=act.now
            )
        )
    audit.record(act, "project.member_put", "project", project_id, user_id=user_id, role=role)
    query = _members(project_id).where(users.c.user_id == user_id)
    return _member_message(act.connection.execute(query).mappings().one())


def remove_project_member(act: Act, project_id: str, user_id: str) -> Removal:
    """Take a member out of the project; their drafts stay theirs."""
    get_org_project(act, project_id)
    user_row(act.connection, act.principal.org_id, user_id)
    done = act.connection.execute(
        delete(project_members).where(
            project_members.c.project_id == project_id, project_members.c.user_id == user_id
        )
    )
    if done.rowcount:
        audit.record(act, "project.member_removed", "project", project_id, user_id=user_id)
    return Removal(removed=done.rowcount > 0)


def list_tokens(act: Act, page: Page) -> TokenPage:
    """Every personal token of the organisation, newest first."""
    act.principal.require("admin:write")
    return _token_page(act, page, None)


def list_my_tokens(act: Act, page: Page) -> TokenPage:
    """The acting user's personal tokens, newest first."""
    return _token_page(act, page, act.principal.user_id)


def _token_page(act: Act, page: Page, user_id: str | None) -> TokenPage:
    found, info = page.of(page.rows(act.connection, tokens_query(act, user_id)))
    return TokenPage(items=[token_message(row) for row in found], page_info=info)


def create_token_for(act: Act, data: CreateTokenFor) -> CreatedToken:
    """A token of a member; see personal_tokens.create_token."""
    act.principal.require("admin:write")
    wanted = CreateToken(name=data.name, expires_in_days=data.expires_in_days)
    return create_token(act, data.user_id, wanted)


def revoke_any_token(act: Act, token_id: str) -> PersonalToken:
    """Revoke a token of the organisation; raises NotFound("not_found")."""
    act.principal.require("admin:write")
    return revoke_token(act, token_id)


def list_audit_events(act: Act, page: Page) -> AuditPage:
    """What happened in the organisation, newest first."""
    act.principal.require("admin:write")
    query = (
        select(audit_events)
        .where(audit_events.c.org_id == act.principal.org_id)
        .order_by(audit_events.c.sequence.desc())
    )
    found, info = page.of(page.rows(act.connection, query))
    items = [
        AuditEvent(
            event_id=row["event_id"],
            actor_id=row["actor_id"],
            action=row["action"],
            target_type=row["target_type"],
            target_id=row["target_id"],
            details=msgspec.json.decode(row["details_json"]),
            request_id=row["request_id"],
            created_at=row["created_at"],
        )
        for row in found
    ]
    return AuditPage(items=items, page_info=info)


def export_memory(acting: Acting) -> Iterator[bytes]:
    """The organisation's memory at its current commit: api.admin.MemoryExport as JSON, in parts.

    The commit is looked up at once; texts are read as they are sent, and never change.
    """

    def begin(act: Act) -> tuple[str | None, list[TreeEntry], str]:
        act.principal.require("admin:write")
        commit_id = read_ref(act, org_key(act.principal.org_id)).commit_id
        return commit_id, read_entries(act.connection, commit_id), rfc3339(act.now_ns)

    commit_id, entries, now = acting.read(begin)
    entries.sort(key=lambda entry: (entry.path or "").encode("utf-8"))
    head = {"org_id": acting.principal.org_id, "commit_id": commit_id, "exported_at": now}
    return _exported(acting, head, entries)


def _exported(
    acting: Acting, head: dict[str, str | None], entries: list[TreeEntry]
) -> Iterator[bytes]:
    yield msgspec.json.encode(head)[:-1] + b',"memories":['
    for start in range(0, len(entries), EXPORT_BATCH):
        some = entries[start : start + EXPORT_BATCH]
        texts = acting.read(_reading([entry.blob_id for entry in some]))
        for number, entry in enumerate(some, start):
            memory = ExportedMemory(
                memory_id=entry.item_id,
                path=entry.path or "",
                description=entry.description,
                content_hash=content_hash(texts[entry.blob_id]),
                content=texts[entry.blob_id],
            )
            yield (b"," if number else b"") + msgspec.json.encode(memory)
    yield b"]}"


def _reading(blob_ids: list[str]) -> Callable[[Act], dict[str, str]]:
    return lambda act: read_texts(act.connection, blob_ids)
