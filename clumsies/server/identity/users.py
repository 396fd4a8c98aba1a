"""People of an organisation, as rows and as messages."""

from __future__ import annotations

from typing import cast

from sqlalchemy import Connection, RowMapping, select

from clumsies.api.identity import Me, Organization, OrgRole, ProjectReference, User
from clumsies.errors import NotFound
from clumsies.server.acting import Act, capabilities_of
from clumsies.server.schema import orgs, project_members, projects, users


def user_message(row: RowMapping) -> User:
    """The message of a row of `users`."""
    return User(
        user_id=row["user_id"],
        email=row["email"],
        display_name=row["display_name"],
        avatar_url=row["avatar_url"],
        role=cast(OrgRole, row["role"]),
    )


def user_row(
    connection: Connection, org_id: str, user_id: str, *, lock: bool = False
) -> RowMapping:
    """The row of a user of the organisation; raises NotFound("not_found")."""
    query = select(users).where(users.c.org_id == org_id, users.c.user_id == user_id)
    if lock:
        query = query.with_for_update()
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound("not_found", "There is no such member; list the members again.")
    return row


def organization(connection: Connection, org_id: str) -> Organization:
    """The organisation's name."""
    row = connection.execute(select(orgs).where(orgs.c.org_id == org_id)).mappings().one()
    return Organization(org_id=row["org_id"], name=row["name"])


def me(act: Act) -> Me:
    """The signed-in user with every project they are a member of.

    `default_project_id` is the project of a member of exactly one.
    """
    principal = act.principal
    joined = project_members.join(projects, projects.c.project_id == project_members.c.project_id)
    rows = act.connection.execute(
        select(projects.c.project_id, projects.c.name)
        .select_from(joined)
        .where(
            project_members.c.user_id == principal.user_id,
            projects.c.org_id == principal.org_id,
            projects.c.deleted_at.is_(None),
        )
    ).all()
    found = sorted(rows, key=lambda row: (row.name.casefold(), row.project_id))
    return Me(
        user=user_message(user_row(act.connection, principal.org_id, principal.user_id)),
        org=organization(act.connection, principal.org_id),
        projects=[ProjectReference(project_id=row.project_id, name=row.name) for row in found],
        default_project_id=found[0].project_id if len(found) == 1 else None,
        capabilities=capabilities_of(principal.role),
    )
