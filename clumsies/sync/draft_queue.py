"""Sending what was stored here, in order, so that each operation arrives exactly once.

| from | to | when |
| --- | --- | --- |
| queued | syncing | its request begins |
| syncing | synced | the Server has it |
| syncing | retrying | nobody knows whether the Server has it; it is sent again as it was |
| syncing | failed | the Server refused it; only `revive` sends it again |
| syncing | queued | the process ended meanwhile |
| retrying | queued | the next interval, a retry, another configuration |

A repeat is safe: the draft's creation goes by the draft's id here, every operation by its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import apsw
import msgspec

from clumsies.api.drafts import (
    BatchAnswer,
    BatchOperation,
    CreateDraft,
    DraftDetail,
    OperationBatch,
    ResourceReference,
)
from clumsies.api.operations import to_wire
from clumsies.errors import ClumsiesError
from clumsies.memory.draft_rows import Draft, read_draft
from clumsies.storage.database import first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import read_commit, read_tree
from clumsies.storage.timestamps import row_time
from clumsies.sync.accounts import Account, broken, is_uncertain
from clumsies.sync.answers import MAX_COMMIT_BODY_BYTES
from clumsies.sync.draft_projection import project_draft
from clumsies.sync.operation_rows import LocalOperation, local_operations, mark_synced

MAX_BATCH_OPERATIONS = 50
MAX_BATCH_BYTES = 2 * 1024 * 1024
"""Of the operations of one batch; one alone may be larger."""
FetchBases = Callable[[Collection[DraftDetail]], None]
_MAX_TITLE = 300


@dataclass(frozen=True, slots=True)
class _Turn:
    """What is sent next: operations of one draft that stand one after the other."""

    draft: Draft
    operations: Sequence[LocalOperation]


class DraftQueue:
    """One account's queue. `fetch_bases` brings base commits here that drafts need."""

    def __init__(
        self,
        database: LocalDatabase,
        account: Account,
        fetch_bases: FetchBases,
        clock_ns: Callable[[], int],
    ):
        self._database = database
        self._account = account
        self._fetch_bases = fetch_bases
        self._clock_ns = clock_ns
        self._one_by_one: set[str] = set()

    def drain(self, project_ids: Sequence[str]) -> None:
        """Send everything that is queued in these projects.

        What the Server refuses fails and the others go on. Raises the error of a request whose
        outcome is unknown; what was not reached then stays queued.
        """
        self._one_by_one.clear()
        while (turn := self._next(project_ids)) is not None:
            first = turn.operations[0]
            if first.is_discard:
                self._discard(turn)
            elif turn.draft.server_draft_id is None:
                self._create(turn)
            else:
                self._append(turn)

    def _now(self) -> str:
        return row_time(self._clock_ns())

    def _next(self, project_ids: Sequence[str]) -> _Turn | None:
        """The operation that waits longest and may go, with those after it, marked `syncing`."""
        names = (msgspec.json.encode(list(project_ids)).decode(),)
        with self._database.reader() as connection:  # an empty queue costs no write
            if first_row(connection, _NEXT, names) is None:
                return None
        with self._database.writer() as connection:
            row = first_row(connection, _NEXT, names)
            if row is None:
                return None
            draft = read_draft(connection, str(row[0]))
            assert draft is not None
            rows = local_operations(connection, draft.draft_id)
            start = next(i for i, r in enumerate(rows) if r.local_operation_id == row[1])
            operations = self._together(draft, rows[start:])
            self._mark(connection, operations, "syncing", None)
        return _Turn(draft, operations)

    def _together(self, draft: Draft, rows: Sequence[LocalOperation]) -> list[LocalOperation]:
        """As many operations as one request takes."""
        taken = [rows[0]]
        alone = draft.server_draft_id is None or draft.draft_id in self._one_by_one
        if alone or rows[0].is_discard:
            return taken
        size_bytes = len(rows[0].operation_json)
        for row in rows[1:MAX_BATCH_OPERATIONS]:
            size_bytes += len(row.operation_json)
            if row.is_discard or row.sync_status != "queued" or size_bytes > MAX_BATCH_BYTES:
                break
            taken.append(row)
        return taken

    def _create(self, turn: _Turn) -> None:
        """The first operation begins the draft. Its request is the same each time it is sent."""
        draft, [first] = turn.draft, turn.operations
        part = first.operation
        with self._database.reader() as connection:
            place = _base_path(connection, draft)
        path = part.create.path if part.create is not None else place
        reference = ResourceReference(
            scope=draft.resource_scope,
            id=draft.target_id,
            path=path if draft.target_id is None else None,
        )
        request = CreateDraft(
            daemon_installation_id=self._database.installation_id,
            project_id=draft.project_id,
            base_commit_id=draft.base_commit_id,
            title=f"Draft for {path or draft.target_id}"[:_MAX_TITLE],
            resource=reference,
            operations=[to_wire(part, draft.resource_scope, first.local_operation_id)],
            client_draft_id=draft.draft_id,
        )
        try:
            detail = self._account.client.call("POST", "/api/v1/drafts", DraftDetail, json=request)
            if detail.draft.client_draft_id not in (None, draft.draft_id):
                raise broken("another draft was created", draft_id=draft.draft_id)
            self._project(detail, draft.draft_id)
        except ClumsiesError as error:
            self._refused(turn, error)

    def _append(self, turn: _Turn) -> None:
        error = self._sent(turn)
        if error is None:
            return
        turn, changed = self._reread(turn, error)
        if not turn.operations:
            return
        if error.code == "version_conflict" and changed:
            again = self._sent(turn)
            if again is None:
                return
            if again.code == "version_conflict":
                self._set(turn, "retrying", again.code)
                return
            error = again
        if len(turn.operations) > 1:
            self._one_by_one.add(turn.draft.draft_id)
            self._set(turn, "queued", None)
        else:
            self._set(turn, "failed", error.code)

    def _sent(self, turn: _Turn) -> ClumsiesError | None:
        """Send operations to a draft that is there; what the Server refused them with.

        Raises what leaves it unknown whether they arrived.
        """
        draft = turn.draft
        server_draft_id = str(draft.server_draft_id)
        batch = OperationBatch(
            daemon_installation_id=self._database.installation_id,
            operations=[
                BatchOperation(
                    local_operation_id=row.local_operation_id,
                    draft_id=server_draft_id,
                    expected_draft_version=draft.server_version + place,
                    operation=to_wire(row.operation, draft.resource_scope, row.local_operation_id),
                )
                for place, row in enumerate(turn.operations)
            ],
        )
        try:
            answer = self._account.client.call(
                "POST", "/api/v1/draft-operation-batches", BatchAnswer, json=batch
            )
            self._accepted(turn, answer)
        except ClumsiesError as error:
            if not is_uncertain(error):
                return error
            self._set(turn, "retrying", error.code)
            raise
        return None

    def _accepted(self, turn: _Turn, answer: BatchAnswer) -> None:
        draft, sent = turn.draft, turn.operations
        told = answer.accepted_operations
        names = [(row.local_operation_id, draft.server_draft_id) for row in sent]
        if [(item.local_operation_id, item.draft_id) for item in told] != names:
            raise broken("it accepted other operations than were sent", draft_id=draft.draft_id)
        version = told[-1].draft_version
        if version < draft.server_version:
            raise broken("a draft's version went back", draft_id=draft.draft_id)
        now = self._now()
        with self._database.writer() as connection:
            for row, item in zip(sent, told, strict=True):
                mark_synced(connection, row, item.operation_id, now)
            connection.execute(
                "UPDATE local_drafts SET server_version = max(server_version, ?) "
                "WHERE draft_id = ?",
                (version, draft.draft_id),
            )

    def _reread(self, turn: _Turn, refusal: ClumsiesError) -> tuple[_Turn, bool]:
        """The turn after the Server was asked what the draft is now: without the operations that
        it has or that moved to another draft; and whether the draft's version was another."""
        draft = turn.draft
        try:
            detail = self._detail(str(draft.server_draft_id))
            self._project(detail, draft.draft_id)
        except ClumsiesError as error:
            if is_uncertain(error):
                self._set(turn, "retrying", error.code)
                raise
            self._set(turn, "failed", refusal.code)
            return _Turn(draft, ()), False
        with self._database.reader() as connection:
            now = read_draft(connection, draft.draft_id)
            rows = local_operations(connection, draft.draft_id)
        assert now is not None
        names = {row.local_operation_id for row in turn.operations}
        left = [row for row in rows if row.local_operation_id in names and row.is_pending]
        left = [row for row in left if row.sync_status == "syncing"]
        if detail.draft.status == "merged" and left:
            self._set(_Turn(now, left), "queued", None)  # for `merged_drafts`
            return _Turn(now, ()), True
        return _Turn(now, left), now.server_version != draft.server_version

    def _discard(self, turn: _Turn) -> None:
        draft = turn.draft
        if draft.server_draft_id is None:
            self._given_up(draft)
            return
        error = self._deleted(turn, draft)
        if error is None:
            return
        turn, changed = self._reread(turn, error)
        if turn.operations and error.code == "version_conflict" and changed:
            error = self._deleted(turn, turn.draft)
        if turn.operations and error is not None:
            status = "retrying" if error.code == "version_conflict" else "failed"
            self._set(turn, status, error.code)

    def _deleted(self, turn: _Turn, draft: Draft) -> ClumsiesError | None:
        try:
            detail = self._account.client.call(
                "DELETE",
                f"/api/v1/drafts/{quote(str(draft.server_draft_id))}",
                DraftDetail,
                headers={"if-match": str(draft.server_version)},
                max_bytes=MAX_COMMIT_BODY_BYTES,
            )
            if detail.draft.status != "discarded":
                raise broken("a draft that was discarded is not", draft_id=draft.draft_id)
            self._project(detail, draft.draft_id)
        except ClumsiesError as error:
            if not is_uncertain(error):
                return error
            self._set(turn, "retrying", error.code)
            raise
        return None

    def _given_up(self, draft: Draft) -> None:
        """The Server never took the draft, so it need not hear of its end."""
        with self._database.writer() as connection:
            connection.execute(
                "UPDATE local_draft_operations SET sync_status = 'synced', last_error = NULL, "
                "updated_at = ? WHERE draft_id = ? AND sync_status <> 'synced'",
                (self._now(), draft.draft_id),
            )

    def _detail(self, server_draft_id: str) -> DraftDetail:
        return self._account.client.call(
            "GET",
            f"/api/v1/drafts/{quote(server_draft_id)}",
            DraftDetail,
            max_bytes=MAX_COMMIT_BODY_BYTES,
        )

    def _project(self, detail: DraftDetail, draft_id: str) -> None:
        """Keep what the Server says of a draft that is here."""
        self._fetch_bases([detail])
        with self._database.writer() as connection:
            if project_draft(connection, detail, self._now()) != draft_id:
                raise broken("it answered with another draft", draft_id=draft_id)

    def _refused(self, turn: _Turn, error: ClumsiesError) -> None:
        if is_uncertain(error):
            self._set(turn, "retrying", error.code)
            raise error
        self._set(turn, "failed", error.code)

    def _set(self, turn: _Turn, status: str, code: str | None) -> None:
        with self._database.writer() as connection:
            self._mark(connection, turn.operations, status, code)

    def _mark(
        self,
        connection: apsw.Connection,
        operations: Sequence[LocalOperation],
        status: str,
        code: str | None,
    ) -> None:
        """Note how far operations are; one that is synced by now stays so."""
        now = self._now()
        connection.executemany(
            "UPDATE local_draft_operations SET sync_status = ?, last_error = ?, updated_at = ? "
            "WHERE local_operation_id = ? AND sync_status <> 'synced'",
            [(status, code, now, row.local_operation_id) for row in operations],
        )


