"""Who may see a project, and what it is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from clumsies.api.identity import ProjectRole
from clumsies.errors import NotFound
from clumsies.server.acting import Act
from clumsies.server.schema import project_members, projects


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


def require_project(act: Act, project_id: str, lock: bool = False) -> Membership:
    """The project, where the acting user is a member; with `lock` its row is locked.

    Raises NotFound("not_found") for another's, a deleted one and none: they look the same.
    """
    query = (
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
            projects.c.project_id == project_id,
            projects.c.org_id == act.principal.org_id,
            projects.c.deleted_at.is_(None),
            project_members.c.user_id == act.principal.user_id,
        )
    )
    row = act.connection.execute(
        query.with_for_update(of=projects, key_share=True) if lock else query
    ).first()
    if row is None:
        raise NotFound("not_found", "There is no such project that you are a member of.")
    return Membership(*row)
