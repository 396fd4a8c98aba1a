"""Two organisations with people and projects, as rows.

`acme`: owner (in alpha and beta), admin (in alpha), ann (member of alpha, admin of beta) and ben
(member of beta alone). `other`: stranger, its owner, with the project gamma, and guest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from clumsies.api.identity import OrgRole
from clumsies.server.acting import Principal
from clumsies.server.database import Database
from clumsies.server.schema import (
    orgs,
    project_members,
    project_org_selection_states,
    projects,
    refs,
    users,
)

BEGAN = "2026-01-01T00:00:00.000000Z"
PEOPLE: dict[str, tuple[str, OrgRole]] = {
    "owner": ("acme", "owner"),
    "admin": ("acme", "admin"),
    "ann": ("acme", "member"),
    "ben": ("acme", "member"),
    "stranger": ("other", "owner"),
    "guest": ("other", "member"),
}
MEMBERS = {
    "alpha": ("acme", {"owner": "admin", "admin": "member", "ann": "member"}),
    "beta": ("acme", {"owner": "admin", "ann": "admin", "ben": "member"}),
    "gamma": ("other", {"stranger": "admin"}),
}


@dataclass(frozen=True)
class World:
    """Ids by name: `world.users["ann"]`, `world.projects["alpha"]`, `world.orgs["acme"]`."""

    database: Database
    orgs: dict[str, str] = field(default_factory=lambda: {n: f"org_{n}" for n in ("acme", "other")})
    users: dict[str, str] = field(default_factory=lambda: {n: f"user_{n}" for n in PEOPLE})
    projects: dict[str, str] = field(default_factory=lambda: {n: f"proj_{n}" for n in MEMBERS})

    def principal(self, user: str) -> Principal:
        """Who the user is, by name."""
        org, role = PEOPLE[user]
        return Principal(self.users[user], self.orgs[org], role)


def make_world(database: Database) -> World:
    """Write the rows into a migrated, empty database."""
    world = World(database)

    def work(connection: Connection) -> None:
        for org, org_id in world.orgs.items():
            connection.execute(
                orgs.insert().values(
                    org_id=org_id, name=org.title(), created_at=BEGAN, updated_at=BEGAN
                )
            )
            _add_ref(connection, org_id, None)
        for name, (org, role) in PEOPLE.items():
            connection.execute(
                users.insert().values(
                    user_id=world.users[name],
                    org_id=world.orgs[org],
                    email=f"{name}@{org}.example",
                    email_key=f"{name}@{org}.example",
                    display_name=name.title(),
                    role=role,
                    status="active",
                    revision=1,
                    created_at=BEGAN,
                    updated_at=BEGAN,
                )
            )
        for name in world.projects:
            _add_project(connection, world, name)

    database.write(work)
    return world


def _add_project(connection: Connection, world: World, name: str) -> None:
    org, members = MEMBERS[name]
    project_id, org_id = world.projects[name], world.orgs[org]
    connection.execute(
        projects.insert().values(
            project_id=project_id,
            org_id=org_id,
            name=name.title(),
            description="",
            revision=1,
            created_at=BEGAN,
            updated_at=BEGAN,
        )
    )
    connection.execute(
        project_org_selection_states.insert().values(
            project_id=project_id, revision=1, updated_at=BEGAN
        )
    )
    _add_ref(connection, org_id, project_id)
    for user, role in members.items():
        connection.execute(
            project_members.insert().values(
                project_id=project_id, user_id=world.users[user], role=role, joined_at=BEGAN
            )
        )


def _add_ref(connection: Connection, org_id: str, project_id: str | None) -> None:
    connection.execute(
        refs.insert().values(
            ref_key=f"project:{project_id}" if project_id else f"org:{org_id}",
            scope="project" if project_id else "org",
            org_id=org_id,
            project_id=project_id,
            updated_at=BEGAN,
        )
    )
