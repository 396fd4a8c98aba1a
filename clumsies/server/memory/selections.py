"""What of the organisation's memory a project has, as its people see and change it."""

from __future__ import annotations

from collections.abc import Iterable

from clumsies.api.projects import OrgSelection
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.memory.memories import require_memories, selected_memories
from clumsies.server.memory.projects import require_project, require_project_admin
from clumsies.server.memory.publication import publish_project
from clumsies.server.memory.refs import org_key, read_ref
from clumsies.server.memory.selection_rows import (
    SelectionChange,
    change_selection,
    count_revisions,
    read_selections,
)
from clumsies.server.refusals import check_version


def get_selection(act: Act, project_id: str) -> OrgSelection:
    """A project's selection; raises NotFound("not_found")."""
    require_project(act, project_id)
    return _message(act, project_id)


def replace_selection(
    act: Act, project_id: str, expected_revision: int, resource_ids: Iterable[str]
) -> OrgSelection:
    """Let a project have these memories, in a commit of it; the same as before is no change.

    Raises Refused("forbidden") for others than its admins and the organisation's,
    Conflict("version_conflict"), and InvalidRequest for an id of no memory.
    """
    read_ref(act, org_key(act.principal.org_id), lock=True)
    require_project_admin(act, project_id)
    old = read_selections(act, [project_id])[project_id]
    check_version("org_selection", expected_revision, old.revision)
    wanted = frozenset(resource_ids)
    require_memories(act, sorted(wanted))
    added, removed = wanted - old.resource_ids, old.resource_ids - wanted
    if change_selection(act, SelectionChange(project_id, added, removed)):
        count_revisions(act, [project_id])
        commit = publish_project(act, project_id)
        audit.record(
            act,
            "project.selection_replaced",
            "project",
            project_id,
            added=len(added),
            removed=len(removed),
            revision=old.revision + 1,
            commit_id=commit.commit_id if commit else None,
        )
    return _message(act, project_id)


def _message(act: Act, project_id: str) -> OrgSelection:
    revision = read_selections(act, [project_id])[project_id].revision
    return OrgSelection(
        project_id=project_id, memories=selected_memories(act, project_id), revision=revision
    )
