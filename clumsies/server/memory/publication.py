"""Moving an organisation's memory: its next commit, and the next of every project that shows it.

All of a publication is one transaction, and the organisation's Ref is locked from its beginning to
its end, so that publications of one organisation follow each other. The number of statements
depends on neither the size of the memory nor that of the change, but for batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import and_, or_, select, update

from clumsies.errors import Conflict
from clumsies.server.acting import Act
from clumsies.server.memory.objects import (
    batches,
    insert_blobs,
    insert_commits,
    insert_tree_payloads,
    read_commits,
    read_entries,
)
from clumsies.server.memory.refs import RefRow, move_refs, org_key, project_key, read_ref, read_refs
from clumsies.server.memory.resource_rows import delete_resources, write_resources
from clumsies.server.memory.selection_rows import (
    Selection,
    SelectionChange,
    change_selection,
    count_revisions,
    drop_from_selections,
    holders,
    read_selections,
)
from clumsies.server.schema import draft_reconciliation_candidates as candidates
from clumsies.server.schema import drafts, projects
from clumsies.storage.objects import (
    MEMORY,
    SELECTION,
    Blob,
    Commit,
    TreeEntry,
    blob_id,
    make_commit,
    object_id,
    tree_payload,
)
from clumsies.storage.timestamps import rfc3339
from clumsies.storage.tree_paths import find_collision

_PROJECTS = 16
"""Projections that are in hand at once: each is a tree, of some 2 MB at 10,000 memories."""


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What becomes of one memory. None keeps what is there; a new one has path and content."""

    resource_id: str
    path: str | None = None
    content: str | None = None
    description: str | None = None
    is_deleted: bool = False


@dataclass(slots=True)
class _Edition:
    """The memory as it will be, by id, beside what it was; `texts` are by blob id."""

    old: dict[str, TreeEntry]
    entries: dict[str, TreeEntry]
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def created(self) -> frozenset[str]:
        return frozenset(self.entries.keys() - self.old.keys())

    @property
    def deleted(self) -> list[str]:
        return sorted(self.old.keys() - self.entries.keys())

    @property
    def changed(self) -> list[TreeEntry]:
        """Entries that are new or other than before."""
        return [entry for name, entry in self.entries.items() if self.old.get(name) != entry]


def publish_org(
    act: Act,
    changes: Iterable[ResourceChange],
    carrying_project_id: str | None = None,
    selection: SelectionChange | None = None,
) -> Commit | None:
    """Publish the changes; the organisation's commit afterwards, None while its Ref is empty.

    What is created becomes part of the carrying project's selection, beside what `selection` says
    of the same project; what is deleted leaves every selection. Without a difference nothing is
    written. Changes are taken as right, but paths that collide raise Conflict("already_exists").
    """
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    parent = _commit_at(act, ref)
    old = {entry.item_id: entry for entry in read_entries(act.connection, ref.commit_id)}
    edition = _edition(old, changes)
    changed, deleted = edition.changed, edition.deleted
    _require_no_collision(edition, changed)
    entries = list(edition.entries.values())
    made = _commit(act, [_Next(ref, parent, entries)], edition.texts)
    if made:
        delete_resources(act, deleted)
        write_resources(act, changed, edition.texts)
    touched = drop_from_selections(act, deleted)
    taken = _taken(edition, carrying_project_id, selection)
    if taken is not None and change_selection(act, taken):
        touched.add(taken.project_id)
    count_revisions(act, touched)
    shown = touched | holders(act, [entry.item_id for entry in changed])
    _publish_projections(act, shown, entries)
    return made[0] if made else parent


def publish_project(act: Act, project_id: str) -> Commit | None:
    """Publish the project's selection as its rows are now; its commit afterwards, if it has one.

    The caller changed the rows in this transaction, with the organisation's Ref locked.
    """
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    _publish_projections(act, [project_id], read_entries(act.connection, ref.commit_id))
    return _commit_at(act, read_ref(act, project_key(project_id)))


def _commit_at(act: Act, ref: RefRow) -> Commit | None:
    if ref.commit_id is None:
        return None
    return read_commits(act.connection, [ref.commit_id])[ref.commit_id]


def _edition(old: dict[str, TreeEntry], changes: Iterable[ResourceChange]) -> _Edition:
    edition = _Edition(old, dict(old))
    for change in changes:
        if change.is_deleted:
            edition.entries.pop(change.resource_id, None)
            continue
        entry = _changed(edition.entries.get(change.resource_id), change)
        edition.entries[change.resource_id] = entry
        if change.content is not None:
            edition.texts[entry.blob_id] = change.content
    return edition


def _changed(old: TreeEntry | None, change: ResourceChange) -> TreeEntry:
    text = None if change.content is None else blob_id(change.content)
    if old is None:
        if change.path is None or text is None:
            raise ValueError("a memory that is new needs a path and a content")
        return TreeEntry(
            item_id=change.resource_id,
            resource_kind=MEMORY,
            scope="org",
            path=change.path,
            blob_id=text,
            source="org",
            description=change.description or "",
        )
    return msgspec.structs.replace(
        old,
        path=old.path if change.path is None else change.path,
        blob_id=text or old.blob_id,
        description=old.description if change.description is None else change.description,
    )


