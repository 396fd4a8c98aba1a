"""Memories as commits have them and as drafts leave them.

Trees that were read are kept for one act: the drafts of a list mostly stand on few commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from sqlalchemy import select

from clumsies.api.common import Scope
from clumsies.api.drafts import CandidateState, OperationContent, ResourceReference
from clumsies.errors import Conflict
from clumsies.memory.operations import StoreOperation
from clumsies.memory.overlay import DraftedMemory, DraftIdentity, apply_operations
from clumsies.memory.reconciliation import ABSENT, ResourceState
from clumsies.server.acting import Act
from clumsies.server.memory.objects import read_entries, read_text
from clumsies.server.memory.refs import org_key, read_ref
from clumsies.server.proposals.draft_rows import DraftRow
from clumsies.server.refusals import invalid
from clumsies.server.schema import resources
from clumsies.storage.objects import MEMORY, TreeEntry
from clumsies.storage.tree_paths import collision_key


class Memories:
    """The memories of commits, for one act; None is the commit of an empty Ref.

    It is not to be used after the act moved the Ref.
    """

    def __init__(self, act: Act):
        self._act = act
        self._commits: dict[str, dict[str, TreeEntry]] = {}

    def entries(self, commit_id: str | None) -> dict[str, TreeEntry]:
        """A commit's entries by the id of their memory."""
        if commit_id is None:
            return {}
        if commit_id not in self._commits:
            entries = read_entries(self._act.connection, commit_id)
            self._commits[commit_id] = {entry.item_id: entry for entry in entries}
        return self._commits[commit_id]

    def at(self, commit_id: str | None, resource_id: str | None) -> DraftedMemory | None:
        """A memory with its text as the commit has it; None where it has none."""
        entry = self._entry(commit_id, resource_id)
        if entry is None:
            return None
        text = read_text(self._act.connection, entry.blob_id)
        return DraftedMemory(
            entry.item_id, entry.path or "", text, entry.description, entry.scope, commit_id
        )

    def place(
        self, commit_id: str | None, resource_id: str | None
    ) -> tuple[str | None, str] | None:
        """(path, blob id) of a memory in a commit; None where it is not in it."""
        entry = self._entry(commit_id, resource_id)
        return None if entry is None else (entry.path, entry.blob_id)

    def _entry(self, commit_id: str | None, resource_id: str | None) -> TreeEntry | None:
        """One memory's entry; of the Ref's commit it is found without reading the whole tree."""
        if commit_id is None or resource_id is None:
            return None
        if commit_id not in self._commits and commit_id == self._current:
            row = self._act.connection.execute(
                select(resources).where(
                    resources.c.resource_id == resource_id,
                    resources.c.org_id == self._act.principal.org_id,
                )
            ).first()
            if row is not None:
                return TreeEntry(
                    item_id=row.resource_id,
                    resource_kind=MEMORY,
                    scope="org",
                    path=row.path,
                    blob_id=row.blob_id,
                    source="org",
                    description=row.description,
                )
        return self.entries(commit_id).get(resource_id)

    @cached_property
    def _current(self) -> str | None:
        return read_ref(self._act, org_key(self._act.principal.org_id)).commit_id

    def occupied(self, commit_id: str | None, resource_id: str | None) -> set[str]:
        """The collision keys of every other memory of the commit."""
        entries = self.entries(commit_id).values()
        return {
            collision_key(entry.path or "") for entry in entries if entry.item_id != resource_id
        }


def identity_of(draft: DraftRow) -> DraftIdentity:
    """What the overlay has to know of a draft."""
    return DraftIdentity(
        draft.draft_id, draft.scope, draft.target_id, draft.path, draft.base_commit_id
    )


def result_of(
    memories: Memories, draft: DraftRow, operations: Sequence[StoreOperation]
) -> DraftedMemory | None:
    """What the operations make of the draft's memory as its base has it; None for nothing.

    Raises InvalidRequest where one of them cannot be applied.
    """
    base = memories.at(draft.base_commit_id, draft.target_id)
    if not operations:
        return base
    try:
        return apply_operations(identity_of(draft), base, operations).result
    except Conflict as error:
        raise invalid(
            "The operations cannot be applied to the memory that the draft begins with; "
            "see that they are in order.",
            draft_id=draft.draft_id,
        ) from error


def state_of(memory: DraftedMemory | None) -> ResourceState:
    """A memory as reconciliation takes it."""
    if memory is None:
        return ABSENT
    return ResourceState(
        exists=True,
        path=memory.path,
        content=memory.content,
        description=memory.description,
    )


def state_message(state: ResourceState, scope: Scope, target_id: str | None) -> CandidateState:
    """A state as it travels; `target_id` is None for a memory that is yet to be created."""
    if state.path is None or state.content is None:
        return CandidateState(exists=False, resource=None, content=None)
    return CandidateState(
        exists=True,
        resource=ResourceReference(scope=scope, id=target_id, path=state.path),
        content=OperationContent(content=state.content, description=state.description),
    )
