"""What the Server says of a draft, brought into the draft that is kept here.

The Server's operations stand first and in its order; operations that it has not confirmed stay
after them, whatever it says, or go on in a draft of their own (`carried_drafts`). An operation is
the same by the Server's id, else by the local one, else, where the Server knows no local id, by
its content. Row ids only grow: where the order changes, rows are written anew, so a draft's
revision never comes back.

A merged draft goes on lying over the memory here until the commit that has it is installed
(`merged_drafts`): there is no moment in which its text is nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from clumsies.api.drafts import DraftDetail, StoredOperation
from clumsies.api.operations import from_wire
from clumsies.errors import Conflict, InvalidRequest
from clumsies.memory.draft_rows import Draft, find_server_draft, read_draft
from clumsies.memory.index_jobs import request_build
from clumsies.memory.operations import (
    Create,
    Rename,
    StoreOperation,
    check_content,
    encode_operation,
)
from clumsies.memory.overlay import DraftedMemory, DraftIdentity, apply_operations
from clumsies.memory.paths import check_path
from clumsies.memory.refs import coordinate_draft, organization_commit
from clumsies.storage.object_store import read_commit, read_tree
from clumsies.storage.objects import MEMORY
from clumsies.storage.tree_paths import is_cache_component
from clumsies.sync.accounts import broken
from clumsies.sync.carried_drafts import Place, carry_pending, close_pending, fail_pending
from clumsies.sync.operation_rows import (
    LocalOperation,
    delete_operation,
    local_operations,
    mark_synced,
    move_to_end,
    path_after,
)


@dataclass(frozen=True, slots=True)
class _Stated:
    """An operation as the Server states it, with its stored form."""

    stored: StoredOperation
    operation: StoreOperation


def project_draft(connection: apsw.Connection, detail: DraftDetail, now: str) -> str:
    """Bring a draft here to what the Server says of it; the draft's id here.

    Base commits of active drafts are here already. Raises SyncFailed("server_sync_failed") for
    what cannot be true; the caller's transaction keeps nothing of it then.
    """
    stated = _stated(detail)
    before = _find(connection, detail)
    if before is None:
        draft_id = _insert(connection, detail, stated)
    else:
        _check_same(before, detail)
        draft_id = before.draft_id
        if before.server_draft_id is None:
            _renew_discard(connection, draft_id, now)
    rewritten = False
    if detail.draft.status == "merged" and before is not None:
        _link_only(connection, draft_id, stated, now)
    else:
        rewritten = _project_operations(connection, draft_id, stated, now)
    _update(connection, draft_id, detail, stated, _status(connection, before, detail))
    _settle(connection, draft_id, before, detail, now)
    if rewritten or before is None or _differs(connection, before):
        request_build(connection, detail.draft.project_id)
    return draft_id


def _differs(connection: apsw.Connection, before: Draft) -> bool:
    after = read_draft(connection, before.draft_id)
    return after is None or (
        (after.status, after.base_commit_id, after.target_id, after.created_at)
        != (before.status, before.base_commit_id, before.target_id, before.created_at)
    )


def _stated(detail: DraftDetail) -> list[_Stated]:
    """The Server's operations, each checked as one that is stored here would be."""
    draft = detail.draft
    names = (draft.draft_id, draft.project_id)
    if not all(map(is_cache_component, names)) or draft.version < 1:
        raise broken("a draft has no usable id or version")
    found: list[_Stated] = []
    try:
        for stored in detail.operations:
            operation = from_wire(stored)
            part = operation.only()
            if isinstance(part, Create | Rename):
                check_path(part.path if isinstance(part, Create) else part.new_path)
            if stored.content is not None:
                check_content(stored.content.content)
            found.append(_Stated(stored, operation))
    except InvalidRequest as error:
        raise broken("an operation of a draft cannot be one", draft_id=draft.draft_id) from error
    if len({item.stored.operation_id for item in found}) != len(found):
        raise broken("an operation of a draft is there twice", draft_id=draft.draft_id)
    return found


def _find(connection: apsw.Connection, detail: DraftDetail) -> Draft | None:
    """The draft here: by the Server's id, else the one whose creation the Server repeats."""
    found = find_server_draft(connection, detail.draft.draft_id)
    if found is None and detail.draft.client_draft_id is not None:
        found = read_draft(connection, detail.draft.client_draft_id)
        if found is not None and found.server_draft_id is not None:
            raise broken("two drafts have one client's id", draft_id=detail.draft.draft_id)
    return found


def _check_same(draft: Draft, detail: DraftDetail) -> None:
    stated = detail.draft
    if (draft.project_id, draft.resource_scope) != (stated.project_id, stated.resource.scope):
        raise broken("a draft is another project's or scope's", draft_id=draft.draft_id)
    if stated.version < draft.server_version:
        raise broken(
            "a draft's version went back",
            draft_id=draft.draft_id,
            known=draft.server_version,
            stated=stated.version,
        )


