"""Which projects an account may keep in step, asked anew at the start of every cycle.

The list is live or there is no cycle: a failure is never taken for "no projects". A project that
is bound or has active drafts and is not in the list is unavailable; everything of it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from clumsies.api.identity import Me
from clumsies.memory.refs import ACTIVE
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.tree_paths import is_cache_component
from clumsies.sync.accounts import Account, broken
from clumsies.sync.meta import read_meta, write_meta

SELECTED_KEY = "selected_project_id"
"""The project that a person looks at, in `daemon_meta`."""
DEFERRED_KEY = "draft_events_deferred"
CURSOR_KEY = "draft_events_cursor"
IDENTITY_KEY = "sync_identity"


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is signed in, what they are a member of, and what of that is wanted here."""

    user_id: str
    org_id: str
    projects: frozenset[str]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A project whose work is kept until access returns."""

    project_id: str
    workspace_roots: tuple[str, ...]
    draft_count: int


def refresh_membership(database: LocalDatabase, account: Account, now: str) -> Membership:
    """Ask who is signed in, keep the answer, and return it with the projects to keep in step.

    Raises what the request raises, and SyncFailed("server_sync_failed") for an answer that cannot
    be true; nothing was changed then.
    """
    me = account.client.call("GET", "/api/v1/me", Me)
    _check(account, me)
    projects = frozenset(project.project_id for project in me.projects)
    with database.writer() as connection:
        if not account.is_local:
            _save_projects(connection, account, me, now)
            _clear_selection(connection, projects)
        _begin_identity(connection, account, f"{account.server_url} {me.user.user_id}")
        _resume_deferred(connection, account, projects)
        wanted = wanted_projects(connection, account)
    targets = tuple(sorted(projects & wanted))
    return Membership(me.user.user_id, me.org.org_id, projects, targets)


def _check(account: Account, me: Me) -> None:
    names = [project.project_id for project in me.projects]
    if not me.user.user_id or not is_cache_component(me.org.org_id):
        raise broken("the identity has no usable id")
    if len(set(names)) != len(names) or not all(map(is_cache_component, names)):
        raise broken("a project of the identity has no usable id, or is there twice")
    if account.org_id is not None and me.org.org_id != account.org_id:
        raise broken("the identity belongs to another organisation")
    if account.project_id is not None and names != [account.project_id]:
        raise broken("a local organisation has other projects than its own")


def _save_projects(connection: apsw.Connection, account: Account, me: Me, now: str) -> None:
    """Keep the list; a project that is no longer in it stays known. Ids of the local authority
    are refused: a project id belongs to one authority."""
    names = [project.project_id for project in me.projects]
    for name in names:
        taken = first_row(
            connection,
            "SELECT 1 FROM local_projects WHERE project_id = ?1 UNION ALL "
            "SELECT 1 FROM server_projects WHERE project_id = ?1 AND server_url <> ?2 "
            "AND available",
            (name, account.server_url),
        )
        if taken is not None:
            raise broken("a project's id is another authority's", project_id=name)
    connection.execute(
        "UPDATE server_projects SET available = 0 WHERE server_url = ?", (account.server_url,)
    )
    connection.executemany(
        "INSERT OR REPLACE INTO server_projects VALUES (?, ?, ?, ?, 1, ?)",
        [
            (account.server_url, project.project_id, me.org.org_id, project.name, now)
            for project in me.projects
        ],
    )


def _clear_selection(connection: apsw.Connection, projects: frozenset[str]) -> None:
    selected = read_meta(connection, SELECTED_KEY)
    if selected is None or selected in projects:
        return
    query = "SELECT 1 FROM local_projects WHERE project_id = ?"
    if first_row(connection, query, (selected,)) is None:
        write_meta(connection, SELECTED_KEY, None)


def _begin_identity(connection: apsw.Connection, account: Account, identity: str) -> None:
    """A feed is one author's at one Server: for another it is read from its beginning."""
    key = account.meta_key(IDENTITY_KEY)
    if read_meta(connection, key) != identity:
        write_meta(connection, key, identity)
        reset_cursor(connection, account)


def _resume_deferred(
    connection: apsw.Connection, account: Account, projects: frozenset[str]
) -> None:
    """Where access to a project has returned, its events are read again, once."""
    for project_id in sorted(projects):
        key = f"{DEFERRED_KEY}:{project_id}"
        if read_meta(connection, key) is not None:
            write_meta(connection, key, None)
            reset_cursor(connection, account)


def reset_cursor(connection: apsw.Connection, account: Account) -> None:
    """Read the account's feed from its beginning the next time."""
    write_meta(connection, account.meta_key(CURSOR_KEY), None)


def wanted_projects(connection: apsw.Connection, account: Account) -> set[str]:
    """Projects of the account that somebody here uses: selected, bound, or with active drafts."""
    if account.project_id is not None:
        return {account.project_id}
    rows = all_rows(
        connection,
        "SELECT value FROM daemon_meta WHERE key = ?1 UNION "
        "SELECT project_id FROM project_bindings WHERE server_url = ?2 UNION "
        f"SELECT project_id FROM local_drafts WHERE {_UNFINISHED}",
        (SELECTED_KEY, account.server_url),
    )
    found = {str(row[0]) for row in rows}
    return found - _elsewhere(connection, account)


_UNFINISHED = (
    f"({ACTIVE} OR draft_id IN (SELECT draft_id FROM local_draft_operations "
    "WHERE sync_status NOT IN ('synced', 'failed')))"
)


def _elsewhere(connection: apsw.Connection, account: Account) -> set[str]:
    """Projects that belong to the local authority or to another Server alone."""
    rows = all_rows(
        connection,
        "SELECT project_id FROM local_projects UNION SELECT project_id FROM server_projects "
        "WHERE server_url <> ?1 AND project_id NOT IN "
        "(SELECT project_id FROM server_projects WHERE server_url = ?1)",
        (account.server_url,),
    )
    return {str(row[0]) for row in rows}


def unavailable_projects(connection: apsw.Connection, account: Account) -> list[Unavailable]:
    """Bound projects and ones with active drafts that the last membership did not have."""
    if account.is_local:
        return []
    known = all_rows(
        connection,
        "SELECT project_id FROM server_projects WHERE server_url = ? AND available",
        (account.server_url,),
    )
    bound = all_rows(
        connection,
        "SELECT project_id, workspace_root FROM project_bindings WHERE server_url = ? "
        "ORDER BY workspace_root",
        (account.server_url,),
    )
    drafted = all_rows(
        connection,
        f"SELECT project_id, count(*) FROM local_drafts WHERE {ACTIVE} GROUP BY project_id",
    )
    counts = {str(name): int(count) for name, count in drafted}
    names = {str(row[0]) for row in bound} | counts.keys()
    missing = names - {str(row[0]) for row in known} - _elsewhere(connection, account)
    return [
        Unavailable(
            name,
            tuple(str(root) for project, root in bound if project == name),
            counts.get(name, 0),
        )
        for name in sorted(missing)
    ]
