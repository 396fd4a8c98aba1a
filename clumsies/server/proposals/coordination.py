"""How far drafts are from the Ref they are meant for.

It is computed when asked for, from where the Ref stands then; only candidates are kept. Contract:
a draft is behind as soon as its base is not the Ref's commit, whatever changed between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlalchemy import select

from clumsies.api.drafts import Coordination
from clumsies.server.acting import Act
from clumsies.server.memory.refs import org_key, read_ref
from clumsies.server.proposals.draft_rows import DraftRow
from clumsies.server.proposals.draft_states import Memories
from clumsies.server.schema import draft_reconciliation_candidates

_candidates = draft_reconciliation_candidates


class _Found(NamedTuple):
    candidate_id: str
    status: Literal["clean", "conflicts"]


def current_commit_id(act: Act) -> str | None:
    """Where the organisation's Ref stands."""
    return read_ref(act, org_key(act.principal.org_id)).commit_id


def is_behind(draft: DraftRow, current: str | None) -> bool:
    """Whether the Ref moved since the draft's base."""
    return draft.base_commit_id != current


def coordinate(
    act: Act, drafts: Sequence[DraftRow], memories: Memories | None = None
) -> dict[str, Coordination]:
    """By draft, its distance from the Ref and the candidate that would close it."""
    current = current_commit_id(act)
    memories = memories or Memories(act)
    found = _valid_candidates(act, drafts, current)
    return {
        draft.draft_id: _coordination(draft, current, memories, found.get(draft.draft_id))
        for draft in drafts
    }


def _coordination(
    draft: DraftRow, current: str | None, memories: Memories, candidate: _Found | None
) -> Coordination:
    behind = is_behind(draft, current)
    changed = (
        behind
        and draft.is_active
        and memories.place(draft.base_commit_id, draft.target_id)
        != memories.place(current, draft.target_id)
    )
    return Coordination(
        freshness="behind" if behind else "current",
        current_commit_id=current,
        has_upstream_resource_changes=changed,
        reconciliation="unknown" if candidate is None else candidate.status,
        candidate_id=None if candidate is None else candidate.candidate_id,
    )


def _valid_candidates(
    act: Act, drafts: Sequence[DraftRow], current: str | None
) -> dict[str, _Found]:
    """By draft, the latest candidate that a rebase would accept."""
    versions = {
        draft.draft_id: draft.version
        for draft in drafts
        if draft.is_active and is_behind(draft, current)
    }
    if not versions:
        return {}
    rows = act.connection.execute(
        select(
            _candidates.c.draft_id,
            _candidates.c.draft_version,
            _candidates.c.candidate_id,
            _candidates.c.current_commit_id,
            _candidates.c.status,
        )
        .where(_candidates.c.draft_id.in_(list(versions)), _candidates.c.invalidated_at.is_(None))
        .order_by(_candidates.c.created_at, _candidates.c.candidate_id)
    )
    return {
        row.draft_id: _Found(row.candidate_id, row.status)
        for row in rows
        if row.draft_version == versions[row.draft_id] and row.current_commit_id == current
    }


def together(parts: Sequence[Coordination], current: str | None) -> Coordination:
    """How far a group is: as far as its farthest. `candidate_id` is of the first draft behind."""
    behind = [part for part in parts if part.freshness == "behind"]
    known = {part.reconciliation for part in behind}
    return Coordination(
        freshness="behind" if behind else "current",
        current_commit_id=current,
        has_upstream_resource_changes=any(part.has_upstream_resource_changes for part in parts),
        reconciliation=next(
            (kind for kind in ("unknown", "conflicts", "clean") if kind in known), "unknown"
        ),
        candidate_id=behind[0].candidate_id if behind else None,
    )
