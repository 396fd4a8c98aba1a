"""Reading units and resources out of one revision."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import apsw
import numpy as np
import numpy.typing as npt

from clumsies.engine.supersession import HEAD_CHARS, Page
from clumsies.engine.trace import Candidate
from clumsies.errors import ModelFailed, NotFound
from clumsies.models.encoder import TokenVectors
from clumsies.storage.database import all_rows, first_row, is_storable
from clumsies.types import ContentHash, Locator, Resource, ResourceId, UnitKey

_RESOURCE_COLUMNS = (
    "resource_id, path, content, description, kind, scope, source_commit_id, draft_id, "
    "draft_revision"
)


def read_candidates(connection: apsw.Connection, rowids: Iterable[int]) -> dict[int, Candidate]:
    """A fresh candidate of every row that this revision has; rows it has not are left out."""
    found: dict[int, Candidate] = {}
    for rowid in rowids:
        row = first_row(
            connection,
            "SELECT unit_key, resource_id, scope, kind, path, heading_path, start_byte, end_byte, "
            "text_hash, content_hash, token_count, text FROM units "
            "JOIN resources USING (resource_rowid) WHERE unit_rowid = ?",
            (rowid,),
        )
        if row is None:
            continue
        key, resource, scope, kind, path, headings, start, end, text_hash, whole, count, text = row
        found[rowid] = Candidate(
            unit_key=UnitKey(key),
            resource_id=ResourceId(resource),
            scope=scope,
            kind=kind,
            path=path,
            heading_path=tuple(json.loads(headings)),
            locator=Locator(start, end),
            content_hash=ContentHash(text_hash),
            resource_content_hash=ContentHash(whole),
            token_count=count,
            text=text,
        )
    return found


def read_pages(connection: apsw.Connection, resource_ids: Iterable[str]) -> list[Page]:
    """The heads of those resources that this revision has, in the order given."""
    found: list[Page] = []
    for resource_id in resource_ids:
        row = first_row(
            connection,
            "SELECT path, title, substr(content, 1, ?) FROM resources WHERE resource_id = ?",
            (HEAD_CHARS, resource_id),
        )
        if row is not None:
            found.append(Page(resource_id, *row))
    return found


def read_vectors(
    connection: apsw.Connection, dimensions: int, after_rowid: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Unit rows above `after_rowid` as (int64 (n,) ascending, float32 (n, dimensions))."""
    rows = all_rows(
        connection,
        "SELECT unit_rowid, vector FROM units JOIN vectors USING (vector_id) "
        "WHERE unit_rowid > ? ORDER BY unit_rowid",
        (after_rowid,),
    )
    ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
    data = b"".join(row[1] for row in rows)
    if any(len(row[1]) != 4 * dimensions for row in rows):
        raise ModelFailed(
            "search_vector_corrupt",
            "A stored vector has a wrong size; delete the index and index again.",
        )
    vectors = np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
    return ids, vectors.reshape(len(rows), dimensions)


def read_unit_rowids(connection: apsw.Connection) -> npt.NDArray[np.int64]:
    """int64 (n,) ascending: every unit row of this revision."""
    rows = all_rows(connection, "SELECT unit_rowid FROM units ORDER BY unit_rowid")
    return np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))


def read_token_vectors(
    connection: apsw.Connection, rowids: Sequence[int], dimensions: int
) -> dict[int, TokenVectors]:
    """Stored token vectors by unit row, of those rows that have any."""
    found: dict[int, TokenVectors] = {}
    for rowid in rowids:
        row = first_row(
            connection,
            "SELECT data FROM token_vectors JOIN units USING (vector_id) WHERE unit_rowid = ?",
            (rowid,),
        )
        if row is not None:
            found[rowid] = TokenVectors.from_bytes(row[0], dimensions)
    return found


def lacking_units(connection: apsw.Connection, keys: Iterable[str]) -> list[str]:
    """Those of the unit keys that this revision does not have, in the order given."""
    return [
        key
        for key in keys
        if first_row(connection, "SELECT 1 FROM units WHERE unit_key = ?", (key,)) is None
    ]


def read_resource_ids(connection: apsw.Connection) -> list[str]:
    """Ids of every resource of this revision, ascending."""
    rows = all_rows(connection, "SELECT resource_id FROM resources ORDER BY resource_id")
    return [row[0] for row in rows]


def read_resources(connection: apsw.Connection, names: Iterable[str]) -> list[Resource]:
    """Whole resources by id, else by exact path; each once, in the order first named.

    Raises NotFound("memory_resource_not_found") that names all that are missing.
    """
    found: dict[str, Resource] = {}
    missing: list[str] = []
    for name in names:
        if not is_storable(name):
            missing.append(name)
            continue
        row = first_row(
            connection, f"SELECT {_RESOURCE_COLUMNS} FROM resources WHERE resource_id = ?", (name,)
        ) or first_row(
            connection,
            f"SELECT {_RESOURCE_COLUMNS} FROM resources WHERE path = ? ORDER BY resource_id",
            (name,),
        )
        if row is None:
            missing.append(name)
        else:
            resource_id, path, content, description, kind, scope, *rest = row
            found[resource_id] = Resource(
                ResourceId(resource_id), path, content, description, kind, scope, *rest
            )
    if missing:
        raise NotFound(
            "memory_resource_not_found",
            f"No resource has the id or path {', '.join(map(repr, missing))}; "
            "use an id or path that a search returned.",
            {"missing": missing},
        )
    return list(found.values())