def _renew_discard(connection: apsw.Connection, draft_id: str, now: str) -> None:
    """A draft that was given up unsent has reached the Server after all: it has to hear of it."""
    connection.execute(
        "UPDATE local_draft_operations SET sync_status = 'queued', updated_at = ? "
        "WHERE draft_id = ? AND sync_status = 'synced' "
        "AND json_extract(operation_json, '$.discard') IS NOT NULL",
        (now, draft_id),
    )


def _insert(connection: apsw.Connection, detail: DraftDetail, stated: Sequence[_Stated]) -> str:
    """A draft that another machine began. It has the same id on each, as a memory that it creates
    goes by that id until it is merged."""
    draft = detail.draft
    draft_id = draft.client_draft_id or draft.draft_id
    if not is_cache_component(draft_id) or read_draft(connection, draft_id) is not None:
        raise broken("a draft's id is another's", draft_id=draft.draft_id)
    connection.execute(
        "INSERT INTO local_drafts(draft_id, project_id, base_commit_id, resource_scope, "
        "resource_kind, target_id, path, status, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            draft_id,
            draft.project_id,
            draft.base_commit_id,
            draft.resource.scope,
            MEMORY,
            draft.resource.id,
            path_after(item.operation for item in stated) or draft.resource.path,
            draft.status,
            draft.created_at,
            draft.updated_at,
        ),
    )
    return draft_id


def _project_operations(
    connection: apsw.Connection, draft_id: str, stated: Sequence[_Stated], now: str
) -> bool:
    """Make the rows the Server's operations and, after them, what it has not confirmed; whether
    anything but their synchronization changed."""
    rows = local_operations(connection, draft_id)
    links = _links(rows, stated)
    linked = {row.rowid for row in links if row is not None}
    others = [row for row in rows if row.rowid not in linked]
    gone = [row for row in others if row.server_operation_id is not None]
    for row in gone:
        delete_operation(connection, row)
    rewritten, last = bool(gone), 0
    for item, found in zip(stated, links, strict=True):
        if found is None:
            last, rewritten = _insert_stated(connection, draft_id, item, now), True
            continue
        mark_synced(connection, found, item.stored.operation_id, now)
        last, moved = _after(connection, found, last)
        rewritten = rewritten or moved
    for row in others:
        if row.server_operation_id is None:
            last, moved = _after(connection, row, last)
            rewritten = rewritten or moved
    return rewritten


def _after(connection: apsw.Connection, row: LocalOperation, last: int) -> tuple[int, bool]:
    """Have the row stand after row id `last`; its row id then, and whether it was moved."""
    if row.rowid > last:
        return row.rowid, False
    return move_to_end(connection, row), True


def _link_only(
    connection: apsw.Connection, draft_id: str, stated: Sequence[_Stated], now: str
) -> None:
    """Note which operations a merge took with it, and leave the text as it is shown."""
    rows = local_operations(connection, draft_id)
    for item, row in zip(stated, _links(rows, stated), strict=True):
        if row is not None:
            mark_synced(connection, row, item.stored.operation_id, now)


def _links(
    rows: Sequence[LocalOperation], stated: Sequence[_Stated]
) -> list[LocalOperation | None]:
    """For each of the Server's operations the row that is the same, each row at most once."""
    by_server = {row.server_operation_id: row for row in rows if row.server_operation_id}
    free = {
        row.local_operation_id: row
        for row in rows
        if row.server_operation_id is None and not row.is_discard
    }
    found: list[LocalOperation | None] = []
    for item in stated:
        row = by_server.get(item.stored.operation_id)
        local_id = item.stored.local_operation_id
        if row is None and local_id is not None:
            row = free.pop(local_id, None)
        elif row is None:
            key = _content_key(item.operation)
            row = next((r for r in free.values() if _content_key(r.operation) == key), None)
            if row is not None:
                del free[row.local_operation_id]
        found.append(row)
    return found


def _content_key(operation: StoreOperation) -> tuple[str | None, ...]:
    """What makes two operations the same change."""
    part = operation.only()
    name = type(part).__name__
    if isinstance(part, Create):
        return (name, part.path, part.content.content)
    if isinstance(part, Rename):
        return (name, part.id, part.new_path)
    content = getattr(part, "content", None)
    return (name, part.id, None if content is None else content.content)


