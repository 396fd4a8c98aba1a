"""Writing a revision: one transaction from the old live set to the new one.

A unit whose key, headings and text are as before keeps its row, its terms and its vector, so the
cost of a commit grows with what changed and not with the memory.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import apsw
import numpy as np

from clumsies.engine.analysis import document_terms
from clumsies.engine.index import RULES, Head, IndexStore, read_head, write_head
from clumsies.engine.lexical import identity_key
from clumsies.engine.plan import Plan, label_facts
from clumsies.engine.revisions import effective_hash, index_revision
from clumsies.engine.units import title_of
from clumsies.models.manifest import Profile
from clumsies.models.sessions import FloatArray
from clumsies.storage.database import all_rows, only_row
from clumsies.types import Resource, Unit

IDLE_VECTOR_LIMIT = 4_096
"""Vectors that no unit uses and that are kept all the same: an edit undone costs nothing."""
TOKEN_VECTOR_BYTES = 1024 * 1024 * 1024
"""Bound of the stored token vectors; those of the latest built passages are kept.

A full unit has some 100 KB of them, so about 10,000 units find room. What does not is embedded
again by each query that wants it, which takes several times as long as all else of the query."""


@dataclass(frozen=True, slots=True)
class BuiltUnit:
    """A unit and the hash its vector is kept under."""

    unit: Unit
    input_hash: str


@dataclass(slots=True)
class VectorChange:
    """What the vector index must follow: rows that appeared, with vectors, and rows that went."""

    head: Head
    previous_sequence: int
    added_ids: list[int] = field(default_factory=list)
    added_vectors: list[FloatArray] = field(default_factory=list)
    removed_ids: list[int] = field(default_factory=list)


class RevisionWriter:
    """Commits plans to one store."""

    def __init__(self, store: IndexStore, profile: Profile, project_id: str):
        self._store = store
        self._profile = profile
        self._project_id = project_id

    def commit(
        self, plan: Plan, built: list[list[BuiltUnit]], base_commit_id: str | None
    ) -> tuple[Head, VectorChange | None]:
        """Apply the plan; the head is returned as it is afterwards, with the change if any."""
        with self._store.writer() as connection:
            old = read_head(connection)
            # Terms that other rules made are not known to be right: no row of theirs is kept.
            change = _Change(keeps=old is not None and old.rules == RULES)
            for gone in plan.removed:
                change.remove_resource(connection, gone)
            for (resource, rowid), units in zip(plan.changed, built, strict=True):
                change.replace_resource(connection, resource, rowid, units)
            for resource, labelled in plan.relabelled:
                connection.execute(
                    "UPDATE resources SET kind = ?, scope = ?, source_commit_id = ?, "
                    "draft_id = ?, draft_revision = ? WHERE resource_rowid = ?",
                    (*label_facts(resource), labelled),
                )
            head = self._next_head(connection, old, base_commit_id)
            if old is not None and head.revision == old.revision and not change.touched:
                return old, None
            write_head(connection, head)
            _bound_idle_vectors(connection)
            _bound_token_vectors(connection)
        previous = old.sequence if old else 0
        return head, VectorChange(head, previous, change.added, change.vectors, change.removed)

    def _next_head(
        self, connection: apsw.Connection, old: Head | None, base_commit_id: str | None
    ) -> Head:
        profile = self._profile
        whole = effective_hash(self._project_id, base_commit_id, _effective_rows(connection))
        (resources,) = only_row(connection, "SELECT count(*) FROM resources")
        (units,) = only_row(connection, "SELECT count(*) FROM units")
        return Head(
            sequence=old.sequence + 1 if old else 1,
            stamp=secrets.token_hex(16),
            revision=index_revision(whole, profile.embedding_revision, profile.dimensions),
            effective_hash=whole,
            rules=RULES,
            embedding_revision=profile.embedding_revision,
            profile=profile.name,
            dimensions=profile.dimensions,
            resource_count=resources,
            unit_count=units,
        )


def _effective_rows(
    connection: apsw.Connection,
) -> Iterator[tuple[str, str, str, str, str, str, str]]:
    yield from connection.execute(
        "SELECT resource_id, kind, scope, path, content_hash, ifnull(draft_id, ''), "
        "ifnull(draft_revision, '') FROM resources ORDER BY resource_id"
    )


class _Change:
    """The rows of units that one commit adds and takes away."""

    def __init__(self, keeps: bool) -> None:
        self._keeps = keeps
        self.added: list[int] = []
        self.vectors: list[FloatArray] = []
        self.removed: list[int] = []
        self.touched = False

    def remove_resource(self, connection: apsw.Connection, rowid: int) -> None:
        rows = all_rows(
            connection,
            "SELECT unit_rowid, vector_id FROM units WHERE resource_rowid = ?",
            (rowid,),
        )
        for unit_rowid, vector_id in rows:
            self._remove_unit(connection, unit_rowid, vector_id)
        connection.execute("DELETE FROM resources WHERE resource_rowid = ?", (rowid,))
        self.touched = True

    def replace_resource(
        self,
        connection: apsw.Connection,
        resource: Resource,
        rowid: int | None,
        units: list[BuiltUnit],
    ) -> None:
        """Write the resource and its units; units that are as before keep their rows."""
        self.touched = True
        title = title_of(resource)
        kept = self._keepable(connection, rowid, resource, title) if rowid is not None else {}
        resource_rowid = _write_resource(connection, resource, rowid, title)
        for item in units:
            unit = item.unit
            headings = json.dumps(unit.heading_path, ensure_ascii=False)
            found = kept.pop((unit.unit_key, item.input_hash, headings), None)
            if found is not None:
                connection.execute(
                    "UPDATE units SET ordinal = ?, start_byte = ?, end_byte = ? "
                    "WHERE unit_rowid = ?",
                    (unit.ordinal, unit.locator.start, unit.locator.end, found[0]),
                )
                continue
            self._add_unit(connection, resource_rowid, resource.path, title, headings, item)
        for unit_rowid, vector_id in kept.values():
            self._remove_unit(connection, unit_rowid, vector_id)

    def _keepable(
        self, connection: apsw.Connection, rowid: int, resource: Resource, title: str
    ) -> dict[tuple[str, str, str], tuple[int, int]]:
        """Old units as (row, vector) by (key, input hash, headings).

        All of them go at once where path, title or the rules changed.
        """
        old_path, old_title = only_row(
            connection, "SELECT path, title FROM resources WHERE resource_rowid = ?", (rowid,)
        )
        rows = all_rows(
            connection,
            "SELECT unit_key, input_hash, heading_path, unit_rowid, units.vector_id FROM units "
            "JOIN vectors USING (vector_id) WHERE resource_rowid = ?",
            (rowid,),
        )
        if self._keeps and (old_path, old_title) == (resource.path, title):
            return {(row[0], row[1], row[2]): (row[3], row[4]) for row in rows}
        for *_, unit_rowid, vector_id in rows:
            self._remove_unit(connection, unit_rowid, vector_id)
        return {}

    def _add_unit(
        self,
        connection: apsw.Connection,
        resource_rowid: int,
        path: str,
        title: str,
        headings: str,
        item: BuiltUnit,
    ) -> None:
        unit = item.unit
        vector_id, vector = only_row(
            connection,
            "SELECT vector_id, vector FROM vectors WHERE input_hash = ?",
            (item.input_hash,),
        )
        connection.execute("DELETE FROM idle_vectors WHERE vector_id = ?", (vector_id,))
        connection.execute(
            "INSERT INTO units(resource_rowid, unit_key, ordinal, heading_path, start_byte, "
            "end_byte, token_count, text_hash, text, vector_id) VALUES (?,?,?,?,?,?,?,?,?,?)",
            (
                resource_rowid,
                unit.unit_key,
                unit.ordinal,
                headings,
                unit.locator.start,
                unit.locator.end,
                unit.token_count,
                unit.text_hash,
                unit.text,
                vector_id,
            ),
        )
        unit_rowid = int(connection.last_insert_rowid())
        connection.execute(
            "INSERT INTO unit_terms(rowid, path, title, heading, body) VALUES (?,?,?,?,?)",
            (
                unit_rowid,
                document_terms(path),
                document_terms(title),
                document_terms("\n".join(unit.heading_path)),
                document_terms(unit.text),
            ),
        )
        self.added.append(unit_rowid)
        self.vectors.append(np.frombuffer(vector, dtype="<f4").astype(np.float32, copy=False))

    def _remove_unit(self, connection: apsw.Connection, unit_rowid: int, vector_id: int) -> None:
        connection.execute("DELETE FROM unit_terms WHERE rowid = ?", (unit_rowid,))
        connection.execute("DELETE FROM units WHERE unit_rowid = ?", (unit_rowid,))
        connection.execute(
            "INSERT OR IGNORE INTO idle_vectors(vector_id) SELECT ?1 "
            "WHERE NOT EXISTS (SELECT 1 FROM units WHERE vector_id = ?1)",
            (vector_id,),
        )
        self.removed.append(unit_rowid)


def _write_resource(
    connection: apsw.Connection, resource: Resource, rowid: int | None, title: str
) -> int:
    values = (
        resource.resource_id,
        resource.path,
        title,
        resource.description,
        resource.content,
        resource.content_hash,
        identity_key(resource.resource_id),
        identity_key(resource.path),
        identity_key(title),
        *label_facts(resource),
    )
    columns = (
        "resource_id, path, title, description, content, content_hash, id_key, path_key, "
        "title_key, kind, scope, source_commit_id, draft_id, draft_revision"
    )
    if rowid is None:
        marks = ",".join("?" * len(values))
        connection.execute(f"INSERT INTO resources({columns}) VALUES ({marks})", values)
        return connection.last_insert_rowid()
    marks = ",".join("?" * len(values))
    connection.execute(
        f"UPDATE resources SET ({columns}) = ({marks}) WHERE resource_rowid = ?", (*values, rowid)
    )
    return rowid


def _bound_idle_vectors(connection: apsw.Connection) -> None:
    connection.execute(
        "DELETE FROM vectors WHERE vector_id IN (SELECT vector_id FROM idle_vectors "
        "ORDER BY idle_order DESC LIMIT -1 OFFSET ?)",
        (IDLE_VECTOR_LIMIT,),
    )


def _bound_token_vectors(connection: apsw.Connection) -> None:
    """Drop the oldest token vectors beyond TOKEN_VECTOR_BYTES. Reads an index alone, no vectors."""
    total = 0
    for vector_id, size in connection.execute(
        "SELECT vector_id, length(data) FROM token_vectors INDEXED BY token_vectors_by_size "
        "ORDER BY vector_id DESC"
    ):
        total += size
        if total > TOKEN_VECTOR_BYTES:
            connection.execute("DELETE FROM token_vectors WHERE vector_id <= ?", (vector_id,))
            return
