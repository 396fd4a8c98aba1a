"""Golden ids and bytes: what a Server computed must be computed here, byte for byte."""

from __future__ import annotations

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from clumsies.storage.objects import (
    TreeEntry,
    blob_id,
    canonical_order,
    commit_payload,
    entries_of,
    make_commit,
    make_tree,
    object_id,
    tree_payload,
)
from clumsies.types import content_hash, draft_revision, effective_hash
from tests.storage.payloads import CREATED, org_payload

B1, B2 = blob_id("one"), blob_id("two")

ENTRIES = [
    TreeEntry(
        item_id="selection",
        resource_kind="project_org_selection",
        scope="daemon",
        project_id="p",
        blob_id=B2,
        source="config",
    ),
    TreeEntry(
        item_id="m2",
        resource_kind="memory",
        scope="org",
        path="b/ü.md",
        blob_id=B1,
        source="selected_org",
        description='says "when"',
    ),
    TreeEntry(
        item_id="m1", resource_kind="memory", scope="org", path="a.md", blob_id=B1, source="org"
    ),
    TreeEntry(item_id="m3", resource_kind="memory", scope="org", blob_id=B1, source="org"),
]

TREE_BYTES = (
    f'[{{"item_id":"m1","resource_kind":"memory","scope":"org","project_id":null,"path":"a.md",'
    f'"blob_id":"{B1}","source":"org"}},'
    f'{{"item_id":"m2","resource_kind":"memory","scope":"org","project_id":null,"path":"b/ü.md",'
    f'"blob_id":"{B1}","source":"selected_org","description":"says \\"when\\""}},'
    f'{{"item_id":"m3","resource_kind":"memory","scope":"org","project_id":null,"path":null,'
    f'"blob_id":"{B1}","source":"org"}},'
    f'{{"item_id":"selection","resource_kind":"project_org_selection","scope":"daemon",'
    f'"project_id":"p","path":null,"blob_id":"{B2}","source":"config"}}]'
).encode()


def test_the_contracts_vectors() -> None:
    assert blob_id("hello") == "b7da690ebce9312567657893e936fe6935d0a52372f2703f02616bbd53eccb0c"
    assert content_hash("hello").startswith("sha256:2cf24dba")
    assert content_hash("hello").endswith("9824")


def test_an_id_is_of_kind_and_bytes() -> None:
    for kind in ("blob", "tree", "commit"):
        expected = hashlib.sha256(kind.encode() + b"\0" + b"x").hexdigest()
        assert object_id(kind, b"x") == expected  # type: ignore[arg-type]


def test_tree_bytes() -> None:
    assert tree_payload(ENTRIES) == TREE_BYTES
    assert make_tree(ENTRIES).tree_id == hashlib.sha256(b"tree\0" + TREE_BYTES).hexdigest()


def test_a_tree_does_not_depend_on_the_order_given() -> None:
    for seed in range(5):
        mixed = random.Random(seed).sample(ENTRIES, len(ENTRIES))
        assert tree_payload(mixed) == TREE_BYTES


def test_a_trees_bytes_are_read_back() -> None:
    assert entries_of(TREE_BYTES) == canonical_order(ENTRIES)


def test_commit_bytes() -> None:
    commit = make_commit(
        scope="project",
        org_id="o",
        project_id="p",
        tree_id="t",
        parent_commit_id=None,
        version=3,
        created_at=CREATED,
    )
    expected = b'["project","o","p","t",null,3,1767323045123456789]'
    assert commit_payload(commit) == expected
    assert commit.commit_id == hashlib.sha256(b"commit\0" + expected).hexdigest()


def test_golden_ids_of_a_whole_commit() -> None:
    payload = org_payload({"a.md": "hello"})
    assert payload.tree.tree_id == (
        "8fec39c43cb73b120a5403db2966f69eab919ca072803c76fc9d105459995599"
    )
    assert payload.commit.commit_id == (
        "42603a61650fc7e668cb14e15bed8b06355c2418571addd2a2fdc9c37d69c387"
    )


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary())))
def test_draft_revision_is_over_id_row_ids_and_bytes(
    draft_id: str, operations: list[tuple[int, bytes]]
) -> None:
    whole = draft_id.encode("utf-8", "replace")
    for rowid, data in operations:
        whole += (rowid % 2**64).to_bytes(8, "little") + data
    draft_id = draft_id.encode("utf-8", "replace").decode()
    expected = "sha256:" + hashlib.sha256(whole).hexdigest()
    assert draft_revision(draft_id, operations) == expected


def test_effective_hash_has_no_zero_byte_after_the_commit() -> None:
    row = ("r", "memory", "org", "a.md", "sha256:0", "", "")
    expected = hashlib.sha256(b"p\0c" + b"r\0memory\0org\0a.md\0sha256:0\0\0\0").hexdigest()
    assert effective_hash("p", "c", [row]) == f"sha256:{expected}"
