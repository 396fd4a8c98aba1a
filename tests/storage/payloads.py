"""Small commits of one organisation and one project, whole and right."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clumsies.storage.objects import (
    MEMORY,
    SELECTION,
    Blob,
    CommitPayload,
    TreeEntry,
    blob_id,
    make_commit,
    make_tree,
)

ORG = "org_1"
PROJECT = "proj_1"
CREATED = "2026-01-02T03:04:05.123456789Z"


def memory_entry(path: str, text: str, *, scope: str = "org", source: str = "org") -> TreeEntry:
    return TreeEntry(
        item_id=f"mem_{path.replace('/', '_')}",
        resource_kind=MEMORY,
        scope=scope,
        path=path,
        blob_id=blob_id(text),
        source=source,
        project_id=PROJECT if scope == "project" else None,
    )


def org_payload(texts: Mapping[str, str], *, parent: str | None = None) -> CommitPayload:
    tree = make_tree([memory_entry(path, text) for path, text in texts.items()])
    commit = make_commit(
        scope="org",
        org_id=ORG,
        project_id=None,
        tree_id=tree.tree_id,
        parent_commit_id=parent,
        version=1,
        created_at=CREATED,
    )
    return CommitPayload(commit, tree, blobs(texts.values()))


def project_payload(
    texts: Mapping[str, str], *, version: int = 1, parent: str | None = None
) -> CommitPayload:
    selection: dict[str, object] = {"project_id": PROJECT, "revision": 1, "resource_ids": []}
    chosen = msgspec.json.encode(selection).decode()
    entries = [memory_entry(path, text, source="selected_org") for path, text in texts.items()]
    entries.append(
        TreeEntry(
            item_id="selection",
            resource_kind=SELECTION,
            scope="daemon",
            project_id=PROJECT,
            blob_id=blob_id(chosen),
            source="config",
        )
    )
    return with_entries(entries, [*texts.values(), chosen], selection, version, parent)


def with_entries(
    entries: list[TreeEntry],
    texts: list[str],
    selection: dict[str, object] | None,
    version: int = 1,
    parent: str | None = None,
) -> CommitPayload:
    tree = make_tree(entries)
    commit = make_commit(
        scope="project",
        org_id=ORG,
        project_id=PROJECT,
        tree_id=tree.tree_id,
        parent_commit_id=parent,
        version=version,
        created_at=CREATED,
    )
    return CommitPayload(commit, tree, blobs(texts), selection)


def blobs(texts: object) -> list[Blob]:
    return [Blob(blob_id(text), text) for text in dict.fromkeys(texts)]  # type: ignore[call-overload]
