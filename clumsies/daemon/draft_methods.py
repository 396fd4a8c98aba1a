"""Handlers of drafts: storing, listing, showing."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from clumsies.daemon import messages as m
from clumsies.daemon.context import Handler, RequestContext
from clumsies.daemon.resident import Resident
from clumsies.memory import draft_rows
from clumsies.memory.operations import StoreOperation, StoreRequest


class DraftMethods:
    def __init__(self, resident: Resident):
        self._resident = resident

    def handlers(self) -> dict[str, Handler]:
        return {
            "store_draft_operation": self.store,
            "list_drafts": self.list,
            "get_draft": self.get,
        }

    def store(
        self, request: m.StoreDraftOperation, _context: RequestContext
    ) -> m.StoredDraftOperation:
        """Durable when it returns; the index follows."""
        self._resident.projects.project(request.project_id)
        base = request.base_commit_id
        receipt = self._resident.drafts.store_draft_operation(
            StoreRequest(
                project_id=request.project_id,
                op=msgspec.convert(msgspec.to_builtins(request.op), StoreOperation),
                source=request.source,
                draft_id=request.draft_id,
                base_commit_id=None if base is UNSET else base,
                scope=request.scope,
                resource=request.resource,
            )
        )
        self._resident.changed(request.project_id)
        return msgspec.convert(msgspec.to_builtins(receipt), m.StoredDraftOperation)

    def list(self, request: m.ListDrafts, _context: RequestContext) -> m.DraftPage:
        wanted = draft_rows.DraftFilter(request.project_id, request.resource, request.status)
        page = draft_rows.list_drafts(
            self._resident.database, wanted, cursor=request.cursor, limit=request.limit
        )
        return msgspec.convert(msgspec.to_builtins(page), m.DraftPage)

    def get(self, request: m.GetDraft, _context: RequestContext) -> m.DraftDetail:
        found = draft_rows.get_draft(self._resident.database, request.draft_id)
        return m.DraftDetail(
            draft=msgspec.convert(msgspec.to_builtins(found.draft), m.Draft),
            operations=[
                m.RecordedOperation(
                    local_operation_id=operation.local_operation_id,
                    resource_kind=found.draft.resource_kind,
                    operation=msgspec.to_builtins(operation.op),
                    source=operation.source,
                    sync_status=operation.sync_status,
                    created_at=operation.created_at,
                    updated_at=operation.created_at,
                    server_operation_id=operation.server_operation_id,
                    last_error=operation.last_error,
                )
                for operation in found.operations
            ],
        )