def _insert_stated(connection: apsw.Connection, draft_id: str, item: _Stated, now: str) -> int:
    name = item.stored.operation_id
    text = encode_operation(item.operation).decode("utf-8")
    connection.execute(
        "INSERT INTO local_draft_operations(local_operation_id, draft_id, server_operation_id, "
        "resource_kind, operation_json, source, sync_status, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, 'server', 'synced', ?, ?)",
        (f"server_{name}", draft_id, name, MEMORY, text, item.stored.created_at, now),
    )
    return int(connection.last_insert_rowid())


def _status(connection: apsw.Connection, before: Draft | None, detail: DraftDetail) -> str:
    """The draft's status here: a discard that is on its way counts, and a merged draft is shown
    until its commit is here."""
    stated = detail.draft.status
    if before is None or stated == "discarded":
        return stated
    rows = local_operations(connection, before.draft_id)
    if any(row.is_discard and row.is_pending for row in rows):
        return "merged" if stated == "merged" else "discarded"
    if stated == "merged" and before.is_active:
        return before.status
    return stated


def _update(
    connection: apsw.Connection,
    draft_id: str,
    detail: DraftDetail,
    stated: Sequence[_Stated],
    status: str,
) -> None:
    """The draft's own columns. While a merged draft is shown, its base stays what it is."""
    draft = detail.draft
    shown = draft.status == "merged" and status != "merged"
    pending = [row for row in local_operations(connection, draft_id) if row.is_pending]
    path = path_after(item.operation for item in stated) or draft.resource.path
    connection.execute(
        "UPDATE local_drafts SET server_draft_id = ?, server_version = ?, server_status = ?, "
        "merged_resource_id = ?, base_commit_id = CASE WHEN ? THEN base_commit_id ELSE ? END, "
        "target_id = ifnull(?, target_id), path = ifnull(?, path), status = ?, "
        "created_at = ?, updated_at = max(updated_at, ?) WHERE draft_id = ?",
        (
            draft.draft_id,
            draft.version,
            draft.status,
            draft.resource.id if draft.status == "merged" else None,
            int(shown),
            draft.base_commit_id,
            None if shown else draft.resource.id,
            path_after(row.operation for row in pending) or path,
            status,
            draft.created_at,
            draft.updated_at,
            draft_id,
        ),
    )


def _settle(
    connection: apsw.Connection,
    draft_id: str,
    before: Draft | None,
    detail: DraftDetail,
    now: str,
) -> None:
    """What follows from where the draft stands now: for its distance from the Ref, and for
    operations that the Server has not confirmed and that have no place in it any more."""
    draft = read_draft(connection, draft_id)
    assert draft is not None
    stands = _base(connection, draft) is not None
    place = Place(draft.base_commit_id, draft.target_id if stands else None)
    if detail.draft.status == "discarded" or draft.status == "merged":
        if any(row.is_discard for row in local_operations(connection, draft_id)):
            close_pending(connection, draft_id, now)
            return
        if before is not None and before.is_active:
            carry_pending(connection, draft, place, now)
        fail_pending(connection, draft_id, now)
    elif draft.is_active and detail.draft.status != "merged":
        if not _applies(connection, draft):
            carry_pending(connection, draft, place, now)
            if not _applies(connection, draft):
                raise broken("a draft's operations cannot be applied", draft_id=draft_id)
        _coordinate(connection, draft, detail)


def _applies(connection: apsw.Connection, draft: Draft) -> bool:
    """Whether every operation finds the memory it needs. Texts play no part in that."""
    identity = DraftIdentity(
        draft.draft_id, draft.resource_scope, draft.target_id, draft.path, draft.base_commit_id
    )
    operations = [row.operation for row in local_operations(connection, draft.draft_id)]
    try:
        apply_operations(identity, _base(connection, draft), operations)
    except Conflict:
        return False
    return True


def _base(connection: apsw.Connection, draft: Draft) -> DraftedMemory | None:
    commit = read_commit(connection, draft.base_commit_id or "")
    if commit is None or draft.target_id is None:
        return None
    for entry in read_tree(connection, commit.tree_id):
        if entry.item_id == draft.target_id:
            return DraftedMemory(entry.item_id, entry.path or "", "-", "", entry.scope, None)
    return None


def _coordinate(connection: apsw.Connection, draft: Draft, detail: DraftDetail) -> None:
    """How far the draft is from the Ref that is installed here; what the Server knows of a
    reconciliation counts where it speaks of the same commit."""
    installed = organization_commit(connection, draft.project_id)
    coordinate_draft(connection, draft.draft_id, installed)
    told = detail.draft.coordination
    pending = any(row.is_pending for row in local_operations(connection, draft.draft_id))
    if told.current_commit_id == installed and not pending:
        connection.execute(
            "UPDATE local_drafts SET reconciliation = ?, reconciliation_candidate_id = ? "
            "WHERE draft_id = ?",
            (told.reconciliation, told.candidate_id, draft.draft_id),
        )
