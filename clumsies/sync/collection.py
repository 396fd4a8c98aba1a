"""Removing commits that nothing needs: no Ref stands at them, and on them no draft that is
active or still to be sent.

A commit is removed in the second cycle that finds it unneeded, so that a reader that began before
the Ref moved still finds its texts.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import apsw
import msgspec

from clumsies.memory.refs import ACTIVE, needed_commits
from clumsies.storage.database import all_rows
from clumsies.storage.generations import GenerationStore
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import ProjectStorage


class Collector:
    """Objects of the whole database and generations of projects; one thread at a time."""

    def __init__(
        self, database: LocalDatabase, storage: ProjectStorage, installing: threading.Lock
    ):
        self._database = database
        self._storage = storage
        self._installing = installing
        self._unneeded: frozenset[str] = frozenset()

    def collect_objects(self) -> int:
        """Remove commits that were unneeded the last time too, with what only they have; how
        many commits."""
        with self._database.reader() as connection:
            unneeded = _unneeded(connection)
        ripe = unneeded & self._unneeded
        self._unneeded = unneeded
        if not ripe:
            return 0
        with self._database.writer() as connection:
            ripe &= _unneeded(connection)
            _delete(connection, sorted(ripe))
        return len(ripe)

    def collect_generations(self, server_url: str, project_ids: Sequence[str]) -> None:
        """Remove generations that these projects no longer need."""
        for project_id in project_ids:
            place = self._storage.location(server_url, project_id)
            with self._installing:
                with self._database.reader() as connection:
                    needed = needed_commits(connection, project_id)
                if needed:
                    GenerationStore(place.generations, project_id).collect(needed)


def _unneeded(connection: apsw.Connection) -> frozenset[str]:
    rows = all_rows(
        connection,
        "SELECT commit_id FROM cached_commits EXCEPT "
        "SELECT commit_id FROM cached_refs EXCEPT "
        f"SELECT base_commit_id FROM local_drafts WHERE {ACTIVE} EXCEPT "
        "SELECT base_commit_id FROM local_drafts JOIN local_draft_operations USING (draft_id) "
        "WHERE sync_status <> 'synced'",
    )
    return frozenset(str(row[0]) for row in rows)


def _delete(connection: apsw.Connection, commit_ids: Sequence[str]) -> None:
    """Delete commits, then trees that no commit has, then those trees' texts that none has."""
    names = msgspec.json.encode(commit_ids).decode()
    trees = (
        "SELECT tree_id FROM cached_commits WHERE commit_id IN (SELECT value FROM json_each(?1)) "
        "EXCEPT SELECT tree_id FROM cached_commits "
        "WHERE commit_id NOT IN (SELECT value FROM json_each(?1))"
    )
    gone = [str(row[0]) for row in all_rows(connection, trees, (names,))]
    connection.execute(
        "DELETE FROM cached_commits WHERE commit_id IN (SELECT value FROM json_each(?))", (names,)
    )
    gone_json = (msgspec.json.encode(gone).decode(),)
    blobs = (
        "SELECT json_extract(value, '$.blob_id') FROM cached_trees, json_each(payload_json) "
        "WHERE tree_id IN (SELECT value FROM json_each(?1))"
    )
    others = blobs.replace("tree_id IN", "tree_id NOT IN")
    connection.execute(
        f"DELETE FROM cached_blobs WHERE blob_id IN ({blobs} EXCEPT {others})", gone_json
    )
    connection.execute(
        "DELETE FROM cached_trees WHERE tree_id IN (SELECT value FROM json_each(?))", gone_json
    )
