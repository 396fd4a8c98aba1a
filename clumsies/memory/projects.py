"""The projects this machine knows, and which authority each belongs to.

A project id belongs to one authority: ids are random, and the local authority's are made here. A
Server's project stays known when membership ends, as drafts and files of it are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from clumsies.errors import NotFound
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY

_PROJECTS = (
    "SELECT ? AS server_url, project_id, org_id, name, 1 AS available, created_at "
    "FROM local_projects UNION ALL "
    "SELECT server_url, project_id, org_id, name, available, seen_at FROM server_projects"
)


@dataclass(frozen=True, slots=True)
class KnownProject:
    """A project; `available` is false while its Server does not count the user as a member.

    `since` is when it was made, or for a Server's when it was last seen.
    """

    server_url: str
    project_id: str
    org_id: str
    name: str
    available: bool
    since: str

    @property
    def is_local(self) -> bool:
        return self.server_url == LOCAL_AUTHORITY


class ProjectDirectory:
    """Looks projects up; any thread may use it."""

    def __init__(self, database: LocalDatabase):
        self._database = database

    def projects(self) -> list[KnownProject]:
        """Every project that can be used now, in order of name."""
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                f"SELECT * FROM ({_PROJECTS}) WHERE available ORDER BY name, project_id",
                (LOCAL_AUTHORITY,),
            )
        return [_known(row) for row in rows]

    def project(self, project_id: str) -> KnownProject:
        """The project with this id, available or not; raises NotFound("not_found")."""
        with self._database.reader() as connection:
            return project_in(connection, project_id)

    def authority_of(self, project_id: str) -> str:
        """The URL of the project's authority; the local one's for a project nobody knows."""
        with self._database.reader() as connection:
            found = _find(connection, project_id)
        return LOCAL_AUTHORITY if found is None else found.server_url


def project_in(connection: apsw.Connection, project_id: str) -> KnownProject:
    """`ProjectDirectory.project` in a transaction that is there."""
    found = _find(connection, project_id)
    if found is None:
        raise NotFound(
            "not_found",
            f"There is no project {project_id!a} here; `clumsies projects` lists them.",
        )
    return found


def _find(connection: apsw.Connection, project_id: str) -> KnownProject | None:
    row = first_row(
        connection,
        f"SELECT * FROM ({_PROJECTS}) WHERE project_id = ? "
        "ORDER BY available DESC, created_at DESC LIMIT 1",
        (LOCAL_AUTHORITY, project_id),
    )
    return None if row is None else _known(row)


def _known(row: tuple[object, ...]) -> KnownProject:
    url, project, org, name, available, since = row
    return KnownProject(str(url), str(project), str(org), str(name), bool(available), str(since))
