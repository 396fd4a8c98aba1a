"""What a commit's payload must satisfy before anything of it is kept.

Every id is computed again from the bytes: a payload is believed because it hashes to what was
asked for, not because of where it came from. All failures are StoreFailed("object_corrupt").
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from clumsies.errors import InvalidRequest, StoreFailed
from clumsies.storage.objects import (
    SELECTION,
    Commit,
    CommitPayload,
    TreeEntry,
    blob_id,
    commit_payload,
    object_id,
    tree_payload,
)
from clumsies.storage.tree_paths import find_collision, is_cache_component, path_problem


@dataclass(frozen=True, slots=True)
class Authority:
    """Whose commit is expected: the Ref's scope, organisation and project (None for org)."""

    scope: str
    org_id: str
    project_id: str | None = None


def verify_payload(
    payload: CommitPayload, authority: Authority, latest: Commit | None = None
) -> None:
    """Raise StoreFailed("object_corrupt") unless the payload is whole, consistent and genuine.

    `latest` is the commit the Ref's state announced, where one was.
    """
    commit, tree = payload.commit, payload.tree
    _require(latest is None or commit == latest, "it is not the commit that was announced")
    _require(tree.tree_id == commit.tree_id, "its commit names another tree")
    owner = (commit.scope, commit.org_id, commit.project_id)
    _require(
        owner == (authority.scope, authority.org_id, authority.project_id),
        "it belongs to another organisation, project or scope",
    )
    _require(commit.version >= 1, "its version is below 1")
    _require(commit.parent_commit_id != commit.commit_id, "it is its own parent")
    _check_ids(payload)
    _check_blobs(payload)
    _check_entries(tree.entries, authority)
    _check_selection(payload, authority)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise StoreFailed(
            "object_corrupt",
            f"A commit's payload was refused because {what}; nothing was changed. "
            "Fetch it again, and if that repeats, ask whoever runs the Server.",
        )


def _check_ids(payload: CommitPayload) -> None:
    commit, tree = payload.commit, payload.tree
    try:
        computed = object_id("commit", commit_payload(commit))
        _require(object_id("tree", tree_payload(tree.entries)) == tree.tree_id, "its tree differs")
        for blob in payload.blobs:
            _require(blob_id(blob.content) == blob.blob_id, "a text differs from its id")
    except (UnicodeEncodeError, InvalidRequest) as error:
        raise StoreFailed(
            "object_corrupt", "A commit's payload holds what is not valid; fetch it again."
        ) from error
    _require(computed == commit.commit_id, "its commit differs from its id")
    _require(is_cache_component(commit.commit_id), "its id cannot name a directory")


def _check_blobs(payload: CommitPayload) -> None:
    given = {blob.blob_id for blob in payload.blobs}
    wanted = {entry.blob_id for entry in payload.tree.entries}
    _require(len(given) == len(payload.blobs), "a text is there twice")
    _require(wanted <= given, "a text is missing")
    _require(given <= wanted, "a text belongs to no entry")


def _check_entries(entries: Collection[TreeEntry], authority: Authority) -> None:
    names = {entry.item_id for entry in entries}
    _require(len(names) == len(entries), "an entry is there twice")
    _require(all(names), "an entry has no id")
    paths: list[str] = []
    for entry in entries:
        _require(_is_owned(entry, authority), "an entry belongs to someone else")
        if entry.resource_kind == SELECTION:
            continue
        _require(entry.is_memory, "an entry has an unknown type")
        _require(entry.path is not None, "a memory has no path")
        problem = path_problem(entry.path or "")
        _require(problem is None, f"the path of an entry {problem}")
        paths.append(entry.path or "")
    _require(find_collision(paths) is None, "two of its paths collide")


def _is_owned(entry: TreeEntry, authority: Authority) -> bool:
    """The combinations of scope, source, project and path that a commit of the scope may have."""
    facts = (entry.scope, entry.source, entry.project_id)
    if authority.scope == "org":
        return entry.is_memory and facts == ("org", "org", None)
    if entry.resource_kind == SELECTION:
        return entry.path is None and facts == ("daemon", "config", authority.project_id)
    return facts in (
        ("project", "project", authority.project_id),
        ("org", "selected_org", None),
    )


def _check_selection(payload: CommitPayload, authority: Authority) -> None:
    """A project's commit has exactly one selection, and says what its blob says."""
    chosen = [entry for entry in payload.tree.entries if entry.resource_kind == SELECTION]
    if authority.scope == "org":
        _require(not chosen, "an organisation has no selection")
        _require(payload.project_org_selection is None, "an organisation has no selection")
        return
    _require(len(chosen) == 1, "a project has exactly one selection")
    [text] = [blob.content for blob in payload.blobs if blob.blob_id == chosen[0].blob_id]
    try:
        selection = msgspec.json.decode(text.encode("utf-8"), type=dict[str, object])
    except msgspec.DecodeError as error:
        raise StoreFailed(
            "object_corrupt", "A commit's selection is not a JSON object; fetch it again."
        ) from error
    _require(selection == payload.project_org_selection, "its selection differs from its blob")
    _require(
        selection.get("project_id") == authority.project_id,
        "its selection is another project's",
    )
