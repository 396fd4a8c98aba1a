"""Reconciliation candidates: what a rebase of a draft would come to.

A candidate is bound to the draft's version, its base and the Ref's commit; it is valid as long as
all three are what they were. Making or reading one changes nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, insert, select

from clumsies.api.drafts import Candidate, CandidateState, ConflictDetail
from clumsies.errors import Conflict
from clumsies.memory.reconciliation import (
    ResourceState,
    StateConflict,
    reconcile,
    result_hash,
)
from clumsies.server.acting import Act
from clumsies.server.proposals.coordination import current_commit_id, is_behind
from clumsies.server.proposals.draft_rows import DraftRow, operations_of, read_draft, read_drafts
from clumsies.server.proposals.draft_states import Memories, result_of, state_message, state_of
from clumsies.server.refusals import check_version, invalid, missing
from clumsies.server.schema import draft_reconciliation_candidates

_candidates = draft_reconciliation_candidates


class States(msgspec.Struct, frozen=True):
    """What a candidate is about; nothing is proposed where there are conflicts."""

    target_id: str | None
    base: ResourceState
    current: ResourceState
    draft: ResourceState
    proposed: ResourceState | None


def create_candidate(act: Act, draft_id: str, expected_version: int) -> Candidate:
    """A candidate of the draft on the Ref as it stands; the valid one that is there already.

    Raises Conflict "version_conflict", or "draft_already_current" for one that is not behind.
    """
    read_draft(act, draft_id)
    draft = read_drafts(act, [draft_id], lock=True)[draft_id]
    if not draft.is_active:
        raise invalid(f"The draft is {draft.status}; nothing is left to reconcile.")
    check_version("draft", expected_version, draft.version)
    current = current_commit_id(act)
    if not is_behind(draft, current):
        raise already_current(draft_id)
    return _message(candidate_on(act, Memories(act), draft, current), draft, current)


def get_candidate(act: Act, draft_id: str, candidate_id: str) -> Candidate:
    """A candidate of the draft; raises NotFound("not_found")."""
    draft = read_draft(act, draft_id)
    row = find_candidate(act, draft_id, candidate_id)
    if row is None:
        raise missing("candidate")
    return _message(row, draft, current_commit_id(act))


def already_current(draft_id: str) -> Conflict:
    """The draft stands on the Ref's commit."""
    return Conflict(
        "draft_already_current",
        "The draft begins with the newest commit already; go on without a rebase.",
        {"draft_id": draft_id},
    )


def reconciliation_required(act: Act, draft: DraftRow, current: str | None) -> Conflict:
    """The error for a locked draft that is behind, with a candidate made for it.

    It is to be raised after the transaction, which keeps the candidate.
    """
    row = candidate_on(act, Memories(act), draft, current)
    return Conflict(
        "reconciliation_required",
        "The memory changed since the draft's base; rebase the draft, then repeat.",
        {
            "draft_id": draft.draft_id,
            "candidate_id": row.candidate_id,
            "current_commit_id": current,
        },
    )


def find_candidate(act: Act, draft_id: str, candidate_id: str) -> Row[Any] | None:
    """The row of a draft's candidate, valid or not."""
    return act.connection.execute(
        select(_candidates).where(
            _candidates.c.candidate_id == candidate_id, _candidates.c.draft_id == draft_id
        )
    ).first()


def is_valid(row: Row[Any], draft: DraftRow, current: str | None) -> bool:
    """Whether a rebase may carry the candidate out."""
    return (
        row.invalidated_at is None
        and draft.is_active
        and row.draft_version == draft.version
        and row.base_commit_id == draft.base_commit_id
        and row.current_commit_id == current
    )


def states_of(row: Row[Any]) -> States:
    return msgspec.json.decode(row.states_json, type=States)


def candidate_on(act: Act, memories: Memories, draft: DraftRow, current: str | None) -> Row[Any]:
    """The valid candidate of a locked draft that is behind `current`, made where there is none."""
    rows = act.connection.execute(
        select(_candidates)
        .where(
            _candidates.c.draft_id == draft.draft_id,
            _candidates.c.invalidated_at.is_(None),
        )
        .order_by(_candidates.c.created_at.desc(), _candidates.c.candidate_id.desc())
    )
    for row in rows:
        if is_valid(row, draft, current):
            return row
    candidate_id = _insert(act, memories, draft, current)
    made = find_candidate(act, draft.draft_id, candidate_id)
    assert made is not None, candidate_id
    return made


def _insert(act: Act, memories: Memories, draft: DraftRow, current: str | None) -> str:
    operations = [row.operation for row in operations_of(act, draft.draft_id)]
    base = state_of(memories.at(draft.base_commit_id, draft.target_id))
    there = state_of(memories.at(current, draft.target_id))
    drafted = state_of(result_of(memories, draft, operations))
    found = reconcile(base, there, drafted, memories.occupied(current, draft.target_id))
    proposed = found.proposed
    states = States(draft.target_id, base, there, drafted, proposed)
    candidate_id = act.new_id("cand")
    act.connection.execute(
        insert(_candidates).values(
            candidate_id=candidate_id,
            draft_id=draft.draft_id,
            draft_version=draft.version,
            base_commit_id=draft.base_commit_id,
            current_commit_id=current,
            status=found.status,
            states_json=_text(states),
            conflicts_json=_text([_conflict(conflict) for conflict in found.conflicts]),
            result_hash=None if proposed is None else result_hash(proposed),
            created_at=act.now,
        )
    )
    return candidate_id


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def _conflict(conflict: StateConflict) -> ConflictDetail:
    sides = [
        ("present" if side else "absent") if isinstance(side, bool) else side
        for side in (conflict.base, conflict.current, conflict.draft)
    ]
    return ConflictDetail(
        kind=conflict.kind, field=conflict.field, base=sides[0], current=sides[1], draft=sides[2]
    )


def _message(row: Row[Any], draft: DraftRow, current: str | None) -> Candidate:
    states = states_of(row)

    def message(state: ResourceState) -> CandidateState:
        return state_message(state, draft.scope, states.target_id)

    return Candidate(
        candidate_id=row.candidate_id,
        draft_id=row.draft_id,
        draft_version=row.draft_version,
        base_commit_id=row.base_commit_id,
        current_commit_id=row.current_commit_id,
        status=row.status,
        base_state=message(states.base),
        current_state=message(states.current),
        draft_state=message(states.draft),
        proposed_state=None if states.proposed is None else message(states.proposed),
        conflicts=msgspec.json.decode(row.conflicts_json, type=list[ConflictDetail]),
        result_hash=row.result_hash,
        valid=is_valid(row, draft, current),
        created_at=row.created_at,
        invalidated_at=row.invalidated_at,
    )
