"""Storing: every change of a memory becomes an operation of a draft, durable before the answer.

One transaction does all of it: it looks at the memory as it is, finds or makes the draft, keeps
the operation, checks that the draft can still be applied, and asks for the index to follow. So two
changes can never meet unseen, and a crash leaves an operation whole or not at all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import apsw
import msgspec

from clumsies.errors import Conflict, InvalidRequest, NotFound, NotReady
from clumsies.memory.draft_rows import Draft, find_active_draft, read_draft
from clumsies.memory.effective import EffectiveMemory, draft_operations
from clumsies.memory.effective_view import EffectiveEntry, EffectiveView
from clumsies.memory.index_jobs import request_build
from clumsies.memory.operations import (
    Create,
    Delete,
    Discard,
    MemoryContent,
    Rename,
    StoreOperation,
    StoreRequest,
    Update,
    check_content,
    check_request,
    encode_operation,
)
from clumsies.memory.overlay import is_creation
from clumsies.memory.refs import coordinate_draft, organization_commit
from clumsies.memory.replacements import replace_text
from clumsies.storage.database import first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import has_commit
from clumsies.storage.timestamps import row_time
from clumsies.storage.tree_paths import collision_key


class StoreReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that an operation is on the disk."""

    local_operation_id: str
    draft_id: str
    queued: Literal[True] = True
    sync_status: Literal["queued"] = "queued"


def random_id(prefix: str) -> str:
    """`prefix`, `_` and 32 random hex digits."""
    return f"{prefix}_{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class _Moment:
    """One store: its transaction, its request and the memory it found."""

    connection: apsw.Connection
    request: StoreRequest
    view: EffectiveView
    now: str


_NO_VIEW = EffectiveView("", None, {})


