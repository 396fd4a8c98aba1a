"""The end of merged drafts: they leave the overlay in the transaction that installs their commit.

The Server moves its Refs in the transaction of the merge. So a commit-state that was asked for
after a draft was seen as merged names a commit that has it, or a later one.
"""

from __future__ import annotations

import apsw

from clumsies.memory.draft_rows import Draft, read_draft
from clumsies.memory.index_jobs import request_build
from clumsies.memory.refs import ACTIVE, organization_commit
from clumsies.storage.database import all_rows
from clumsies.storage.object_store import read_commit, read_tree
from clumsies.sync.carried_drafts import Place, carry_pending, fail_pending
from clumsies.sync.operation_rows import local_operations, path_after

AWAITING_COMMIT = f"server_status = 'merged' AND {ACTIVE}"


def awaiting_commit(connection: apsw.Connection, project_id: str) -> list[str]:
    """Drafts of the project that were merged and are still shown, in order."""
    rows = all_rows(
        connection,
        f"SELECT draft_id FROM local_drafts WHERE project_id = ? AND {AWAITING_COMMIT} "
        "ORDER BY created_at, draft_id",
        (project_id,),
    )
    return [str(row[0]) for row in rows]


def settle_merged(connection: apsw.Connection, draft_id: str, now: str) -> None:
    """Take a merged draft out of the overlay, now that its commit is installed.

    Operations that were stored after the merge go on in a new draft on that commit.
    """
    draft = read_draft(connection, draft_id)
    if draft is None or not draft.is_active:
        return
    base = organization_commit(connection, draft.project_id)
    carry_pending(connection, draft, Place(base, _merged_as(connection, draft, base)), now)
    fail_pending(connection, draft_id, now)
    connection.execute(
        "UPDATE local_drafts SET status = 'merged', "
        "target_id = ifnull(merged_resource_id, target_id), updated_at = ? WHERE draft_id = ?",
        (now, draft_id),
    )
    request_build(connection, draft.project_id)


def _merged_as(connection: apsw.Connection, draft: Draft, base: str | None) -> str | None:
    """The id under which the commit has the draft's memory; None where it has it no more."""
    commit = read_commit(connection, base or "")
    if commit is None:
        return None
    [(named,)] = all_rows(
        connection,
        "SELECT ifnull(merged_resource_id, target_id) FROM local_drafts WHERE draft_id = ?",
        (draft.draft_id,),
    )
    rows = local_operations(connection, draft.draft_id)
    path = path_after(row.operation for row in rows if not row.is_pending)
    entries = [entry for entry in read_tree(connection, commit.tree_id) if entry.is_memory]
    for entry in entries:
        if entry.item_id == named:
            return entry.item_id
    found = [entry.item_id for entry in entries if named is None and entry.path == path]
    return found[0] if found else None
