"""Where Refs stand on this machine, and what moving one means for drafts and indexes.

A Ref moves in the transaction that keeps its objects, after its generation is in place. A draft
never moves with it: only what is known about the draft's distance from the Ref changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import apsw

from clumsies.errors import NotReady
from clumsies.memory.index_jobs import request_build
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.object_store import read_commit, read_tree
from clumsies.storage.objects import MAIN_REF

ACTIVE = "status IN ('open', 'submitted')"
EMPTY_ETAG = '"ref-none"'


@dataclass(frozen=True, slots=True)
class InstalledRef:
    """A Ref as it was installed; `commit_id` is None for an empty one."""

    scope: Literal["org", "project"]
    org_id: str
    project_id: str | None
    commit_id: str | None
    etag: str
    server_updated_at: str

    @property
    def key(self) -> str:
        return project_key(self.project_id) if self.project_id else organization_key(self.org_id)


def project_key(project_id: str) -> str:
    return f"project:{project_id}"


def organization_key(org_id: str) -> str:
    return f"org:{org_id}"


def etag_of(commit_id: str | None) -> str:
    """The strong entity tag of a Ref at this commit."""
    return EMPTY_ETAG if commit_id is None else f'"{commit_id}"'


def read_ref(connection: apsw.Connection, ref_key: str) -> InstalledRef | None:
    """The Ref with this key; None where it was never installed."""
    row = first_row(
        connection,
        "SELECT scope, org_id, project_id, commit_id, etag, server_updated_at "
        "FROM cached_refs WHERE ref_key = ?",
        (ref_key,),
    )
    return None if row is None else InstalledRef(*row)


def require_project_ref(connection: apsw.Connection, project_id: str) -> InstalledRef:
    """The project's Ref; raises NotReady("project_ref_not_synced") where there is none yet."""
    found = read_ref(connection, project_key(project_id))
    if found is None:
        raise NotReady(
            "project_ref_not_synced",
            f"Nothing of the project {project_id} is on this machine yet; wait for the next sync.",
            {"project_id": project_id},
        )
    return found


def organization_commit(connection: apsw.Connection, project_id: str) -> str | None:
    """The commit of the Organization Ref that the project belongs to; None without one."""
    project = read_ref(connection, project_key(project_id))
    if project is None:
        return None
    organization = read_ref(connection, organization_key(project.org_id))
    return None if organization is None else organization.commit_id


def move_ref(connection: apsw.Connection, ref: InstalledRef, now: str) -> bool:
    """Install a Ref whose objects are kept; whether its commit changed.

    Every draft of its scope learns the new commit, and every project it shows in is to be indexed.
    """
    old = read_ref(connection, ref.key)
    connection.execute(
        "INSERT OR REPLACE INTO cached_refs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ref.key,
            MAIN_REF,
            ref.scope,
            ref.org_id,
            ref.project_id,
            ref.commit_id,
            ref.etag,
            ref.server_updated_at,
            now,
        ),
    )
    changed = old is None or old.commit_id != ref.commit_id
    if changed:
        projects = _projects_of(connection, ref)
        for project_id in projects:
            _coordinate_drafts(connection, project_id, ref.scope, ref.commit_id)
            request_build(connection, project_id)
    return changed


def _projects_of(connection: apsw.Connection, ref: InstalledRef) -> list[str]:
    if ref.project_id is not None:
        return [ref.project_id]
    rows = all_rows(
        connection,
        "SELECT project_id FROM cached_refs WHERE scope = 'project' AND org_id = ? "
        "ORDER BY project_id",
        (ref.org_id,),
    )
    return [str(row[0]) for row in rows]


def _coordinate_drafts(
    connection: apsw.Connection, project_id: str, scope: str, commit_id: str | None
) -> None:
    drafts = all_rows(
        connection,
        "SELECT draft_id, base_commit_id, target_id FROM local_drafts WHERE project_id = ? "
        f"AND resource_scope = ? AND {ACTIVE} AND current_commit_id IS NOT ?",
        (project_id, scope, commit_id),
    )
    commits = _Commits(connection)
    for draft_id, base, target in drafts:
        _coordinate(connection, commits, (draft_id, base, target), commit_id)


def coordinate_draft(connection: apsw.Connection, draft_id: str, commit_id: str | None) -> None:
    """Note that the Ref of the draft's scope stands at `commit_id`: freshness, and whether the
    draft's resource changed since its base. What was known of a reconciliation is void."""
    row = first_row(
        connection,
        "SELECT draft_id, base_commit_id, target_id FROM local_drafts WHERE draft_id = ?",
        (draft_id,),
    )
    if row is not None:
        _coordinate(connection, _Commits(connection), (row[0], row[1], row[2]), commit_id)


def _coordinate(
    connection: apsw.Connection,
    commits: _Commits,
    draft: tuple[str, str | None, str | None],
    commit_id: str | None,
) -> None:
    draft_id, base, target = draft
    is_current = base == commit_id
    upstream = not is_current and commits.at(base, target) != commits.at(commit_id, target)
    connection.execute(
        "UPDATE local_drafts SET current_commit_id = ?, freshness = ?, "
        "has_upstream_resource_changes = ?, reconciliation = 'unknown', "
        "reconciliation_candidate_id = NULL WHERE draft_id = ?",
        (commit_id, "current" if is_current else "behind", int(upstream), draft_id),
    )


class _Commits:
    """Where resources stand in commits; each commit is read once."""

    def __init__(self, connection: apsw.Connection):
        self._connection = connection
        self._read: dict[str, dict[str, tuple[str | None, str]]] = {}

    def at(self, commit_id: str | None, target_id: str | None) -> tuple[str | None, str] | None:
        """(path, blob id) of a resource in a commit; None where it is not in it."""
        if commit_id is None or target_id is None:
            return None
        if commit_id not in self._read:
            commit = read_commit(self._connection, commit_id)
            tree = [] if commit is None else read_tree(self._connection, commit.tree_id)
            self._read[commit_id] = {entry.item_id: (entry.path, entry.blob_id) for entry in tree}
        return self._read[commit_id].get(target_id)


def needed_commits(connection: apsw.Connection, project_id: str) -> set[str | None]:
    """Commits whose generation must stay: the project's Ref and every active draft's base."""
    rows = all_rows(
        connection,
        "SELECT commit_id FROM cached_refs WHERE ref_key = ? UNION "
        f"SELECT base_commit_id FROM local_drafts WHERE project_id = ? AND {ACTIVE} "
        "AND base_commit_id IS NOT NULL",
        (project_key(project_id), project_id),
    )
    return {row[0] for row in rows}
