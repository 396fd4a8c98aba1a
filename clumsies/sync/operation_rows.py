"""Operations of drafts as they are kept here, and how far each has got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apsw

from clumsies.memory.operations import Create, Rename, StoreOperation, decode_operation
from clumsies.storage.database import all_rows, only_row

DRAFT_CONFLICT = "draft_conflict"


@dataclass(frozen=True, slots=True)
class LocalOperation:
    """A row of `local_draft_operations`."""

    rowid: int
    local_operation_id: str
    server_operation_id: str | None
    operation_json: str
    source: str
    sync_status: str
    last_error: str | None
    created_at: str

    @property
    def operation(self) -> StoreOperation:
        return decode_operation(self.operation_json.encode("utf-8"))

    @property
    def is_discard(self) -> bool:
        return self.operation.discard is not None

    @property
    def is_pending(self) -> bool:
        """Whether the Server has not confirmed it."""
        return self.sync_status != "synced"


def local_operations(connection: apsw.Connection, draft_id: str) -> list[LocalOperation]:
    """The operations of a draft, in order."""
    rows = all_rows(
        connection,
        "SELECT operation_rowid, local_operation_id, server_operation_id, operation_json, source, "
        "sync_status, last_error, created_at FROM local_draft_operations WHERE draft_id = ? "
        "ORDER BY operation_rowid",
        (draft_id,),
    )
    return [LocalOperation(*row) for row in rows]


def path_after(operations: Iterable[StoreOperation]) -> str | None:
    """Where the operations leave a memory, as far as they say."""
    path: str | None = None
    for operation in operations:
        part = operation.only()
        if isinstance(part, Create):
            path = part.path
        elif isinstance(part, Rename):
            path = part.new_path
    return path


def mark_synced(
    connection: apsw.Connection, row: LocalOperation, server_operation_id: str, now: str
) -> None:
    """Note that the Server has the operation, and under which id."""
    if row.server_operation_id == server_operation_id and not row.is_pending:
        return
    connection.execute(
        "UPDATE local_draft_operations SET server_operation_id = ?, sync_status = 'synced', "
        "last_error = NULL, updated_at = ? WHERE local_operation_id = ?",
        (server_operation_id, now, row.local_operation_id),
    )


def move_to_end(connection: apsw.Connection, row: LocalOperation) -> int:
    """Write the row anew under the next row id, which is returned."""
    columns = (
        "local_operation_id, draft_id, server_operation_id, resource_kind, operation_json, source, "
        "sync_status, last_error, created_at, updated_at"
    )
    values = only_row(
        connection,
        f"SELECT {columns} FROM local_draft_operations WHERE operation_rowid = ?",
        (row.rowid,),
    )
    delete_operation(connection, row)
    places = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO local_draft_operations({columns}) VALUES ({places})", values)
    return int(connection.last_insert_rowid())


def delete_operation(connection: apsw.Connection, row: LocalOperation) -> None:
    connection.execute("DELETE FROM local_draft_operations WHERE operation_rowid = ?", (row.rowid,))