def _require_no_collision(edition: _Edition, changed: Iterable[TreeEntry]) -> None:
    """Without a path that is new for its memory there is nothing to look for."""
    if all(
        entry.item_id in edition.old and edition.old[entry.item_id].path == entry.path
        for entry in changed
    ):
        return
    found = find_collision(entry.path or "" for entry in edition.entries.values())
    if found is not None:
        first, second = found
        raise Conflict(
            "already_exists",
            f"The paths {first!a} and {second!a} cannot stand side by side: they are the same, or "
            "one is a folder of the other, where case is ignored. Take another path.",
            {"paths": list(found)},
        )


def _taken(
    edition: _Edition, carrying_project_id: str | None, selection: SelectionChange | None
) -> SelectionChange | None:
    """All that the one project takes and gives up."""
    if carrying_project_id is None:
        return selection
    given = selection or SelectionChange(carrying_project_id)
    if given.project_id != carrying_project_id:
        raise ValueError("a publication changes the selection of the carrying project alone")
    return SelectionChange(carrying_project_id, given.added | edition.created, given.removed)


@dataclass(frozen=True, slots=True)
class _Next:
    """What a Ref is to have after its parent: these entries."""

    ref: RefRow
    parent: Commit | None
    entries: list[TreeEntry]


def _commit(act: Act, nexts: Sequence[_Next], texts: Mapping[str, str]) -> list[Commit]:
    """Keep commits of the entries with their texts and move the Refs there.

    Where the parent has the same tree nothing is made, and where there is neither a parent nor an
    entry. Candidates of drafts on a Ref that moves are void.
    """
    made: dict[str, Commit] = {}
    trees: dict[str, bytes] = {}
    moved: list[RefRow] = []
    for following in nexts:
        payload = tree_payload(following.entries)
        name = object_id("tree", payload)
        parent, ref = following.parent, following.ref
        if (parent.tree_id == name) if parent else not following.entries:
            continue
        trees[name] = payload
        moved.append(ref)
        made[ref.key] = make_commit(
            scope=ref.scope,
            org_id=ref.org_id,
            project_id=ref.project_id,
            tree_id=name,
            parent_commit_id=parent.commit_id if parent else None,
            version=parent.version + 1 if parent else 1,
            created_at=rfc3339(act.now_ns),
        )
    if made:
        insert_blobs(act.connection, (Blob(name, text) for name, text in texts.items()))
        insert_tree_payloads(act.connection, trees)
        insert_commits(act.connection, list(made.values()), act.principal.user_id)
        move_refs(act, {key: commit.commit_id for key, commit in made.items()})
        _void_candidates(act, moved)
    return list(made.values())


def _void_candidates(act: Act, moved: Sequence[RefRow]) -> None:
    """What was proposed for a draft on a Ref that moved is no longer what a rebase would do."""
    names = [ref.project_id for ref in moved if ref.project_id is not None]
    standing = or_(
        *([drafts.c.scope == "org"] if len(names) < len(moved) else []),
        and_(drafts.c.scope == "project", drafts.c.project_id.in_(names)),
    )
    affected = select(drafts.c.draft_id).where(
        drafts.c.org_id == act.principal.org_id,
        drafts.c.status.in_(("open", "submitted")),
        standing,
    )
    act.connection.execute(
        update(candidates)
        .where(candidates.c.invalidated_at.is_(None), candidates.c.draft_id.in_(affected))
        .values(invalidated_at=act.now)
    )


def _publish_projections(
    act: Act, project_ids: Collection[str], entries: Sequence[TreeEntry]
) -> None:
    """The next commit of each project whose view of the organisation's entries changed."""
    live: list[str] = []
    for some in batches(sorted(project_ids)):
        query = select(projects.c.project_id).where(
            projects.c.org_id == act.principal.org_id,
            projects.c.project_id.in_(some),
            projects.c.deleted_at.is_(None),
        )
        live.extend(act.connection.scalars(query.order_by(projects.c.project_id)))
    for some in batches(sorted(live), _PROJECTS):
        _publish_some(act, some, entries)


def _publish_some(act: Act, project_ids: list[str], entries: Sequence[TreeEntry]) -> None:
    refs = read_refs(act, map(project_key, project_ids), lock=True)
    named = [ref.commit_id for ref in refs.values() if ref.commit_id is not None]
    parents = read_commits(act.connection, named)
    selections = read_selections(act, project_ids)
    wanted = frozenset().union(*(chosen.resource_ids for chosen in selections.values()))
    shown = [
        msgspec.structs.replace(entry, source="selected_org")
        for entry in entries
        if entry.item_id in wanted
    ]
    nexts: list[_Next] = []
    texts: dict[str, str] = {}
    for project_id in project_ids:
        ref = refs[project_key(project_id)]
        parent = parents[ref.commit_id] if ref.commit_id is not None else None
        chosen = selections[project_id]
        if parent is None and not chosen.resource_ids:
            continue
        mine = [entry for entry in shown if entry.item_id in chosen.resource_ids]
        text = selection_text(project_id, chosen)
        texts[blob_id(text)] = text
        nexts.append(_Next(ref, parent, [*mine, _selection_entry(project_id, text)]))
    _commit(act, nexts, texts)


def selection_text(project_id: str, chosen: Selection) -> str:
    """The text of a project's selection in its commits."""
    selection = {
        "project_id": project_id,
        "revision": chosen.revision,
        "resource_ids": sorted(chosen.resource_ids),
    }
    return msgspec.json.encode(selection).decode("utf-8")


def _selection_entry(project_id: str, text: str) -> TreeEntry:
    return TreeEntry(
        item_id=f"selection_{project_id}",
        resource_kind=SELECTION,
        scope="daemon",
        project_id=project_id,
        blob_id=blob_id(text),
        source="config",
    )
