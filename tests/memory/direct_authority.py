"""Local projects as versions before `authority.db` made them, for tests.

Their commits go straight into `local.db`, without an authority beside it: what a home of such a
version looks like, and the shortest way to a memory for tests that are about something else. Each
project is an Organization of its own, with one Ref for its memory and one for the selection of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import apsw
import msgspec

from clumsies.errors import Conflict, InvalidRequest, NotFound, StoreFailed
from clumsies.memory.drafts import random_id
from clumsies.memory.operations import check_content
from clumsies.memory.paths import check_path
from clumsies.memory.refs import (
    InstalledRef,
    etag_of,
    move_ref,
    needed_commits,
    organization_key,
    project_key,
    read_ref,
    require_project_ref,
)
from clumsies.server.local import LocalProject
from clumsies.server.memory.imports import ImportedText, ImportReport
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.generations import GenerationStore
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import (
    insert_payload,
    read_commit,
    read_payload,
    read_text,
    read_tree,
)
from clumsies.storage.objects import (
    MEMORY,
    SELECTION,
    Blob,
    Commit,
    CommitPayload,
    TreeEntry,
    blob_id,
    make_commit,
    make_tree,
)
from clumsies.storage.payload_checks import Authority, verify_payload
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from clumsies.storage.timestamps import rfc3339, row_time
from clumsies.storage.tree_paths import find_collision


@dataclass(slots=True)
class _Edition:
    """The Organization's memory as it will be: entries by id, and texts that are new."""

    entries: dict[str, TreeEntry]
    texts: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class LocalAuthority:
    """Local projects; any thread may use it, and one import runs at a time.

    A generation is built before the transaction that moves the Refs, so an import, however large,
    does not hold up a store.
    """

    def __init__(
        self,
        database: LocalDatabase,
        storage: ProjectStorage,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        new_id: Callable[[str], str] = random_id,
    ):
        self._database = database
        self._storage = storage
        self._clock_ns = clock_ns
        self._new_id = new_id
        self._mutex = threading.Lock()

    def create_project(self, name: str) -> LocalProject:
        """A new project with no memory yet, ready to be searched and stored into."""
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise InvalidRequest(
                "invalid_request", "A project needs a printable name of 1 to 200 characters."
            )
        now_ns = self._clock_ns()
        project = LocalProject(
            self._new_id("proj"), self._new_id("org"), name.strip(), row_time(now_ns)
        )
        self._generations(project.project_id).install(None)
        with self._database.writer() as connection:
            connection.execute(
                "INSERT INTO local_projects VALUES (?, ?, ?, ?)",
                (project.project_id, project.org_id, project.name, project.created_at),
            )
            self._move(connection, project, None, None, now_ns)
        return project

    def projects(self) -> list[LocalProject]:
        """Every local project, in order of name."""
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                "SELECT project_id, org_id, name, created_at FROM local_projects "
                "ORDER BY name, project_id",
            )
        return [LocalProject(*row) for row in rows]

    def project(self, project_id: str) -> LocalProject:
        """The project with this id; raises NotFound("not_found")."""
        with self._database.reader() as connection:
            return _project(connection, project_id)

    def import_resources(
        self,
        project_id: str,
        texts: Iterable[ImportedText],
        *,
        remove_others: bool = False,
    ) -> ImportReport:
        """Make the texts part of the project's memory, in one commit of it.

        A path that is there keeps its id and takes the text; others stay, unless `remove_others`.
        Raises InvalidRequest for a path or text that cannot be kept, and for two paths that
        collide; nothing was changed then. Without a difference no commit is made.
        """
        wanted = list(texts)
        for text in wanted:
            check_path(text.path)
            check_content(text.content)
        _check_collisions(text.path for text in wanted)
        with self._mutex:
            with self._database.reader() as connection:
                project = _project(connection, project_id)
                old = read_ref(connection, project_key(project_id))
                old_commit_id = old.commit_id if old is not None else None
                edition = self._edition(connection, project, wanted, remove_others)
                if not (edition.created or edition.updated or edition.removed):
                    return ImportReport(old_commit_id, unchanged=tuple(edition.unchanged))
                now_ns = self._clock_ns()
                organization, payload = self._payloads(connection, project, edition, now_ns)
            self._install(payload, project_id, old_commit_id)
            with self._database.writer() as connection:
                if read_ref(connection, project_key(project_id)) != old:
                    raise Conflict(
                        "draft_conflict",
                        "Another process changed the project meanwhile; import again.",
                    )
                insert_payload(connection, organization)
                insert_payload(connection, payload)
                self._move(connection, project, organization.commit, payload.commit, now_ns)
        return ImportReport(
            payload.commit.commit_id,
            tuple(edition.created),
            tuple(edition.updated),
            tuple(edition.unchanged),
            tuple(edition.removed),
        )

    def _edition(
        self,
        connection: apsw.Connection,
        project: LocalProject,
        wanted: Sequence[ImportedText],
        remove_others: bool,
    ) -> _Edition:
        ref = read_ref(connection, organization_key(project.org_id))
        commit = read_commit(connection, ref.commit_id) if ref and ref.commit_id else None
        old = [] if commit is None else read_tree(connection, commit.tree_id)
        edition = _Edition({entry.item_id: entry for entry in old})
        by_path = {entry.path or "": entry for entry in old}
        for text in wanted:
            self._place(edition, by_path.get(text.path), text)
        if remove_others:
            kept = {text.path for text in wanted}
            for path, entry in sorted(by_path.items()):
                if path not in kept:
                    del edition.entries[entry.item_id]
                    edition.removed.append(path)
        _check_collisions(entry.path or "" for entry in edition.entries.values())
        return edition

    def _place(self, edition: _Edition, old: TreeEntry | None, text: ImportedText) -> None:
        name = old.item_id if old is not None else self._new_id("mem")
        kept = old.description if old is not None else ""
        entry = TreeEntry(
            item_id=name,
            resource_kind=MEMORY,
            scope="org",
            path=text.path,
            blob_id=blob_id(text.content),
            source="org",
            description=kept if text.description is None else text.description,
        )
        kind = edition.created if old is None else edition.updated
        (edition.unchanged if entry == old else kind).append(text.path)
        edition.entries[name] = entry
        edition.texts[entry.blob_id] = text.content

    def _payloads(
        self, connection: apsw.Connection, project: LocalProject, edition: _Edition, now_ns: int
    ) -> tuple[CommitPayload, CommitPayload]:
        """The Organization's and the project's next commits, whole and verified."""
        entries = list(edition.entries.values())
        selection: dict[str, object] = {
            "project_id": project.project_id,
            "revision": 1,
            "resource_ids": sorted(edition.entries),
        }
        chosen = msgspec.json.encode(selection).decode("utf-8")
        texts = _texts(connection, edition)
        selected = [
            *(msgspec.structs.replace(entry, source="selected_org") for entry in entries),
            TreeEntry(
                item_id=f"selection_{project.project_id}",
                resource_kind=SELECTION,
                scope="daemon",
                project_id=project.project_id,
                blob_id=blob_id(chosen),
                source="config",
            ),
        ]
        blobs = [Blob(name, text) for name, text in sorted(texts.items())]
        organization = self._payload(connection, project, entries, blobs, now_ns)
        blobs = [*blobs, Blob(blob_id(chosen), chosen)]
        return organization, self._payload(connection, project, selected, blobs, now_ns, selection)

    @staticmethod
    def _payload(
        connection: apsw.Connection,
        project: LocalProject,
        entries: list[TreeEntry],
        blobs: list[Blob],
        now_ns: int,
        selection: dict[str, object] | None = None,
    ) -> CommitPayload:
        project_id = None if selection is None else project.project_id
        key = organization_key(project.org_id) if project_id is None else project_key(project_id)
        ref = read_ref(connection, key)
        parent = read_commit(connection, ref.commit_id) if ref and ref.commit_id else None
        tree = make_tree(entries)
        commit = make_commit(
            scope="org" if project_id is None else "project",
            org_id=project.org_id,
            project_id=project_id,
            tree_id=tree.tree_id,
            parent_commit_id=parent.commit_id if parent else None,
            version=parent.version + 1 if parent else 1,
            created_at=rfc3339(now_ns),
        )
        payload = CommitPayload(commit, tree, blobs, selection)
        verify_payload(payload, Authority(commit.scope, commit.org_id, commit.project_id))
        return payload

    def _generations(self, project_id: str) -> GenerationStore:
        place = self._storage.prepare(LOCAL_AUTHORITY, project_id)
        return GenerationStore(place.generations, project_id)

    def _install(
        self, payload: CommitPayload | None, project_id: str, previous_commit_id: str | None
    ) -> None:
        """Put a generation in its place; one that is there and damaged is made anew."""
        generations = self._generations(project_id)
        try:
            generations.install(payload, previous_commit_id=previous_commit_id)
        except StoreFailed as error:
            if error.code != "commit_generation_corrupt":
                raise
            generations.discard(payload.commit.commit_id if payload else None)
            generations.install(payload, previous_commit_id=previous_commit_id)

    def _move(
        self,
        connection: apsw.Connection,
        project: LocalProject,
        organization: Commit | None,
        selected: Commit | None,
        now_ns: int,
    ) -> None:
        """Both Refs, the project's first, so that the Organization's finds it."""
        now = row_time(now_ns)
        name = selected.commit_id if selected else None
        ref = InstalledRef(
            "project", project.org_id, project.project_id, name, etag_of(name), rfc3339(now_ns)
        )
        move_ref(connection, ref, now)
        name = organization.commit_id if organization else None
        ref = InstalledRef("org", project.org_id, None, name, etag_of(name), rfc3339(now_ns))
        move_ref(connection, ref, now)

    def restore_generation(self, project_id: str) -> None:
        """Write the installed commit's generation again from the objects: after a cache was
        cleared, or a generation was found missing or corrupt."""
        with self._mutex:
            with self._database.reader() as connection:
                ref = require_project_ref(connection, project_id)
                payload = read_payload(connection, ref.commit_id) if ref.commit_id else None
            generations = self._generations(project_id)
            generations.discard(ref.commit_id)
            generations.install(payload)

    def collect_generations(self, project_id: str) -> list[str]:
        """Remove generations that neither the Ref nor a draft's base needs; their names."""
        with self._mutex:  # no import is between building a generation and moving the Ref to it
            with self._database.reader() as connection:
                needed = needed_commits(connection, project_id)
            return self._generations(project_id).collect(needed)


def _project(connection: apsw.Connection, project_id: str) -> LocalProject:
    row = first_row(
        connection,
        "SELECT project_id, org_id, name, created_at FROM local_projects WHERE project_id = ?",
        (project_id,),
    )
    if row is None:
        raise NotFound(
            "not_found",
            f"There is no local project {project_id!a}; `clumsies projects` lists them.",
        )
    return LocalProject(*row)


def _texts(connection: apsw.Connection, edition: _Edition) -> dict[str, str]:
    """Every text of the edition by blob id: the new ones, and the old ones from the database."""
    texts: dict[str, str] = {}
    for entry in edition.entries.values():
        new = edition.texts.get(entry.blob_id)
        text = read_text(connection, entry.blob_id) if new is None else new
        texts[entry.blob_id] = text
    return texts


def _check_collisions(paths: Iterable[str]) -> None:
    found = find_collision(paths)
    if found is not None:
        first, second = found
        raise InvalidRequest(
            "invalid_request",
            f"The paths {first!a} and {second!a} cannot stand side by side: they are the same, or "
            "one is a folder of the other, where case is ignored. Rename one.",
            {"paths": list(found)},
        )