class DraftStore:
    """Stores operations; any thread may use it, and they take turns."""

    def __init__(
        self,
        database: LocalDatabase,
        effective: EffectiveMemory,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        new_id: Callable[[str], str] = random_id,
    ):
        self._database = database
        self._effective = effective
        self._clock_ns = clock_ns
        self._new_id = new_id

    def store_draft_operation(self, request: StoreRequest) -> StoreReceipt:
        """Carry out one operation; when this returns, it is on the disk.

        Raises InvalidRequest (shape, path, text_replacement_*), NotFound
        ("memory_resource_not_found", "not_found"), Conflict ("memory_content_changed" where the
        text is no longer the one of expected_hash, "draft_conflict" where a path is taken or a
        base differs). Nothing was changed then.
        """
        check_request(request)
        with self._database.writer() as connection:
            now = row_time(self._clock_ns())
            if request.op.discard is not None:  # works whatever state the memory is in
                moment = _Moment(connection, request, _NO_VIEW, now)
                draft, operation = _discarded(moment, request.op.discard)
                operation_id = self._insert(moment, draft, operation)
            else:
                view = self._effective.view_in(connection, request.project_id)
                moment = _Moment(connection, request, view, now)
                draft, operation = self._resolve(moment)
                operation_id = self._insert(moment, draft, operation)
                self._effective.view_in(connection, request.project_id)  # refuses what cannot apply
            self._settle(moment, draft, operation)
            request_build(connection, request.project_id)
        return StoreReceipt(local_operation_id=operation_id, draft_id=draft.draft_id)

    def _resolve(self, moment: _Moment) -> tuple[Draft, StoreOperation]:
        """The draft that takes the operation, made where there is none, and its stored form."""
        part = moment.request.op.only()
        assert not isinstance(part, Discard)
        if moment.request.scope != "org":
            raise _invalid("Project memory is read-only; store into the scope org.")
        if isinstance(part, Create):
            return self._created(moment, part)
        entry = _target(moment.view, part.id)
        draft = self._draft_of(moment, entry)
        if isinstance(part, Update):
            content = self._updated(moment, entry, part)
            return draft, StoreOperation(update=Update(id=part.id, content=content))
        if isinstance(part, Rename):
            _check_rename(moment.view, entry, part)
            return draft, StoreOperation(rename=part)
        if is_creation([row[2] for row in draft_operations(moment.connection, draft.draft_id)]):
            # It was never proposed: it is taken back, not deleted.
            return draft, StoreOperation(discard=Discard(id=draft.draft_id))
        return draft, StoreOperation(delete=Delete(id=part.id, description=part.description))

    def _created(self, moment: _Moment, part: Create) -> tuple[Draft, StoreOperation]:
        _check_free(moment.view, part.path)
        description = part.content.description
        content = MemoryContent(
            content=part.content.content,
            description=part.description if description is None else description,
        )
        draft = self._new_draft(moment, target_id=None, path=part.path)
        return draft, StoreOperation(create=Create(path=part.path, content=content))

    def _updated(self, moment: _Moment, entry: EffectiveEntry, part: Update) -> MemoryContent:
        """The whole content after the update; its description None where that stays."""
        if part.expected_hash is not None and part.expected_hash != entry.content_hash:
            raise Conflict(
                "memory_content_changed",
                f"{entry.resource_id} changed since it was loaded; load it again and store what "
                "is still wanted.",
                {"id": entry.resource_id, "content_hash": entry.content_hash},
            )
        if part.content is not None:
            inner = part.content.description
            description = part.description if inner is None else inner
            return MemoryContent(content=part.content.content, description=description)
        original = self._effective.content_in(moment.connection, entry)
        text = replace_text(original, part.replacements or ())
        check_content(text)
        return MemoryContent(content=text, description=part.description)

    def _draft_of(self, moment: _Moment, entry: EffectiveEntry) -> Draft:
        """The draft named, or the active one of the resource, or a new one."""
        request = moment.request
        if request.draft_id is not None:
            draft = _active_draft(moment, request.draft_id)
            if entry.resource_id not in (draft.draft_id, draft.target_id, _shown_by(entry, draft)):
                raise _invalid(
                    f"The draft {draft.draft_id} is another memory's; leave draft_id out."
                )
        else:
            name = entry.draft_id or entry.resource_id
            found = find_active_draft(moment.connection, request.project_id, name)
            if found is None:
                self._check_shown(moment, entry)
                return self._new_draft(moment, entry.resource_id, entry.path)
            draft = found
        base = request.base_commit_id
        if base is not None and base != draft.base_commit_id:
            raise Conflict(
                "draft_conflict",
                f"The draft {draft.draft_id} stands on another base commit; leave base_commit_id "
                "out, or rebase the draft.",
                {"draft_id": draft.draft_id, "base_commit_id": draft.base_commit_id},
            )
        return draft

    def _check_shown(self, moment: _Moment, entry: EffectiveEntry) -> None:
        """Raise NotReady where the draft would begin with another state of the memory than the
        one that is shown: its text would take back what the team changed in between."""
        if moment.request.base_commit_id is not None:
            return
        project_id = moment.request.project_id
        installed = organization_commit(moment.connection, project_id)
        if not self._effective.shows_base(moment.connection, entry, installed):
            raise NotReady(
                "project_ref_not_synced",
                f"The project's memory is older than the team's, which has another state of "
                f"{entry.resource_id}; run `clumsies sync`, load it again and store then.",
                {"project_id": project_id, "id": entry.resource_id},
            )

    def _new_draft(self, moment: _Moment, target_id: str | None, path: str) -> Draft:
        connection, request = moment.connection, moment.request
        installed = organization_commit(connection, request.project_id)
        base = request.base_commit_id or installed
        if base is not None and not has_commit(connection, base):
            raise _invalid(
                "The base commit is not on this machine; leave base_commit_id out to use the "
                "installed one."
            )
        draft_id = self._new_id("draft")
        connection.execute(
            "INSERT INTO local_drafts(draft_id, project_id, base_commit_id, resource_scope, "
            "resource_kind, target_id, path, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                draft_id,
                request.project_id,
                base,
                request.scope,
                request.resource,
                target_id,
                path,
                moment.now,
                moment.now,
            ),
        )
        coordinate_draft(connection, draft_id, installed)
        draft = read_draft(connection, draft_id)
        assert draft is not None
        return draft

    def _insert(self, moment: _Moment, draft: Draft, operation: StoreOperation) -> str:
        operation_id = self._new_id("op")
        moment.connection.execute(
            "INSERT INTO local_draft_operations(local_operation_id, draft_id, resource_kind, "
            "operation_json, source, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                operation_id,
                draft.draft_id,
                moment.request.resource,
                encode_operation(operation).decode("utf-8"),
                moment.request.source,
                moment.now,
                moment.now,
            ),
        )
        return operation_id

    def _settle(self, moment: _Moment, draft: Draft, operation: StoreOperation) -> None:
        """The draft after its new operation: what a reconciliation knew is void."""
        part = operation.only()
        moment.connection.execute(
            "UPDATE local_drafts SET reconciliation = 'unknown', reconciliation_candidate_id = "
            "NULL, updated_at = ?, status = ?, path = ? WHERE draft_id = ?",
            (
                moment.now,
                "discarded" if isinstance(part, Discard) else draft.status,
                part.new_path if isinstance(part, Rename) else draft.path,
                draft.draft_id,
            ),
        )


