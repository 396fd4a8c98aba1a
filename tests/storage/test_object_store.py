from __future__ import annotations

import pytest
from msgspec.structs import replace

from clumsies.errors import StoreFailed
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import (
    content_hashes,
    has_commit,
    insert_payload,
    read_commit,
    read_payload,
    read_text,
    read_tree,
)
from clumsies.storage.objects import Blob, CommitPayload, blob_id
from clumsies.storage.payload_checks import Authority, verify_payload
from clumsies.types import content_hash
from tests.storage.payloads import ORG, PROJECT, org_payload, project_payload

TEXTS = {"a.md": "one\x00\r\n", "b/c.md": "zwei ü"}


def test_a_payload_comes_back_as_it_was(database: LocalDatabase) -> None:
    payload = project_payload(TEXTS)
    for _ in range(2):  # the second time nothing is new
        with database.writer() as connection:
            insert_payload(connection, payload)
    with database.reader() as connection:
        found = read_payload(connection, payload.commit.commit_id)
        assert found is not None
        assert sorted(found.blobs, key=lambda blob: blob.blob_id) == sorted(
            payload.blobs, key=lambda blob: blob.blob_id
        )
        assert replace(found, blobs=payload.blobs) == payload
        verify_payload(found, Authority("project", ORG, PROJECT))
        assert read_commit(connection, payload.commit.commit_id) == payload.commit
        assert read_tree(connection, payload.tree.tree_id) == payload.tree.entries
        wanted = [blob.blob_id for blob in payload.blobs]
        assert content_hashes(connection, [*wanted, "other"]) == {
            blob.blob_id: content_hash(blob.content) for blob in payload.blobs
        }


def test_what_is_not_there(database: LocalDatabase) -> None:
    with database.reader() as connection:
        assert read_payload(connection, "0") is None
        assert not has_commit(connection, "0")
        for read in (read_tree, read_text):
            with pytest.raises(StoreFailed) as caught:
                read(connection, "0" * 64)
            assert caught.value.code == "object_corrupt"


def other_text(payload: CommitPayload) -> CommitPayload:
    return replace(payload, blobs=[Blob(blob_id("hello"), "other")])


def other_tree(payload: CommitPayload) -> CommitPayload:
    return replace(payload, tree=replace(payload.tree, entries=[]))


def other_commit(payload: CommitPayload) -> CommitPayload:
    return replace(payload, commit=replace(payload.commit, version=2))


@pytest.mark.parametrize("change", [other_text, other_tree, other_commit])
def test_other_content_under_an_id_is_refused_and_changes_nothing(
    database: LocalDatabase, change: object
) -> None:
    payload = org_payload({"a.md": "hello"})
    with database.writer() as connection:
        insert_payload(connection, payload)
    with pytest.raises(StoreFailed) as caught, database.writer() as connection:
        insert_payload(connection, change(payload))  # type: ignore[operator]
    assert caught.value.code == "object_corrupt"
    with database.reader() as connection:
        assert read_payload(connection, payload.commit.commit_id) == payload
