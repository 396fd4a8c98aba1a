"""Carrying a candidate out: the draft begins with the Ref's commit then.

The draft as it was is kept as a revision, its operations with it, so that nothing an author wrote
is ever gone, and so that an operation that was taken before is known afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Row, insert

from clumsies.api import drafts as api
from clumsies.api.drafts import Rebase
from clumsies.api.reviews import RebaseAnswer
from clumsies.errors import Conflict, Refused
from clumsies.memory.operations import StoreOperation, check_content
from clumsies.memory.overlay import is_creation
from clumsies.memory.paths import check_path
from clumsies.memory.reconciliation import (
    ResourceState,
    operations_between,
    path_conflicts,
)
from clumsies.server.acting import Act
from clumsies.server.memory.refs import org_key, read_ref, require_ref_at
from clumsies.server.proposals.candidates import (
    States,
    already_current,
    find_candidate,
    is_valid,
    states_of,
)
from clumsies.server.proposals.coordination import is_behind
from clumsies.server.proposals.draft_events import record_events
from clumsies.server.proposals.draft_messages import draft_messages
from clumsies.server.proposals.draft_rows import (
    DraftRow,
    change_draft,
    operations_of,
    read_draft,
    replace_operations,
)
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.proposals.review_messages import review_message
from clumsies.server.proposals.submissions import lock_submitted, note_edit
from clumsies.server.refusals import check_version, invalid
from clumsies.server.schema import draft_rebases, draft_revisions


@dataclass(frozen=True, slots=True)
class Rebased:
    """A draft after its rebase, and what kept the one before."""

    draft: DraftRow
    rebase_id: str
    previous_revision_id: str


def rebase_draft(
    act: Act, draft_id: str, expected_commit_id: str | None, data: Rebase
) -> RebaseAnswer:
    """Rebase an active draft of who acts, or a submitted one that they may merge.

    Raises Conflict "precondition_failed" where the Ref moved, "version_conflict",
    "draft_already_current" and "candidate_invalid".
    """
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    _require_right(act, read_draft(act, draft_id))
    require_ref_at(act, ref, expected_commit_id)
    draft = lock_submitted(act, [draft_id])[draft_id]
    if not draft.is_active:
        raise invalid(f"The draft is {draft.status}; nothing is left to rebase.")
    check_version("draft", data.expected_draft_version, draft.version)
    if not is_behind(draft, ref.commit_id):
        raise already_current(draft_id)
    done = carry_out(
        act, Memories(act), draft, ref.commit_id, data.candidate_id, data.resolved_state
    )
    noted = note_edit(act, done.draft)
    record_events(act, [("rebased", done.draft)])
    return RebaseAnswer(
        rebase_id=done.rebase_id,
        previous_revision_id=done.previous_revision_id,
        draft=draft_messages(act, [done.draft])[0],
        review=None if noted is None else review_message(act, noted[0]),
        approval_invalidated=noted is not None and noted[1],
    )


def _require_right(act: Act, draft: DraftRow) -> None:
    if draft.author_id == act.principal.user_id:
        return
    if draft.status != "submitted":
        raise Refused("forbidden", "The draft is another person's; only they can rebase it now.")
    act.principal.require("review:merge")


def carry_out(
    act: Act,
    memories: Memories,
    draft: DraftRow,
    current: str | None,
    candidate_id: str,
    resolved: api.ResourceState | None,
) -> Rebased:
    """Rewrite a locked draft on `current`, where the locked Ref stands, by its candidate.

    Raises Conflict("candidate_invalid"), and InvalidRequest where the resolved state is missing,
    unasked for, or cannot be.
    """
    row = find_candidate(act, draft.draft_id, candidate_id)
    if row is None or not is_valid(row, draft, current):
        raise Conflict(
            "candidate_invalid",
            "The candidate is no longer what a rebase would do; make a new one.",
            {"candidate_id": candidate_id},
        )
    result, there = _result(memories, draft, row, resolved), states_of(row).current
    operations = operations_between(there, result, draft.target_id or draft.draft_id)
    revision_id = _keep_revision(act, draft)
    replace_operations(act, draft.draft_id, operations)
    rebased = change_draft(
        act,
        draft,
        base_commit_id=current,
        target_id=None if is_creation(operations) else draft.target_id,
        path=_path(draft, operations, there, result),
    )
    rebase_id = act.new_id("rebase")
    act.connection.execute(
        insert(draft_rebases).values(
            rebase_id=rebase_id,
            draft_id=draft.draft_id,
            candidate_id=candidate_id,
            previous_revision_id=revision_id,
            rebased_by=act.principal.user_id,
            base_commit_id=current,
            created_at=act.now,
        )
    )
    return Rebased(rebased, rebase_id, revision_id)


def _path(
    draft: DraftRow,
    operations: Sequence[StoreOperation],
    there: ResourceState,
    result: ResourceState,
) -> str | None:
    """The path a draft is named by: its memory's, or what it creates."""
    if is_creation(operations):
        return result.path
    return there.path or draft.path


def _result(
    memories: Memories, draft: DraftRow, row: Row[Any], resolved: api.ResourceState | None
) -> ResourceState:
    states = states_of(row)
    if states.proposed is not None:
        if resolved is not None:
            raise invalid("The candidate is clean; leave resolved_state out.")
        return states.proposed
    if resolved is None:
        raise invalid("The candidate has conflicts; decide, and send resolved_state.")
    return _resolved(memories, draft, row.current_commit_id, states, resolved)


def _resolved(
    memories: Memories,
    draft: DraftRow,
    current: str | None,
    states: States,
    resolved: api.ResourceState,
) -> ResourceState:
    """The state that was decided on, as a memory may be."""
    try:
        state = ResourceState(
            exists=resolved.exists,
            path=resolved.path,
            content=resolved.content,
            description=resolved.description,
        )
    except ValueError as error:
        raise invalid(f"The resolved_state cannot be: {error}.") from error
    if state.path is not None and state.content is not None:
        check_path(state.path)
        check_content(state.content)
    occupied = memories.occupied(current, draft.target_id)
    if path_conflicts(states.base, states.current, state, occupied):
        raise invalid(
            "Another memory stands at the resolved path, above or below it; take another.",
            path=state.path,
        )
    return state


def _keep_revision(act: Act, draft: DraftRow) -> str:
    revision_id = act.new_id("rev")
    operations = operations_of(act, draft.draft_id)
    act.connection.execute(
        insert(draft_revisions).values(
            revision_id=revision_id,
            draft_id=draft.draft_id,
            version=draft.version,
            base_commit_id=draft.base_commit_id,
            operations_json=msgspec.json.encode(operations).decode("utf-8"),
            created_at=act.now,
        )
    )
    return revision_id