_IS_DISCARD = "json_extract(o.operation_json, '$.discard') IS NOT NULL"
_NEXT = (
    "SELECT o.draft_id, o.local_operation_id FROM local_draft_operations o "
    "JOIN local_drafts d USING (draft_id) WHERE o.sync_status = 'queued' "
    "AND d.project_id IN (SELECT value FROM json_each(?)) "
    f"AND (d.server_status IS NOT 'merged' OR {_IS_DISCARD}) "
    "AND NOT EXISTS (SELECT 1 FROM local_draft_operations e WHERE e.draft_id = o.draft_id "
    "AND e.operation_rowid < o.operation_rowid AND e.sync_status <> 'synced' "
    f"AND NOT (e.sync_status = 'failed' AND {_IS_DISCARD})) "
    "ORDER BY o.created_at, o.operation_rowid LIMIT 1"
)
"""A draft's operations go in order; a discard also passes those that the Server refused."""


def _base_path(connection: apsw.Connection, draft: Draft) -> str | None:
    """Where the draft's base has its memory: the same however often the draft is renamed."""
    commit = read_commit(connection, draft.base_commit_id or "")
    entries = [] if commit is None else read_tree(connection, commit.tree_id)
    return next((entry.path for entry in entries if entry.item_id == draft.target_id), None)


def requeue(
    database: LocalDatabase,
    statuses: Sequence[str],
    now: str,
    project_id: str | None = None,
    *,
    local: bool | None = None,
) -> int:
    """Queue operations of these states again, of one project or of all; how many. `local` takes
    those of local projects alone, or of the others alone."""
    with database.reader() as connection:  # an idle interval writes nothing
        if first_row(connection, _WAITING, (msgspec.json.encode(statuses).decode(),)) is None:
            return 0
    with database.writer() as connection:
        connection.execute(
            "UPDATE local_draft_operations SET sync_status = 'queued', updated_at = ?1 "
            "WHERE sync_status IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR draft_id IN "
            "(SELECT draft_id FROM local_drafts WHERE project_id = ?3)) AND (?4 IS NULL OR ?4 = "
            "(draft_id IN (SELECT draft_id FROM local_drafts JOIN local_projects "
            "USING (project_id))))",
            (now, msgspec.json.encode(statuses).decode(), project_id, local),
        )
        return int(connection.changes())


_WAITING = (
    "SELECT 1 FROM local_draft_operations WHERE sync_status <> 'synced' "
    "AND sync_status IN (SELECT value FROM json_each(?)) LIMIT 1"
)
