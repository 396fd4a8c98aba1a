"""Drafts as they are kept: reading them, and listing them page by page."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Literal

import apsw
import msgspec

from clumsies.errors import InvalidRequest, NotFound
from clumsies.memory.operations import StoreOperation, decode_operation
from clumsies.storage.database import SqlValue, all_rows, first_row
from clumsies.storage.local_database import LocalDatabase

DEFAULT_LIMIT = 100
MAX_LIMIT = 500
DraftStatus = Literal["open", "submitted", "merged", "discarded"]
SyncStatus = Literal["queued", "syncing", "retrying", "synced", "failed"]
STATUSES = ("open", "submitted", "merged", "discarded")

_COLUMNS = (
    "draft_id, project_id, server_draft_id, server_version, base_commit_id, current_commit_id, "
    "freshness, has_upstream_resource_changes, reconciliation, reconciliation_candidate_id, "
    "resource_scope, resource_kind, target_id, path, status, created_at, updated_at"
)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A draft without its operations. Without `target_id`, its own id is the resource's."""

    draft_id: str
    project_id: str
    server_draft_id: str | None
    server_version: int
    base_commit_id: str | None
    current_commit_id: str | None
    freshness: Literal["current", "behind"]
    has_upstream_resource_changes: bool
    reconciliation: Literal["unknown", "clean", "conflicts"]
    reconciliation_candidate_id: str | None
    resource_scope: Literal["org", "project"]
    resource_kind: str
    target_id: str | None
    path: str | None
    status: DraftStatus
    created_at: str
    updated_at: str

    @property
    def is_active(self) -> bool:
        """Whether it lies over the installed memory."""
        return self.status in ("open", "submitted")


class DraftOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a draft and how far its synchronization is."""

    local_operation_id: str
    server_operation_id: str | None
    op: StoreOperation
    source: Literal["desktop", "cli", "mcp_store", "server"]
    sync_status: SyncStatus
    last_error: str | None
    created_at: str


class DraftDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A draft with its operations in order."""

    draft: Draft
    operations: list[DraftOperation]


class DraftPage(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts, the latest changed first; `next_cursor` is None at the end."""

    drafts: list[Draft]
    next_cursor: str | None


class _Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    updated_at: str
    created_at: str
    draft_id: str


@dataclass(frozen=True, slots=True)
class DraftFilter:
    """Which drafts a list has; None means any."""

    project_id: str | None = None
    resource: str | None = None
    status: str | None = None


def read_draft(connection: apsw.Connection, draft_id: str) -> Draft | None:
    """The draft with this id, whatever its state."""
    row = first_row(
        connection, f"SELECT {_COLUMNS} FROM local_drafts WHERE draft_id = ?", (draft_id,)
    )
    return None if row is None else _draft(row)


def find_server_draft(connection: apsw.Connection, server_draft_id: str) -> Draft | None:
    """The draft that the Server knows by this id, whatever its state."""
    row = first_row(
        connection,
        f"SELECT {_COLUMNS} FROM local_drafts WHERE server_draft_id = ?",
        (server_draft_id,),
    )
    return None if row is None else _draft(row)


def find_active_draft(
    connection: apsw.Connection, project_id: str, name: str, scope: str = "org"
) -> Draft | None:
    """The project's newest active draft of this scope that has this id or this target."""
    row = first_row(
        connection,
        f"SELECT {_COLUMNS} FROM local_drafts WHERE project_id = ? "
        "AND resource_scope = ? AND status IN ('open', 'submitted') "
        "AND (draft_id = ? OR target_id = ?) "
        "ORDER BY created_at DESC, draft_id DESC LIMIT 1",
        (project_id, scope, name, name),
    )
    return None if row is None else _draft(row)


def get_draft(database: LocalDatabase, draft_id: str) -> DraftDetail:
    """A draft with its operations; raises NotFound("not_found")."""
    with database.reader() as connection:
        draft = read_draft(connection, draft_id)
        if draft is None:
            raise NotFound(
                "not_found", f"There is no draft {draft_id!a}; `clumsies drafts` lists them."
            )
        rows = all_rows(
            connection,
            "SELECT local_operation_id, server_operation_id, operation_json, source, sync_status, "
            "last_error, created_at FROM local_draft_operations WHERE draft_id = ? "
            "ORDER BY operation_rowid",
            (draft_id,),
        )
    return DraftDetail(draft=draft, operations=[_operation(row) for row in rows])


def list_drafts(
    database: LocalDatabase,
    wanted: DraftFilter | None = None,
    *,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> DraftPage:
    """Drafts in order of update (latest first), creation (latest first), id.

    Raises InvalidRequest for a limit outside 1..500 and a cursor that no page gave.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest("invalid_request", f"limit must be between 1 and {MAX_LIMIT}.")
    conditions, bindings = _conditions(wanted or DraftFilter())
    if cursor is not None:
        after = _decode_cursor(cursor)
        conditions.append(
            "(updated_at < ? OR (updated_at = ? AND (created_at < ? "
            "OR (created_at = ? AND draft_id > ?))))"
        )
        updated, created = after.updated_at, after.created_at
        bindings += [updated, updated, created, created, after.draft_id]
    where = " AND ".join(conditions) or "1"
    with database.reader() as connection:
        rows = all_rows(
            connection,
            f"SELECT {_COLUMNS} FROM local_drafts WHERE {where} "
            "ORDER BY updated_at DESC, created_at DESC, draft_id LIMIT ?",
            (*bindings, limit + 1),
        )
    drafts = [_draft(row) for row in rows[:limit]]
    more = len(rows) > limit
    return DraftPage(drafts=drafts, next_cursor=_encode_cursor(drafts[-1]) if more else None)


def _conditions(wanted: DraftFilter) -> tuple[list[str], list[SqlValue]]:
    if wanted.status is not None and wanted.status not in STATUSES:
        raise InvalidRequest("invalid_request", f"status must be one of {', '.join(STATUSES)}.")
    given = {
        "project_id = ?": wanted.project_id,
        "resource_kind = ?": wanted.resource,
        "status = ?": wanted.status,
    }
    kept = {sql: value for sql, value in given.items() if value is not None}
    return list(kept), list(kept.values())


def _encode_cursor(draft: Draft) -> str:
    place = _Cursor(draft.updated_at, draft.created_at, draft.draft_id)
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode("ascii").rstrip("=")


def _decode_cursor(cursor: str) -> _Cursor:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=_Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidRequest(
            "invalid_request", "The cursor is not one a list gave; send that, or none."
        ) from error


def _draft(row: tuple[object, ...]) -> Draft:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    values["has_upstream_resource_changes"] = bool(values["has_upstream_resource_changes"])
    return msgspec.convert(values, Draft)


def _operation(row: tuple[object, ...]) -> DraftOperation:
    local, server, text, source, status, error, created = row
    return msgspec.convert(
        {
            "local_operation_id": local,
            "server_operation_id": server,
            "op": msgspec.to_builtins(decode_operation(str(text).encode("utf-8"))),
            "source": source,
            "sync_status": status,
            "last_error": error,
            "created_at": created,
        },
        DraftOperation,
    )
