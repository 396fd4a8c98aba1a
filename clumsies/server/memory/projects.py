"""Projects, and who may see and change them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Row, Select, insert, select, update

from clumsies.api.common import PageInfo
from clumsies.api.identity import ProjectRole, User
from clumsies.api.projects import (
    ChangeProject,
    CreateProject,
    Project,
    ProjectMember,
    ProjectMemberPage,
    ProjectPage,
)
from clumsies.errors import Conflict, InvalidRequest, NotFound, Refused
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.memory.refs import ensure_refs
from clumsies.server.refusals import check_version
from clumsies.server.schema import project_creations, project_members, projects, users

MAX_KEY_BYTES = 200


@dataclass(frozen=True, slots=True)
class Membership:
    """A project that the acting user is a member of, and their role in it."""

    project_id: str
    org_id: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str
    role: ProjectRole

    def message(self) -> Project:
        """The project as it travels."""
        return Project(
            project_id=self.project_id,
            name=self.name,
            description=self.description,
            revision=self.revision,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


def require_project(act: Act, project_id: str, lock: bool = False) -> Membership:
    """The project, where the acting user is a member; with `lock` its row is locked.

    Raises NotFound("not_found") for another's, a deleted one and none: they look the same.
    """
    query = _mine(act).where(projects.c.project_id == project_id)
    if lock:
        query = query.with_for_update(of=projects, key_share=True)
    row = act.connection.execute(query).first()
    if row is None:
        raise NotFound("not_found", "There is no such project that you are a member of.")
    return Membership(*row)


def require_project_admin(act: Act, project_id: str, lock: bool = False) -> Membership:
    """As `require_project`; raises Refused("forbidden") unless the acting user is an admin of the
    project, or an owner or admin of the organisation."""
    project = require_project(act, project_id, lock)
    if project.role != "admin" and not act.principal.is_admin:
        raise Refused("forbidden", "Only an admin of the project may change it; ask one of them.")
    return project


def _mine(act: Act) -> Select[Any]:
    return (
        select(
            projects.c.project_id,
            projects.c.org_id,
            projects.c.name,
            projects.c.description,
            projects.c.revision,
            projects.c.created_at,
            projects.c.updated_at,
            project_members.c.role,
        )
        .join(project_members, project_members.c.project_id == projects.c.project_id)
        .where(
            projects.c.org_id == act.principal.org_id,
            projects.c.deleted_at.is_(None),
            project_members.c.user_id == act.principal.user_id,
        )
    )


def list_projects(act: Act) -> ProjectPage:
    """Every project of the acting user, in order of name."""
    rows = act.connection.execute(_mine(act))
    found = sorted((Membership(*row) for row in rows), key=lambda one: (one.name, one.project_id))
    return ProjectPage(items=[one.message() for one in found], page_info=PageInfo())


def get_project(act: Act, project_id: str) -> Project:
    """One project; raises NotFound("not_found")."""
    return require_project(act, project_id).message()


def create_project(act: Act, data: CreateProject, idempotency_key: str) -> Project:
    """A new project whose admin is the acting user.

    A repeat of the key with the same body answers with the project that is there; with another
    body it raises Conflict("already_exists").
    """
    key = checked_key(idempotency_key)
    wanted = hashlib.sha256(msgspec.json.encode(data)).hexdigest()
    _lock_creations(act)
    old = act.connection.execute(
        select(project_creations.c.request_hash, project_creations.c.project_id).where(
            project_creations.c.user_id == act.principal.user_id,
            project_creations.c.idempotency_key == key,
        )
    ).first()
    if old is None:
        project = insert_project(act, data)
        creation = {
            "user_id": act.principal.user_id,
            "idempotency_key": key,
            "request_hash": wanted,
            "project_id": project.project_id,
            "created_at": act.now,
        }
        act.connection.execute(insert(project_creations).values(creation))
        return project
    if old.request_hash != wanted:
        raise Conflict(
            "already_exists",
            "Another project was created with this Idempotency-Key; send a new key.",
        )
    row = act.connection.execute(
        select(projects).where(projects.c.project_id == old.project_id)
    ).one()
    return project_message(row)


def checked_key(idempotency_key: str) -> str:
    """The key without the white space around it; raises InvalidRequest for none of 1 to 200
    bytes."""
    key = idempotency_key.strip()
    if not 1 <= len(key.encode("utf-8", "replace")) <= MAX_KEY_BYTES or not key.isprintable():
        raise InvalidRequest(
            "invalid_request",
            f"Creating a project needs the header Idempotency-Key of 1 to {MAX_KEY_BYTES} bytes; "
            "send a fresh random one.",
        )
    return key


def _lock_creations(act: Act) -> None:
    """A user creates one project at a time, so that a repeat finds what the first made."""
    act.connection.execute(
        select(users.c.user_id)
        .where(users.c.user_id == act.principal.user_id)
        .with_for_update(key_share=True)
    )


def insert_project(act: Act, data: CreateProject) -> Project:
    """The rows of a new project, with the acting user as its admin."""
    project = Project(
        project_id=act.new_id("proj"),
        name=data.name,
        description=data.description,
        revision=1,
        created_at=act.now,
        updated_at=act.now,
    )
    facts = msgspec.structs.asdict(project) | {"org_id": act.principal.org_id}
    act.connection.execute(insert(projects).values(facts))
    member = {
        "project_id": project.project_id,
        "user_id": act.principal.user_id,
        "role": "admin",
        "joined_at": act.now,
    }
    act.connection.execute(insert(project_members).values(member))
    ensure_refs(act.connection, act.principal.org_id, project.project_id, now=act.now)
    audit.record(act, "project.created", "project", project.project_id)
    return project


def project_message(row: Row[Any]) -> Project:
    """A row that has every column of `projects`, as it travels."""
    return Project(
        project_id=row.project_id,
        name=row.name,
        description=row.description,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def change_project(
    act: Act, project_id: str, expected_revision: int, data: ChangeProject
) -> Project:
    """Another name or description; raises Conflict("version_conflict"), Refused("forbidden")."""
    project = require_project_admin(act, project_id, lock=True)
    check_version("project", expected_revision, project.revision)
    old = project.message()
    given = {"name": data.name, "description": data.description}
    new = {name: value for name, value in given.items() if value is not None}
    changed = sorted(name for name, value in new.items() if getattr(old, name) != value)
    if not changed:
        return old
    facts = new | {"revision": project.revision + 1, "updated_at": act.now}
    _update(act, project_id, facts)
    audit.record(act, "project.changed", "project", project_id, fields=changed)
    return msgspec.structs.replace(old, **facts)


def delete_project(act: Act, project_id: str, expected_revision: int) -> None:
    """Take the project away from its members; its rows and drafts stay in the database."""
    project = require_project_admin(act, project_id, lock=True)
    check_version("project", expected_revision, project.revision)
    facts = {"revision": project.revision + 1, "updated_at": act.now, "deleted_at": act.now}
    _update(act, project_id, facts)
    audit.record(act, "project.deleted", "project", project_id)


def _update(act: Act, project_id: str, facts: dict[str, Any]) -> None:
    act.connection.execute(
        update(projects).where(projects.c.project_id == project_id).values(facts)
    )


def list_members(act: Act, project_id: str) -> ProjectMemberPage:
    """A project's members, the first to join first; raises NotFound("not_found")."""
    require_project(act, project_id)
    query = (
        select(users, project_members.c.role.label("project_role"), project_members.c.joined_at)
        .join(project_members, project_members.c.user_id == users.c.user_id)
        .where(project_members.c.project_id == project_id)
    )
    rows = sorted(act.connection.execute(query), key=lambda row: (row.joined_at, row.user_id))
    found = [
        ProjectMember(
            project_id=project_id,
            user=User(
                user_id=row.user_id,
                email=row.email,
                display_name=row.display_name,
                avatar_url=row.avatar_url,
                role=row.role,
            ),
            role=row.project_role,
            joined_at=row.joined_at,
        )
        for row in rows
    ]
    return ProjectMemberPage(items=found, page_info=PageInfo())
