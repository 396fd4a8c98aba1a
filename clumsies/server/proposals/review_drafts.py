"""The drafts that a review takes: which it may, and what they come to together.

Drafts of one review are merged as one, so they must fit together: each is about another memory,
and no two leave memories at paths that collide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import msgspec

from clumsies.api.reviews import ReviewDraft
from clumsies.errors import Conflict
from clumsies.memory.overlay import DraftedMemory
from clumsies.memory.reconciliation import result_hash
from clumsies.server.acting import Act
from clumsies.server.proposals.candidates import reconciliation_required
from clumsies.server.proposals.coordination import is_behind
from clumsies.server.proposals.draft_events import record_events
from clumsies.server.proposals.draft_rows import (
    DraftRow,
    OperationRow,
    change_draft,
    read_draft,
    read_operations,
    require_author,
)
from clumsies.server.proposals.draft_states import Memories, result_of, state_of
from clumsies.server.proposals.rebases import carry_out
from clumsies.server.proposals.submissions import lock_submitted
from clumsies.server.refusals import check_version, invalid
from clumsies.storage.tree_paths import find_collision


@dataclass(frozen=True, slots=True)
class Outcome:
    """A draft, its operations, and the memory that they leave on its base."""

    draft: DraftRow
    operations: list[OperationRow]
    result: DraftedMemory | None


def lock_offered(act: Act, offered: Sequence[ReviewDraft]) -> list[DraftRow]:
    """The drafts in their order, locked; each open, of who acts, and as they expect it.

    Raises InvalidRequest, NotFound, Refused and Conflict("version_conflict") where one is not.
    """
    names = [item.draft_id for item in offered]
    if len(set(names)) != len(names):
        raise invalid("A draft is named twice; name each once.")
    for name in names:
        require_author(act, read_draft(act, name))
    rows = lock_submitted(act, names)
    operations = read_operations(act, names)
    for item in offered:
        draft = rows[item.draft_id]
        if draft.status != "open":
            raise invalid(
                f"The draft is {draft.status}; a review takes open ones.", draft_id=draft.draft_id
            )
        check_version("draft", item.expected_draft_version, draft.version)
        if not operations[item.draft_id]:
            raise _without_changes(draft)
    drafts = [rows[name] for name in names]
    if len({(draft.project_id, draft.scope) for draft in drafts}) > 1:
        raise invalid("The drafts are not of one project and scope; make a review of each.")
    return drafts


def _without_changes(draft: DraftRow) -> Exception:
    return invalid("The draft changes nothing; edit or discard it.", draft_id=draft.draft_id)


def find_unreconciled(
    act: Act, drafts: Sequence[DraftRow], offered: Sequence[ReviewDraft], current: str | None
) -> Conflict | None:
    """The error for the first draft that is behind and comes without a candidate; one is made.

    It is to be raised after the transaction, which keeps the candidate. Nothing else is written.
    """
    for draft, item in zip(drafts, offered, strict=True):
        if item.candidate_id is None and item.resolved_state is not None:
            raise invalid("A resolved_state needs the candidate_id that it is for.")
        if is_behind(draft, current):
            if item.candidate_id is None:
                return reconciliation_required(act, draft, current)
        elif item.candidate_id is not None:
            raise invalid(
                "The draft is current; leave candidate_id and resolved_state out.",
                draft_id=draft.draft_id,
            )
    return None


def submit_drafts(
    act: Act, drafts: Sequence[DraftRow], offered: Sequence[ReviewDraft], current: str | None
) -> list[DraftRow]:
    """Rebase the drafts that are behind by their candidates, and submit all.

    Raises as `rebases.carry_out`, and where they do not fit together.
    """
    memories = Memories(act)
    happened: list[tuple[Literal["rebased", "submitted"], DraftRow]] = []
    ready = []
    for draft, item in zip(drafts, offered, strict=True):
        if item.candidate_id is None:
            ready.append(draft)
            continue
        done = carry_out(act, memories, draft, current, item.candidate_id, item.resolved_state)
        ready.append(done.draft)
        happened.append(("rebased", done.draft))
    found = outcomes(act, memories, ready)
    for outcome in found:
        if not outcome.operations:
            raise _without_changes(outcome.draft)
    check_together(memories, found, current)
    submitted = [change_draft(act, draft, status="submitted") for draft in ready]
    record_events(act, [*happened, *(("submitted", draft) for draft in submitted)])
    return submitted


def outcomes(act: Act, memories: Memories, drafts: Sequence[DraftRow]) -> list[Outcome]:
    """What each draft comes to on its base."""
    operations = read_operations(act, [draft.draft_id for draft in drafts])
    return [
        Outcome(
            draft,
            operations[draft.draft_id],
            result_of(memories, draft, [row.operation for row in operations[draft.draft_id]]),
        )
        for draft in drafts
    ]


def check_together(memories: Memories, found: Sequence[Outcome], current: str | None) -> None:
    """Raise where two drafts are about one memory (InvalidRequest), or where the memory would have
    paths that collide (Conflict("already_exists"))."""
    targets = [item.draft.target_id for item in found if item.draft.target_id is not None]
    if len(set(targets)) != len(targets):
        raise invalid("Two of the drafts change one memory; discard one and carry it over.")
    moved = [item.result.path for item in found if item.result is not None]
    others = (
        entry.path or ""
        for name, entry in memories.entries(current).items()
        if name not in set(targets)
    )
    collision = find_collision([*others, *moved]) if _is_moved(memories, found) else None
    if collision is not None:
        raise Conflict(
            "already_exists",
            f"The paths {collision[0]!a} and {collision[1]!a} cannot stand side by side: they are "
            "the same, or one is a folder of the other, where case is ignored. Rename one.",
            {"paths": list(collision)},
        )


def _is_moved(memories: Memories, found: Iterable[Outcome]) -> bool:
    """Whether any memory has a path that it did not have."""
    for item in found:
        place = memories.place(item.draft.base_commit_id, item.draft.target_id)
        if item.result is not None and (place is None or place[0] != item.result.path):
            return True
    return False


def group_hash(found: Iterable[Outcome]) -> str:
    """`sha256:` over what the drafts leave: compact JSON of [draft id, memory.reconciliation's
    result_hash] in order of draft id."""
    rows = sorted((item.draft.draft_id, result_hash(state_of(item.result))) for item in found)
    return f"sha256:{sha256(msgspec.json.encode(rows)).hexdigest()}"
