"""The Server's objects: inserted once, never changed, never removed.

Every function asks the database a number of times that does not depend on how many objects it is
about, but for a division into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from clumsies.errors import StoreFailed
from clumsies.server.schema import blobs, commits, trees
from clumsies.storage.objects import (
    Blob,
    Commit,
    CommitPayload,
    Tree,
    TreeEntry,
    entries_of,
    tree_payload,
)
from clumsies.types import content_hash

BATCH = 5_000
"""Ids in one statement: SQLite allows 32,766 variables, PostgreSQL 65,535."""
_Item = TypeVar("_Item")


def batches(items: Iterable[_Item], size: int = BATCH) -> Iterator[list[_Item]]:
    """The items in their order, at most `size` at a time."""
    ordered = list(items)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows but for those whose key is there, even by a transaction beside this one."""
    if rows:
        new = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        connection.execute(new(table).on_conflict_do_nothing(), list(rows))


def insert_blobs(connection: Connection, texts: Iterable[Blob]) -> None:
    """Keep the texts; one that is there stays as it is.

    Raises StoreFailed("object_corrupt") where another text stands under an id.
    """
    wanted = {blob.blob_id: blob.content for blob in texts}
    hashes = {name: content_hash(text) for name, text in wanted.items()}
    present = content_hashes(connection, wanted)
    for name, found in present.items():
        if found != hashes[name]:
            raise _other(name)
    rows = [
        {"blob_id": name, "content": wanted[name].encode("utf-8"), "content_hash": hashes[name]}
        for name in sorted(wanted.keys() - present.keys())
    ]
    insert_new(connection, blobs, rows)


def insert_tree(connection: Connection, tree: Tree) -> None:
    """Keep a tree; raises as `insert_blobs`."""
    insert_tree_payloads(connection, {tree.tree_id: tree_payload(tree.entries)})


def insert_tree_payloads(connection: Connection, payloads: Mapping[str, bytes]) -> None:
    """Keep trees as the bytes that their ids were computed from; raises as `insert_blobs`."""
    query = select(trees.c.tree_id, trees.c.payload)
    present = {row.tree_id: row.payload for row in _where_in(connection, query, payloads)}
    for name, payload in present.items():
        if bytes(payload) != payloads[name]:
            raise _other(name)
    rows = [
        {"tree_id": name, "payload": payloads[name]}
        for name in sorted(payloads.keys() - present.keys())
    ]
    insert_new(connection, trees, rows)


def insert_commit(connection: Connection, commit: Commit, author_id: str | None = None) -> None:
    """Keep a commit whose tree is there; raises as `insert_blobs`."""
    insert_commits(connection, [commit], author_id)


def insert_commits(
    connection: Connection, new: Sequence[Commit], author_id: str | None = None
) -> None:
    """Keep commits whose trees are there; raises as `insert_blobs`."""
    wanted = {commit.commit_id: commit for commit in new}
    present = read_commits(connection, wanted)
    for name, commit in present.items():
        if commit != wanted[name]:
            raise _other(name)
    rows = [
        msgspec.structs.asdict(wanted[name]) | {"author_id": author_id}
        for name in sorted(wanted.keys() - present.keys())
    ]
    insert_new(connection, commits, rows)


def read_commit(connection: Connection, commit_id: str) -> Commit | None:
    """The commit, whoever it belongs to; None where there is none."""
    return read_commits(connection, [commit_id]).get(commit_id)


def read_commits(connection: Connection, commit_ids: Iterable[str]) -> dict[str, Commit]:
    """Commits by id; those that are not there are left out."""
    found = _where_in(connection, select(commits), commit_ids)
    return {row.commit_id: commit_of(row) for row in found}


def commit_of(row: Row[Any]) -> Commit:
    """The commit of a row that has every column of `commits`."""
    return Commit(
        commit_id=row.commit_id,
        scope=row.scope,
        org_id=row.org_id,
        project_id=row.project_id,
        tree_id=row.tree_id,
        parent_commit_id=row.parent_commit_id,
        version=row.version,
        created_at=row.created_at,
    )


