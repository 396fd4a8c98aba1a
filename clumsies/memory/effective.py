"""Effective Memory: the installed commit with the active drafts over it.

A view is of one moment. It is made of parts that are kept: a commit's memory, which never changes,
and each draft's overlay, which stays until the draft does; so after a store only the touched
resource is read and built again. Texts are read when they are asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import apsw

from clumsies.errors import NotFound, NotReady, StoreFailed
from clumsies.memory.draft_rows import read_draft
from clumsies.memory.effective_view import (
    CacheState,
    EffectiveEntry,
    EffectiveView,
    MemoryState,
)
from clumsies.memory.operations import StoreOperation, decode_operation
from clumsies.memory.overlay import (
    DraftedMemory,
    DraftIdentity,
    Overlay,
    apply_operations,
)
from clumsies.memory.refs import (
    ACTIVE,
    organization_commit,
    project_key,
    read_ref,
    require_project_ref,
)
from clumsies.storage.database import all_rows
from clumsies.storage.generations import Facts, GenerationStore
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import content_hashes, read_commit, read_text, read_tree
from clumsies.storage.objects import MEMORY, TreeEntry
from clumsies.storage.project_storage import ProjectStorage
from clumsies.types import (
    ContentHash,
    Resource,
    ResourceId,
    content_hash,
    draft_revision,
)

__all__ = [
    "CacheState",
    "DraftStates",
    "EffectiveEntry",
    "EffectiveMemory",
    "EffectiveView",
    "MemoryState",
    "draft_operations",
]

KEPT_COMMITS = 8
KEPT_VIEWS = 8
_REF_ATTEMPTS = 3
_GENERATION_STATES: dict[str, MemoryState] = {
    "commit_generation_missing": "generation_missing",
    "commit_generation_corrupt": "generation_corrupt",
}
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _CommitMemory:
    entries: dict[str, EffectiveEntry]
    ids_by_path: dict[str, str]


@dataclass(frozen=True, slots=True)
class _DraftKey:
    """Equal while a draft's overlay is the same: whatever is stored, moved or comes from the
    Server stands in new rows, and neither rows nor ids of operations are used twice."""

    draft: DraftIdentity
    count: int
    last_rowid: int
    last_operation_id: str


@dataclass(frozen=True, slots=True)
class _KeptView:
    """A view and the overlays it was made of, in their order; none of other drafts are kept."""

    overlays: dict[_DraftKey, tuple[Overlay, EffectiveEntry | None]]
    view: EffectiveView


@dataclass(frozen=True, slots=True)
class DraftStates:
    """One memory three times; None where it is not there."""

    before: DraftedMemory | None
    after: DraftedMemory | None
    current: DraftedMemory | None


class _Kept(Generic[_Key, _Value]):
    """The values used last, at most `limit`; any thread may ask."""

    def __init__(self, limit: int):
        self._limit = limit
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        with self._mutex:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)


class EffectiveMemory:
    """Makes views of projects; any thread may use it. `authority_of` says whose a project is."""

    def __init__(
        self, database: LocalDatabase, storage: ProjectStorage, authority_of: Callable[[str], str]
    ):
        self._database = database
        self._storage = storage
        self._authority_of = authority_of
        self._commits: _Kept[str, _CommitMemory] = _Kept(KEPT_COMMITS)
        self._views: _Kept[str, _KeptView] = _Kept(KEPT_VIEWS)
        self._verified: _Kept[tuple[str, str | None], Facts] = _Kept(KEPT_VIEWS)

    def view(self, project_id: str) -> EffectiveView:
        """What the project's memory is now.

        Raises NotReady: project_ref_not_synced, commit_generation_missing, search_index_not_ready
        (a draft's base commit is not here); StoreFailed: commit_generation_corrupt,
        object_corrupt; Conflict("draft_conflict") for a draft that cannot be applied.
        """
        for attempt in range(1, _REF_ATTEMPTS + 1):
            with self._database.reader() as connection:
                require_project_ref(connection, project_id)
                view = self.view_in(connection, project_id)
            try:
                self._require_generation(project_id, view.commit_id)
                break
            except NotReady:  # the Ref may have moved on and the old generation been collected
                if attempt == _REF_ATTEMPTS:
                    raise
        return view

    def view_in(self, connection: apsw.Connection, project_id: str) -> EffectiveView:
        """The view that this transaction sees, from the database alone; empty without a Ref."""
        ref = read_ref(connection, project_key(project_id))
        commit_id = ref.commit_id if ref is not None else None
        kept = self._views.get(project_id)
        known = kept.overlays if kept is not None else {}
        keys = _draft_keys(connection, project_id)
        if kept is not None and kept.view.commit_id == commit_id and tuple(known) == keys:
            return kept.view
        entries = dict(self._commit(connection, commit_id).entries) if commit_id else {}
        overlays = {key: known.get(key) or self._overlay(connection, key) for key in keys}
        for overlay, entry in overlays.values():
            for name in overlay.removed:
                entries.pop(name, None)
            if entry is not None:
                entries[entry.resource_id] = entry
        view = EffectiveView(project_id, commit_id, entries)
        self._views.put(project_id, _KeptView(overlays, view))
        return view

    def shows_base(
        self, connection: apsw.Connection, entry: EffectiveEntry, commit_id: str | None
    ) -> bool:
        """Whether an installed memory stands in a commit as the view shows it."""
        if commit_id is None:
            return True
        found = self._commit(connection, commit_id).entries.get(entry.resource_id)
        return found is not None and (
            (found.path, found.content_hash, found.description)
            == (entry.path, entry.content_hash, entry.description)
        )

    def content_in(self, connection: apsw.Connection, entry: EffectiveEntry) -> str:
        """A memory's text; raises StoreFailed("object_corrupt") where it is not what it was."""
        if entry.content is not None:
            return entry.content
        text = read_text(connection, entry.blob_id or "")
        if content_hash(text) != entry.content_hash:
            raise StoreFailed(
                "object_corrupt",
                f"The text of {entry.resource_id} differs from its hash; run `clumsies doctor`.",
            )
        return text

    def resources(
        self, view: EffectiveView, ids: Iterable[str] | None = None
    ) -> Iterator[Resource]:
        """The view's resources in order of id, or those of `ids`; texts are read one by one."""
        for name in sorted(view.entries) if ids is None else ids:
            entry = view.entries[name]
            with self._database.reader() as connection:
                content = self.content_in(connection, entry)
            yield _resource(entry, content)

    def load(self, project_id: str, names: Sequence[str]) -> list[Resource]:
        """Whole memories by id, else by exact path, each once; raises what `view` and
        `require` raise."""
        view = self.view(project_id)
        return list(self.resources(view, [entry.resource_id for entry in view.require(names)]))

    def compare(self, draft_id: str) -> DraftStates:
        """A draft's memory at its base, as the draft leaves it, and as the Ref has it now.

        Raises NotFound("not_found") and what `view` raises for a draft that cannot be applied.
        """
        with self._database.reader() as connection:
            draft = read_draft(connection, draft_id)
            if draft is None:
                raise NotFound(
                    "not_found", f"There is no draft {draft_id!a}; `clumsies drafts` lists them."
                )
            identity = DraftIdentity(
                draft_id, draft.resource_scope, draft.target_id, draft.path, draft.base_commit_id
            )
            operations = [row[2] for row in draft_operations(connection, draft_id)]
            base = self._base(connection, identity, operations)
            overlay = apply_operations(identity, base, operations)
            organization = organization_commit(connection, draft.project_id)
            target = draft.target_id or (None if base is None else base.resource_id)
            current = None
            if organization is not None and target is not None:
                entry = self._commit(connection, organization).entries.get(target)
                current = None if entry is None else self._drafted(connection, entry)
        return DraftStates(base, overlay.result, current)

    def cache_state(self, project_id: str) -> CacheState:
        """Whether the project's memory can be read, for people: never raises for what it finds."""
        place = self._storage.location(self._authority_of(project_id), project_id)
        store = GenerationStore(place.generations, project_id)
        with self._database.reader() as connection:
            ref = read_ref(connection, project_key(project_id))
        if ref is None:
            words = "Nothing of the project is on this machine yet."
            return CacheState(project_id, None, None, "project_ref_not_synced", words)
        try:
            self._require_generation(project_id, ref.commit_id)
        except (NotReady, StoreFailed) as error:
            state = _GENERATION_STATES.get(error.code, "storage_unavailable")
            return CacheState(project_id, ref.commit_id, None, state, error.message)
        path = str(store.path(ref.commit_id))
        return CacheState(project_id, ref.commit_id, path, "ready", None)

    def _require_generation(self, project_id: str, commit_id: str | None) -> None:
        place = self._storage.location(self._authority_of(project_id), project_id)
        store = GenerationStore(place.generations, project_id)
        facts = store.facts(commit_id)
        if facts is not None and self._verified.get((project_id, commit_id)) == facts:
            return
        store.verify(commit_id)
        if facts is not None:
            self._verified.put((project_id, commit_id), facts)

    def _commit(self, connection: apsw.Connection, commit_id: str) -> _CommitMemory:
        """The memories of a commit on this machine; NotReady where it is not."""
        kept = self._commits.get(commit_id)
        if kept is not None:
            return kept
        commit = read_commit(connection, commit_id)
        if commit is None:
            raise NotReady(
                "search_index_not_ready",
                f"The commit {commit_id} is not on this machine; wait for the next sync.",
                {"commit_id": commit_id},
            )
        tree = [entry for entry in read_tree(connection, commit.tree_id) if entry.is_memory]
        hashes = content_hashes(connection, (entry.blob_id for entry in tree))
        made = [_entry(entry, hashes, commit_id) for entry in tree]
        memory = _CommitMemory(
            {entry.resource_id: entry for entry in made},
            {entry.path: entry.resource_id for entry in made},
        )
        self._commits.put(commit_id, memory)
        return memory

    def _overlay(
        self, connection: apsw.Connection, key: _DraftKey
    ) -> tuple[Overlay, EffectiveEntry | None]:
        draft = key.draft
        rows = draft_operations(connection, draft.draft_id)
        operations = [operation for _, _, operation in rows]
        overlay = apply_operations(draft, self._base(connection, draft, operations), operations)
        entry = None
        if overlay.result is not None:
            revision = draft_revision(draft.draft_id, ((rowid, data) for rowid, data, _ in rows))
            entry = _drafted_entry(overlay.result, draft.draft_id, revision)
        return overlay, entry

    def _base(
        self,
        connection: apsw.Connection,
        draft: DraftIdentity,
        operations: Sequence[StoreOperation],
    ) -> DraftedMemory | None:
        """The draft's resource as its base commit has it: by id, else by path."""
        if draft.base_commit_id is None:
            return None
        memory = self._commit(connection, draft.base_commit_id)
        name = draft.target_id
        if name is None and operations and operations[0].create is None:
            name = memory.ids_by_path.get(draft.path or "")
        entry = memory.entries.get(name or "")
        if entry is None:
            return None
        return self._drafted(connection, entry)

    def _drafted(self, connection: apsw.Connection, entry: EffectiveEntry) -> DraftedMemory:
        return DraftedMemory(
            entry.resource_id,
            entry.path,
            self.content_in(connection, entry),
            entry.description,
            entry.scope,
            entry.source_commit_id,
        )


def draft_operations(
    connection: apsw.Connection, draft_id: str
) -> list[tuple[int, bytes, StoreOperation]]:
    """(row id, stored bytes, operation) of a draft, in order."""
    rows = all_rows(
        connection,
        "SELECT operation_rowid, operation_json FROM local_draft_operations "
        "WHERE draft_id = ? ORDER BY operation_rowid",
        (draft_id,),
    )
    found = ((int(rowid), str(text).encode("utf-8")) for rowid, text in rows)
    return [(rowid, data, decode_operation(data)) for rowid, data in found]


def _draft_keys(connection: apsw.Connection, project_id: str) -> tuple[_DraftKey, ...]:
    """The active drafts, in the order in which they lie over each other."""
    rows = all_rows(
        connection,
        "SELECT draft_id, resource_scope, target_id, path, base_commit_id, "
        "(SELECT count(*) FROM local_draft_operations o WHERE o.draft_id = d.draft_id), "
        "(SELECT max(operation_rowid) FROM local_draft_operations o "
        "WHERE o.draft_id = d.draft_id), "
        "(SELECT local_operation_id FROM local_draft_operations o WHERE o.draft_id = d.draft_id "
        "ORDER BY operation_rowid DESC LIMIT 1) "
        f"FROM local_drafts d WHERE project_id = ? AND {ACTIVE} ORDER BY created_at, draft_id",
        (project_id,),
    )
    return tuple(
        _DraftKey(DraftIdentity(*row[:5]), row[5], row[6] or 0, row[7] or "") for row in rows
    )


def _entry(entry: TreeEntry, hashes: Mapping[str, ContentHash], commit_id: str) -> EffectiveEntry:
    if entry.blob_id not in hashes:
        raise StoreFailed(
            "object_corrupt",
            f"The blob {entry.blob_id} is not in the local database though a commit names it. "
            "Run `clumsies doctor`.",
        )
    return EffectiveEntry(
        ResourceId(entry.item_id),
        entry.path or "",
        entry.scope,
        hashes[entry.blob_id],
        entry.description,
        commit_id,
        blob_id=entry.blob_id,
    )


def _drafted_entry(memory: DraftedMemory, draft_id: str, revision: str) -> EffectiveEntry:
    return EffectiveEntry(
        ResourceId(memory.resource_id),
        memory.path,
        memory.scope,
        content_hash(memory.content),
        memory.description,
        memory.source_commit_id,
        content=memory.content,
        draft_id=draft_id,
        draft_revision=revision,
    )


def _resource(entry: EffectiveEntry, content: str) -> Resource:
    return Resource(
        entry.resource_id,
        entry.path,
        content,
        description=entry.description,
        kind=MEMORY,
        scope=entry.scope,
        source_commit_id=entry.source_commit_id,
        draft_id=entry.draft_id,
        draft_revision=entry.draft_revision,
    )