def _target(view: EffectiveView, name: str) -> EffectiveEntry:
    """The memory an operation names by its stable id; a path is refused."""
    entry = view.entries.get(name)
    if entry is None and (found := view.find(name)) is not None:
        raise _invalid(f"{name!a} is a path; name the memory by its id, {found.resource_id}.")
    if entry is None:
        raise NotFound(
            "memory_resource_not_found",
            f"No memory has the id {name!a}; activate and load show the ids there are.",
            {"missing": [name]},
        )
    if entry.scope != "org":
        raise _invalid(f"{entry.resource_id} is legacy Project memory, which is read-only.")
    return entry


def _shown_by(entry: EffectiveEntry, draft: Draft) -> str | None:
    """The entry's id where it is this draft's result under a provisional id of its own."""
    return entry.resource_id if entry.draft_id == draft.draft_id else None


def _active_draft(moment: _Moment, draft_id: str) -> Draft:
    """The draft a request names; raises unless it is active and of the same kind of memory."""
    request = moment.request
    draft = read_draft(moment.connection, draft_id)
    if draft is None or draft.project_id != request.project_id:
        raise NotFound(
            "not_found", f"The project has no draft {draft_id!a}; `clumsies drafts` lists them."
        )
    if not draft.is_active:
        raise _invalid(f"The draft {draft_id} is {draft.status}; leave draft_id out.")
    if draft.resource_scope != request.scope or draft.resource_kind != request.resource:
        raise _invalid(f"The draft {draft_id} is of another scope or kind; leave draft_id out.")
    return draft


def _discarded(moment: _Moment, part: Discard) -> tuple[Draft, StoreOperation]:
    return _discarded_draft(moment, part), StoreOperation(discard=part)


def _discarded_draft(moment: _Moment, part: Discard) -> Draft:
    """The draft to give up: the one named by draft_id, else by the operation's id."""
    request = moment.request
    if request.draft_id is not None:
        draft = _active_draft(moment, request.draft_id)
        if part.id not in (draft.draft_id, draft.target_id):
            raise _invalid(f"The draft {draft.draft_id} is another memory's; leave draft_id out.")
        return draft
    found = find_active_draft(moment.connection, request.project_id, part.id)
    if found is None:
        raise NotFound(
            "not_found",
            f"The project has no open draft {part.id!a}; `clumsies drafts` lists them.",
        )
    return found


def _check_rename(view: EffectiveView, entry: EffectiveEntry, part: Rename) -> None:
    if part.new_path == entry.path:
        raise _invalid("The memory already has this path; there is nothing to store.")
    _check_free(view, part.new_path, except_id=entry.resource_id)


def _check_free(view: EffectiveView, path: str, except_id: str | None = None) -> None:
    """Raise Conflict("draft_conflict") where another memory's path is the same, or is a folder of
    `path` or in it as a folder."""
    key = collision_key(path)
    for entry in view.entries.values():
        other = collision_key(entry.path)
        if entry.resource_id == except_id:
            continue
        if other == key or other.startswith(f"{key}/") or key.startswith(f"{other}/"):
            raise Conflict(
                "draft_conflict",
                f"The path {path!a} is taken by {entry.resource_id} ({entry.path!a}); choose "
                "another path, or update that memory.",
                {"id": entry.resource_id, "path": entry.path},
            )


def count_pending(database: LocalDatabase, project_id: str) -> int:
    """Operations of the project's drafts that the Server has not confirmed."""
    with database.reader() as connection:
        row = first_row(
            connection,
            "SELECT count(*) FROM local_draft_operations JOIN local_drafts USING (draft_id) "
            "WHERE project_id = ? AND sync_status <> 'synced'",
            (project_id,),
        )
    return 0 if row is None else int(row[0])


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest("invalid_request", message)