def read_tree(connection: Connection, tree_id: str) -> list[TreeEntry]:
    """A tree's entries in canonical order; raises StoreFailed where it is not there."""
    payload = connection.scalar(select(trees.c.payload).where(trees.c.tree_id == tree_id))
    if payload is None:
        raise _missing("tree", tree_id)
    return entries_of(bytes(payload))


def read_entries(connection: Connection, commit_id: str | None) -> list[TreeEntry]:
    """The entries of a commit's tree in canonical order; none without a commit."""
    if commit_id is None:
        return []
    payload = connection.scalar(
        select(trees.c.payload)
        .join(commits, commits.c.tree_id == trees.c.tree_id)
        .where(commits.c.commit_id == commit_id)
    )
    if payload is None:
        raise _missing("commit", commit_id)
    return entries_of(bytes(payload))


def read_blobs(connection: Connection, blob_ids: Iterable[str]) -> list[Blob]:
    """The texts in the order of their ids' first standing; raises StoreFailed for a missing one."""
    wanted = list(dict.fromkeys(blob_ids))
    query = select(blobs.c.blob_id, blobs.c.content)
    found = {row.blob_id: row.content for row in _where_in(connection, query, wanted)}
    for name in wanted:
        if name not in found:
            raise _missing("blob", name)
    return [Blob(name, bytes(found[name]).decode("utf-8")) for name in wanted]


def read_texts(connection: Connection, blob_ids: Iterable[str]) -> dict[str, str]:
    """Texts by blob id; raises StoreFailed where one is not there."""
    return {blob.blob_id: blob.content for blob in read_blobs(connection, blob_ids)}


def read_text(connection: Connection, blob_id: str) -> str:
    """A blob's text; raises StoreFailed where it is not there."""
    return read_texts(connection, [blob_id])[blob_id]


def content_hashes(connection: Connection, blob_ids: Iterable[str]) -> dict[str, str]:
    """The hash of each text by blob id; those that are not there are left out."""
    query = select(blobs.c.blob_id, blobs.c.content_hash)
    return {row.blob_id: row.content_hash for row in _where_in(connection, query, blob_ids)}


def payload_of(
    connection: Connection, commit_id: str, without: frozenset[str] = frozenset()
) -> CommitPayload:
    """The payload of a commit, its texts but for the blobs of `without`.

    Raises StoreFailed("object_corrupt") where the commit or a part of it is not there.
    """
    commit = read_commit(connection, commit_id)
    if commit is None:
        raise _missing("commit", commit_id)
    entries = read_tree(connection, commit.tree_id)
    chosen = next((entry.blob_id for entry in entries if not entry.is_memory), None)
    selection: dict[str, object] | None = None
    if chosen is not None:
        text = read_text(connection, chosen)
        selection = msgspec.json.decode(text.encode("utf-8"), type=dict[str, object])
    texts = read_blobs(
        connection, (entry.blob_id for entry in entries if entry.blob_id not in without)
    )
    return CommitPayload(commit, Tree(commit.tree_id, entries), texts, selection)


def _where_in(
    connection: Connection, query: Select[Any], names: Iterable[str]
) -> Iterator[Row[Any]]:
    """The rows whose first selected column is one of the names."""
    column = query.selected_columns[0]
    for some in batches(dict.fromkeys(names)):
        yield from connection.execute(query.where(column.in_(some)))


def _other(object_id: str) -> StoreFailed:
    return StoreFailed(
        "object_corrupt",
        f"Another object stands under the id {object_id}; nothing was changed. Restore the "
        "database from a backup.",
        {"object_id": object_id},
    )


def _missing(kind: str, name: str) -> StoreFailed:
    return StoreFailed(
        "object_corrupt",
        f"The {kind} {name} is not in the database though something names it. Restore the "
        "database from a backup.",
        {"object_id": name},
    )
