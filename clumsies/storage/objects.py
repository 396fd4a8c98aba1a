"""Content-addressed objects: blobs, trees and commits, their bytes and their ids.

An id is the hex SHA-256 of the kind's name, a zero byte and the payload. Payloads:

| object | bytes |
| --- | --- |
| blob | the text in UTF-8 |
| tree | compact JSON array of entries in canonical order; an entry's keys in the order item_id, |
|      | resource_kind, scope, project_id, path, blob_id, source, description (left out if empty) |
| commit | compact JSON array: scope, org_id, project_id, tree_id, parent_commit_id, version, |
|      | created_at as Unix nanoseconds |

On the wire an entry's `item_id` is `id` and its `resource_kind` is `type`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from clumsies.storage.timestamps import nanoseconds

ObjectKind = Literal["blob", "tree", "commit"]
MEMORY = "memory"
SELECTION = "project_org_selection"
LEGACY_MEMORY_KINDS = frozenset({"rule", "context", "workflow"})
MAIN_REF = "refs/heads/main"


class TreeEntry(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"item_id": "id", "resource_kind": "type"},
):
    """One resource, or the project's selection, as a tree names it."""

    item_id: str
    resource_kind: str
    scope: str
    project_id: str | None = None
    path: str | None = None
    blob_id: str
    source: str
    description: str = ""

    @property
    def is_memory(self) -> bool:
        return self.resource_kind == MEMORY or self.resource_kind in LEGACY_MEMORY_KINDS


class Tree(msgspec.Struct, frozen=True):
    """A tree and the id it claims."""

    tree_id: str
    entries: list[TreeEntry]


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit and the id it claims; `created_at` is RFC 3339."""

    commit_id: str
    scope: str
    org_id: str
    project_id: str | None = None
    tree_id: str
    parent_commit_id: str | None = None
    version: int
    created_at: str


class Blob(msgspec.Struct, frozen=True):
    """A text and the id it claims."""

    blob_id: str
    content: str


class CommitPayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a commit consists of, as it travels and as a generation's marker keeps it."""

    commit: Commit
    tree: Tree
    blobs: list[Blob]
    project_org_selection: dict[str, object] | None = None


def object_id(kind: ObjectKind, payload: bytes) -> str:
    """The id of an object's bytes."""
    return hashlib.sha256(kind.encode("ascii") + b"\x00" + payload).hexdigest()


def blob_id(content: str) -> str:
    """The id of a text."""
    return object_id("blob", content.encode("utf-8"))


def canonical_order(entries: Iterable[TreeEntry]) -> list[TreeEntry]:
    """By kind, then path with those that have one before those without, then id."""
    return sorted(
        entries,
        key=lambda entry: (
            entry.resource_kind,
            entry.path is None,
            entry.path or "",
            entry.item_id,
        ),
    )


def tree_payload(entries: Iterable[TreeEntry]) -> bytes:
    """A tree's bytes, whatever order the entries come in."""
    return msgspec.json.encode([_entry_object(entry) for entry in canonical_order(entries)])


def _entry_object(entry: TreeEntry) -> dict[str, str | None]:
    fields = {
        "item_id": entry.item_id,
        "resource_kind": entry.resource_kind,
        "scope": entry.scope,
        "project_id": entry.project_id,
        "path": entry.path,
        "blob_id": entry.blob_id,
        "source": entry.source,
    }
    if entry.description:
        fields["description"] = entry.description
    return fields


def entries_of(payload: bytes) -> list[TreeEntry]:
    """The entries of a tree's bytes, in the order they stand."""
    rows = msgspec.json.decode(payload, type=list[dict[str, str | None]])
    return [
        TreeEntry(
            item_id=row["item_id"] or "",
            resource_kind=row["resource_kind"] or "",
            scope=row["scope"] or "",
            project_id=row["project_id"],
            path=row["path"],
            blob_id=row["blob_id"] or "",
            source=row["source"] or "",
            description=row.get("description") or "",
        )
        for row in rows
    ]


def make_tree(entries: Sequence[TreeEntry]) -> Tree:
    """The tree of the entries, in canonical order, with its id."""
    ordered = canonical_order(entries)
    return Tree(object_id("tree", tree_payload(ordered)), ordered)


def commit_payload(commit: Commit) -> bytes:
    """A commit's bytes; its claimed id is no part of them."""
    return msgspec.json.encode(
        (
            commit.scope,
            commit.org_id,
            commit.project_id,
            commit.tree_id,
            commit.parent_commit_id,
            commit.version,
            nanoseconds(commit.created_at),
        )
    )


def make_commit(
    *,
    scope: str,
    org_id: str,
    project_id: str | None,
    tree_id: str,
    parent_commit_id: str | None,
    version: int,
    created_at: str,
) -> Commit:
    """The commit of these facts with its id."""
    unnamed = Commit(
        commit_id="",
        scope=scope,
        org_id=org_id,
        project_id=project_id,
        tree_id=tree_id,
        parent_commit_id=parent_commit_id,
        version=version,
        created_at=created_at,
    )
    name = object_id("commit", commit_payload(unnamed))
    return msgspec.structs.replace(unnamed, commit_id=name)
