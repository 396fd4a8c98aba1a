"""Taking operations into drafts: what one may be, and that each is taken exactly once.

A draft is about one memory. While it creates it, the memory has a provisional id, which is
whatever the draft's operations call it; the draft's own ids, the Server's and the one its creator
gave it, mean the same, so that two machines of one author can add to one draft.

An operation is known by its local id for as long as its draft is, a rebase notwithstanding: the
answer to a request that was lost can always be had by repeating it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import select

from clumsies.api.drafts import (
    AcceptedOperation,
    AppendOperation,
    BatchAnswer,
    DraftDetail,
    Operation,
    OperationBatch,
)
from clumsies.api.operations import from_wire
from clumsies.errors import Conflict
from clumsies.memory.operations import (
    Create,
    Discard,
    StoreOperation,
    StoreRequest,
    check_request,
)
from clumsies.memory.overlay import is_creation, provisional_id
from clumsies.server.acting import Act
from clumsies.server.proposals.draft_events import last_cursor, record_events
from clumsies.server.proposals.draft_messages import detail_of
from clumsies.server.proposals.draft_rows import (
    DraftRow,
    OperationRow,
    add_operation,
    change_draft,
    operations_of,
)
from clumsies.server.proposals.draft_states import Memories, identity_of, result_of
from clumsies.server.proposals.submissions import lock_all_for_edit, lock_for_edit, note_edit
from clumsies.server.refusals import check_version, invalid
from clumsies.server.schema import draft_revisions

MAX_OPERATIONS = 2_000
"""Of one draft. A rebase makes few of many."""


def append_operation(
    act: Act, draft_id: str, expected_version: int, data: AppendOperation
) -> DraftDetail:
    """The draft with one operation more; a repeat of one that it took is no second one.

    Raises Conflict("version_conflict"), and InvalidRequest for what cannot be applied.
    """
    draft = lock_for_edit(act, draft_id)
    name = data.operation.local_operation_id
    if name is None or find_taken(act, draft, data.operation, name) is None:
        draft, _ = _take(act, Memories(act), draft, expected_version, data.operation, None)
    return detail_of(act, draft)


def append_batch(act: Act, batch: OperationBatch) -> BatchAnswer:
    """Take operations of several drafts in order, all or none.

    `expected_draft_version` of each is that of its draft just then: the second operation of a
    draft expects one more than its first. Raises as `append_operation`.
    """
    drafts = lock_all_for_edit(act, {item.draft_id for item in batch.operations})
    memories = Memories(act)
    accepted: list[tuple[str, str, str]] = []
    for item in batch.operations:
        draft, operation = drafts[item.draft_id], _named(item.operation, item.local_operation_id)
        taken = find_taken(act, draft, operation, item.local_operation_id)
        if taken is None:
            drafts[item.draft_id], row = _take(
                act,
                memories,
                draft,
                item.expected_draft_version,
                operation,
                batch.daemon_installation_id,
            )
            taken = row.operation_id
        accepted.append((item.local_operation_id, taken, item.draft_id))
    return BatchAnswer(
        accepted_operations=[
            AcceptedOperation(
                local_operation_id=local_id,
                operation_id=operation_id,
                draft_id=draft_id,
                draft_version=drafts[draft_id].version,
            )
            for local_id, operation_id, draft_id in accepted
        ],
        cursor=last_cursor(act, act.principal.user_id),
    )


def _named(operation: Operation, local_operation_id: str) -> Operation:
    """The operation with the local id that the batch gives it."""
    if operation.local_operation_id not in (None, local_operation_id):
        raise invalid("The operation and its place in the batch name two local_operation_ids.")
    return msgspec.structs.replace(operation, local_operation_id=local_operation_id)


def _take(
    act: Act,
    memories: Memories,
    draft: DraftRow,
    expected_version: int,
    operation: Operation,
    daemon_installation_id: str | None,
) -> tuple[DraftRow, OperationRow]:
    if not draft.is_active:
        raise invalid(
            f"The draft is {draft.status} and takes no more operations; begin a new one.",
            draft_id=draft.draft_id,
        )
    check_version("draft", expected_version, draft.version)
    kept = operations_of(act, draft.draft_id)
    following, [added] = checked(memories, draft, [row.operation for row in kept], [operation])
    row = add_operation(
        act,
        draft.draft_id,
        kept[-1].ordinal + 1 if kept else 1,
        added,
        operation.local_operation_id,
    )
    draft = change_draft(act, draft, target_id=following.target_id, path=following.path)
    note_edit(act, draft)
    record_events(act, [("operation_appended", draft)], daemon_installation_id)
    return draft, row


def checked(
    memories: Memories,
    draft: DraftRow,
    kept: Sequence[StoreOperation],
    wanted: Sequence[Operation],
) -> tuple[DraftRow, list[StoreOperation]]:
    """The operations as the draft is to keep them after those it has, and the draft with the
    target and path that they give it. Raises InvalidRequest where one may not be or not be applied.
    """
    if len(kept) + len(wanted) > MAX_OPERATIONS:
        raise invalid(f"A draft holds at most {MAX_OPERATIONS} operations; rebase or merge it.")
    operations = list(kept)
    for message in wanted:
        operation = _checked(draft, message)
        part = operation.only()
        if isinstance(part, Create):
            if operations or draft.target_id is not None:
                raise invalid("A create is the first operation of a draft for a new memory.")
            draft = replace(draft, path=part.path)
        else:
            draft, operation = _addressed(draft, operations, operation)
        operations.append(operation)
    if draft.target_id is not None:
        draft = _placed(memories, draft)
    result_of(memories, draft, operations)
    return draft, operations[len(kept) :]


def _placed(memories: Memories, draft: DraftRow) -> DraftRow:
    """The draft with the path that its base has its target at; raises InvalidRequest where it
    has none."""
    place = memories.place(draft.base_commit_id, draft.target_id)
    if place is None:
        raise invalid(
            "The commit that the draft begins with has no such memory; give its id and the "
            "commit you have read.",
            resource_id=draft.target_id,
        )
    return replace(draft, path=place[0])


def _checked(draft: DraftRow, message: Operation) -> StoreOperation:
    if message.resource.scope != draft.scope:
        raise invalid("The operation's scope is not the draft's; a draft is for one memory.")
    operation = from_wire(message)
    check_request(StoreRequest(project_id=draft.project_id, op=operation, source="cli"))
    return operation


def _addressed(
    draft: DraftRow, before: Sequence[StoreOperation], operation: StoreOperation
) -> tuple[DraftRow, StoreOperation]:
    """The operation with the id that the others use, and the draft, which takes its target from
    its first operation where it has none."""
    part = operation.only()
    assert not isinstance(part, Create | Discard)
    if not is_creation(before):
        if draft.target_id is None:
            draft = replace(draft, target_id=part.id)
        if part.id != draft.target_id:
            raise _another(part.id)
        return draft, operation
    names = [item.only() for item in before]
    if all(isinstance(name, Create) for name in names):
        return draft, operation
    known = provisional_id(identity_of(draft), before)
    if part.id not in (known, draft.draft_id, draft.client_draft_id):
        raise _another(part.id)
    field = operation.__struct_fields__[
        [getattr(operation, name) is part for name in operation.__struct_fields__].index(True)
    ]
    changes: dict[str, Any] = {field: msgspec.structs.replace(part, id=known)}
    return draft, msgspec.structs.replace(operation, **changes)


def _another(resource_id: str) -> Exception:
    return invalid(
        "The operation is for another memory than the draft's; begin a draft of its own.",
        resource_id=resource_id,
    )


def find_taken(
    act: Act, draft: DraftRow, message: Operation, local_operation_id: str
) -> str | None:
    """The id of the operation that the draft took under this local id, now or before a rebase.

    Raises Conflict("already_exists") where it was another operation.
    """
    for row in [*operations_of(act, draft.draft_id), *_rebased_away(act, draft.draft_id)]:
        if row.local_operation_id != local_operation_id:
            continue
        if _content(row.operation) != _content(from_wire(message)):
            raise Conflict(
                "already_exists",
                "Another operation was taken under this local_operation_id; give each its own.",
                {"local_operation_id": local_operation_id},
            )
        return row.operation_id
    return None


def _content(operation: StoreOperation) -> tuple[str, object]:
    """What an operation does, whichever of a draft's ids it uses."""
    part = operation.only()
    if not isinstance(part, Create):
        part = msgspec.structs.replace(part, id="")
    return type(part).__name__, part


def _rebased_away(act: Act, draft_id: str) -> list[OperationRow]:
    rows = act.connection.scalars(
        select(draft_revisions.c.operations_json).where(draft_revisions.c.draft_id == draft_id)
    )
    return [
        operation
        for text in rows
        for operation in msgspec.json.decode(text, type=list[OperationRow])
    ]
