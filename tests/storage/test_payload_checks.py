"""A payload is refused for every single thing that is not as it must be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from clumsies.errors import StoreFailed
from clumsies.storage.objects import (
    Blob,
    CommitPayload,
    TreeEntry,
    blob_id,
    commit_payload,
    make_tree,
    object_id,
)
from clumsies.storage.payload_checks import Authority, verify_payload
from tests.storage.payloads import (
    ORG,
    PROJECT,
    blobs,
    memory_entry,
    org_payload,
    project_payload,
    with_entries,
)

TEXTS = {"a.md": "one", "b/c.md": "two"}
PROJECT_AUTHORITY = Authority("project", ORG, PROJECT)
ORG_AUTHORITY = Authority("org", ORG)


def refused(payload: CommitPayload, authority: Authority = PROJECT_AUTHORITY) -> str:
    """The words of the refusal."""
    with pytest.raises(StoreFailed) as caught:
        verify_payload(payload, authority)
    assert caught.value.code == "object_corrupt"
    return caught.value.message


def renamed(payload: CommitPayload, **changes: object) -> CommitPayload:
    """The payload with another commit, whose id is right again."""
    commit = replace(payload.commit, **changes)
    commit = replace(commit, commit_id=object_id("commit", commit_payload(commit)))
    return replace(payload, commit=commit)


def with_tree(payload: CommitPayload, entries: list[TreeEntry], *texts: str) -> CommitPayload:
    """The payload with other entries and more texts, its ids right again."""
    known = {blob.content for blob in payload.blobs}
    tree = make_tree(entries)
    changed = replace(
        payload, tree=tree, blobs=[*payload.blobs, *blobs(t for t in texts if t not in known)]
    )
    return renamed(changed, tree_id=tree.tree_id)


def test_a_right_payload_is_accepted() -> None:
    verify_payload(project_payload(TEXTS), PROJECT_AUTHORITY)
    verify_payload(org_payload(TEXTS), ORG_AUTHORITY)
    payload = project_payload(TEXTS)
    verify_payload(payload, PROJECT_AUTHORITY, payload.commit)


def test_another_commit_than_announced() -> None:
    with pytest.raises(StoreFailed):
        verify_payload(project_payload(TEXTS), PROJECT_AUTHORITY, project_payload({}).commit)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"org_id": "org_2"},
        {"project_id": "proj_2"},
        {"scope": "org"},
        {"created_at": "yesterday"},
    ],
)
def test_a_wrong_commit(change: dict[str, object]) -> None:
    payload = project_payload(TEXTS)
    if "created_at" in change:
        refused(replace(payload, commit=replace(payload.commit, **change)))
    else:
        refused(renamed(payload, **change))


TAMPERED: dict[str, Callable[[CommitPayload], CommitPayload]] = {
    "commit id": lambda p: replace(p, commit=replace(p.commit, commit_id="0" * 64)),
    "commit field": lambda p: replace(p, commit=replace(p.commit, version=7)),
    "own parent": lambda p: replace(
        p, commit=replace(p.commit, parent_commit_id=p.commit.commit_id)
    ),
    "tree id": lambda p: replace(p, tree=replace(p.tree, tree_id="0" * 64)),
    "tree entry": lambda p: replace(
        p, tree=replace(p.tree, entries=[replace(e, description="x") for e in p.tree.entries])
    ),
    "text": lambda p: replace(p, blobs=[replace(b, content=b.content + " ") for b in p.blobs]),
    "text of no UTF-8": lambda p: replace(p, blobs=[*p.blobs, Blob("0", "\udc80")]),
    "missing text": lambda p: replace(p, blobs=p.blobs[1:]),
    "text twice": lambda p: replace(p, blobs=[*p.blobs, p.blobs[0]]),
    "unused text": lambda p: replace(p, blobs=[*p.blobs, Blob(blob_id("more"), "more")]),
    "selection field": lambda p: replace(p, project_org_selection={"project_id": PROJECT}),
    "no selection field": lambda p: replace(p, project_org_selection=None),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_payload(what: str) -> None:
    refused(TAMPERED[what](project_payload(TEXTS)))


@pytest.mark.parametrize(
    "entry",
    [
        memory_entry("../../etc/passwd", "one", source="selected_org"),
        memory_entry("/etc/passwd", "one", source="selected_org"),
        memory_entry("..\\x.md", "one", source="selected_org"),
        memory_entry("A.md", "one", source="selected_org"),
        memory_entry("a.md/x.md", "one", source="selected_org"),
        memory_entry("b", "one", source="selected_org"),
        memory_entry("x.md", "one", source="org"),
        memory_entry("x.md", "one", source="bootstrap"),
        memory_entry("x.md", "one", scope="project", source="selected_org"),
        replace(memory_entry("x.md", "one", source="selected_org"), project_id=PROJECT),
        replace(memory_entry("x.md", "one", source="selected_org"), path=None),
        replace(memory_entry("x.md", "one", source="selected_org"), item_id="mem_a.md"),
        replace(memory_entry("x.md", "one", source="selected_org"), item_id=""),
        replace(memory_entry("x.md", "one", source="selected_org"), resource_kind="script"),
        replace(
            memory_entry("x.md", "one", scope="project", source="project"), project_id="proj_2"
        ),
    ],
)
def test_an_entry_that_may_not_be_there(entry: TreeEntry) -> None:
    payload = project_payload(TEXTS)
    message = refused(with_tree(payload, [*payload.tree.entries, entry], "one"))
    assert "entry" in message or "path" in message


def test_entries_that_may_be_there() -> None:
    payload = project_payload(TEXTS)
    own = memory_entry("own.md", "one", scope="project", source="project")
    legacy = replace(memory_entry("rule.md", "two", source="selected_org"), resource_kind="rule")
    verify_payload(with_tree(payload, [*payload.tree.entries, own, legacy]), PROJECT_AUTHORITY)


def test_selections() -> None:
    payload = project_payload(TEXTS)
    *memories, selection = payload.tree.entries
    refused(with_entries(memories, ["one", "two"], None))
    second = replace(selection, item_id="selection2")
    refused(with_tree(payload, [*payload.tree.entries, second]))
    refused(with_tree(payload, [*memories, replace(selection, path="a")]))
    for text, field in (
        ("not json", {}),
        ("[]", {}),
        ('{"project_id":"p2"}', {"project_id": "p2"}),
    ):
        changed = replace(selection, blob_id=blob_id(text))
        refused(with_entries([*memories, changed], ["one", "two", text], dict(field)))


def test_an_organisation_has_no_selection_and_no_project_memory() -> None:
    payload = org_payload(TEXTS)
    refused(replace(payload, project_org_selection={"project_id": PROJECT}), ORG_AUTHORITY)
    *_, selection = project_payload({}).tree.entries
    for entry in (selection, memory_entry("x.md", "one", scope="project", source="project")):
        changed = with_tree(payload, [*payload.tree.entries, entry], "one")
        refused(changed, ORG_AUTHORITY)
