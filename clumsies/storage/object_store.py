"""The objects that this machine has, in `local.db`: inserted once, never changed.

Trees and commits are kept as the bytes their ids are computed from. A blob's content hash stands
beside it, so that a memory can be described without its texts being read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apsw
import msgspec

from clumsies.errors import StoreFailed
from clumsies.storage.database import first_row
from clumsies.storage.objects import (
    Blob,
    Commit,
    CommitPayload,
    Tree,
    TreeEntry,
    commit_payload,
    entries_of,
    tree_payload,
)
from clumsies.types import ContentHash, content_hash

_BATCH = 500


def insert_payload(connection: apsw.Connection, payload: CommitPayload) -> None:
    """Keep every object of a verified payload; what is there already stays as it is.

    Raises StoreFailed("object_corrupt") where other bytes stand under an id.
    """
    hashes = {blob.blob_id: content_hash(blob.content) for blob in payload.blobs}
    present = content_hashes(connection, hashes)
    for name, found in present.items():
        if found != hashes[name]:
            raise _other(name)
    connection.executemany(
        "INSERT INTO cached_blobs VALUES (?, ?, ?)",
        [
            (blob.blob_id, blob.content, hashes[blob.blob_id])
            for blob in payload.blobs
            if blob.blob_id not in present
        ],
    )
    commit, tree = payload.commit, payload.tree
    _insert(
        connection,
        ("cached_trees", "tree_id"),
        (tree.tree_id, tree_payload(tree.entries).decode("utf-8")),
    )
    _insert(
        connection,
        ("cached_commits", "commit_id"),
        (
            commit.commit_id,
            commit.scope,
            commit.org_id,
            commit.project_id,
            commit.tree_id,
            commit.parent_commit_id,
            commit.version,
            commit.created_at,
            commit_payload(commit).decode("utf-8"),
        ),
    )


def _insert(
    connection: apsw.Connection, table: tuple[str, str], row: tuple[str | int | None, ...]
) -> None:
    """Insert `row`, its id first and its bytes last, into (table, id column), or check that the
    same bytes are there."""
    name, id_column = table
    places = ", ".join("?" * len(row))
    connection.execute(
        f"INSERT INTO {name} VALUES ({places}) ON CONFLICT ({id_column}) DO NOTHING", row
    )
    if connection.changes():
        return
    query = f"SELECT payload_json FROM {name} WHERE {id_column} = ?"
    if first_row(connection, query, row[:1]) != row[-1:]:
        raise _other(str(row[0]))


def _other(object_id: str) -> StoreFailed:
    return StoreFailed(
        "object_corrupt",
        f"Another object stands under the id {object_id}; nothing was changed. "
        "Run `clumsies doctor`.",
        {"object_id": object_id},
    )


def has_commit(connection: apsw.Connection, commit_id: str) -> bool:
    """Whether the commit, and with it its tree and blobs, is on this machine."""
    row = first_row(connection, "SELECT 1 FROM cached_commits WHERE commit_id = ?", (commit_id,))
    return row is not None


def read_commit(connection: apsw.Connection, commit_id: str) -> Commit | None:
    """The commit, or None where it is not on this machine."""
    row = first_row(
        connection,
        "SELECT commit_id, scope, org_id, project_id, tree_id, parent_commit_id, version, "
        "created_at FROM cached_commits WHERE commit_id = ?",
        (commit_id,),
    )
    if row is None:
        return None
    name, scope, org, project, tree, parent, version, created = row
    return Commit(
        commit_id=name,
        scope=scope,
        org_id=org,
        project_id=project,
        tree_id=tree,
        parent_commit_id=parent,
        version=version,
        created_at=created,
    )


def read_tree(connection: apsw.Connection, tree_id: str) -> list[TreeEntry]:
    """A tree's entries in canonical order; raises StoreFailed where it is not there."""
    row = first_row(
        connection, "SELECT payload_json FROM cached_trees WHERE tree_id = ?", (tree_id,)
    )
    if row is None:
        raise _missing("tree", tree_id)
    return entries_of(str(row[0]).encode("utf-8"))


def read_text(connection: apsw.Connection, blob_id: str) -> str:
    """A blob's text; raises StoreFailed where it is not there."""
    row = first_row(connection, "SELECT content FROM cached_blobs WHERE blob_id = ?", (blob_id,))
    if row is None:
        raise _missing("blob", blob_id)
    return str(row[0])


def content_hashes(connection: apsw.Connection, blob_ids: Iterable[str]) -> dict[str, ContentHash]:
    """The hash of each blob's text, by blob id; those not on this machine are left out."""
    found: dict[str, ContentHash] = {}
    for names in _batches(dict.fromkeys(blob_ids)):
        rows = connection.execute(
            "SELECT blob_id, content_hash FROM cached_blobs "
            "WHERE blob_id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(names).decode(),),
        )
        found.update({row[0]: ContentHash(row[1]) for row in rows})
    return found


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    ordered = list(names)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]


def read_payload(connection: apsw.Connection, commit_id: str) -> CommitPayload | None:
    """The whole payload of a commit, as it can be verified or materialised again; None where the
    commit is not on this machine."""
    commit = read_commit(connection, commit_id)
    if commit is None:
        return None
    entries = read_tree(connection, commit.tree_id)
    names = dict.fromkeys(entry.blob_id for entry in entries)
    blobs = [Blob(name, read_text(connection, name)) for name in names]
    selection: dict[str, object] | None = None
    texts = {blob.blob_id: blob.content for blob in blobs}
    for entry in entries:
        if not entry.is_memory:
            selection = msgspec.json.decode(texts[entry.blob_id], type=dict[str, object])
    return CommitPayload(commit, Tree(commit.tree_id, entries), blobs, selection)


def _missing(kind: str, name: str) -> StoreFailed:
    return StoreFailed(
        "object_corrupt",
        f"The {kind} {name} is not in the local database though a commit names it. "
        "Run `clumsies doctor`.",
        {"object_id": name},
    )
