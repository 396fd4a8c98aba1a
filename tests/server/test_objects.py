"""Objects in the database: kept once, given back whole."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, event, update

from clumsies.errors import StoreFailed
from clumsies.server.database import Database
from clumsies.server.memory import objects
from clumsies.server.schema import blobs, trees
from clumsies.storage.objects import Blob, CommitPayload, blob_id, make_commit, make_tree
from clumsies.storage.payload_checks import Authority, verify_payload
from tests.server.world import World
from tests.storage.payloads import memory_entry

TEXTS = {"a.md": "# A\n", "b.md": "NUL \x00 and ä", "c.md": "# A\n"}


def kept(world: World) -> CommitPayload:
    """A commit of the organisation acme whose objects are in the database."""
    tree = make_tree([memory_entry(path, text) for path, text in TEXTS.items()])
    commit = make_commit(
        scope="org",
        org_id=world.orgs["acme"],
        project_id=None,
        tree_id=tree.tree_id,
        parent_commit_id=None,
        version=1,
        created_at="2026-01-02T03:04:05.123456789Z",
    )
    texts = [Blob(blob_id(text), text) for text in dict.fromkeys(TEXTS.values())]

    def work(connection: Connection) -> None:
        objects.insert_blobs(connection, texts)
        objects.insert_tree(connection, tree)
        objects.insert_commit(connection, commit, world.users["ann"])

    world.database.write(work)
    world.database.write(work)  # What is there already stays.
    return CommitPayload(commit, tree, texts)


def test_a_payload_comes_back_as_it_was_kept(world: World) -> None:
    payload = kept(world)
    with world.database.read() as connection:
        found = objects.payload_of(connection, payload.commit.commit_id)
        assert objects.read_entries(connection, payload.commit.commit_id) == payload.tree.entries
        assert objects.read_commit(connection, payload.commit.commit_id) == payload.commit
    assert (found.commit, found.tree) == (payload.commit, payload.tree)
    assert sorted(b.blob_id for b in found.blobs) == sorted(b.blob_id for b in payload.blobs)
    verify_payload(found, Authority("org", world.orgs["acme"]))


def test_blobs_may_be_left_out(world: World) -> None:
    payload = kept(world)
    without = frozenset({blob_id("# A\n")})
    with world.database.read() as connection:
        found = objects.payload_of(connection, payload.commit.commit_id, without)
    assert [blob.content for blob in found.blobs] == ["NUL \x00 and ä"]


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_other_bytes_under_an_id_are_refused(world: World, kind: str) -> None:
    payload = kept(world)

    def work(connection: Connection) -> None:
        if kind == "blob":
            objects.insert_blobs(connection, [Blob(payload.blobs[0].blob_id, "other")])
        elif kind == "tree":
            objects.insert_tree_payloads(connection, {payload.tree.tree_id: b"[]"})
        else:
            other = make_commit(
                scope="org",
                org_id=world.orgs["other"],
                project_id=None,
                tree_id=payload.tree.tree_id,
                parent_commit_id=None,
                version=1,
                created_at=payload.commit.created_at,
            )
            forged = type(other)(
                **{
                    name: getattr(other, name)
                    for name in other.__struct_fields__
                    if name != "commit_id"
                },
                commit_id=payload.commit.commit_id,
            )
            objects.insert_commit(connection, forged)

    with pytest.raises(StoreFailed) as caught:
        world.database.write(work)
    assert caught.value.code == "object_corrupt"
    with world.database.read() as connection:
        objects.payload_of(connection, payload.commit.commit_id)


def test_what_is_missing_is_said(database: Database) -> None:
    with database.read() as connection:
        assert objects.read_commit(connection, "0" * 64) is None
        assert objects.read_entries(connection, None) == []
        for ask in (objects.payload_of, objects.read_entries, objects.read_tree, objects.read_text):
            with pytest.raises(StoreFailed) as caught:
                ask(connection, "0" * 64)
            assert caught.value.code == "object_corrupt"


def test_damage_in_the_database_shows_in_the_payload(world: World) -> None:
    payload = kept(world)
    world.database.write(lambda connection: connection.execute(update(blobs).values(content=b"x")))
    with world.database.read() as connection:
        found = objects.payload_of(connection, payload.commit.commit_id)
    with pytest.raises(StoreFailed):
        verify_payload(found, Authority("org", world.orgs["acme"]))


def test_many_objects_need_few_statements(database: Database) -> None:
    texts = [Blob(blob_id(str(number)), str(number)) for number in range(objects.BATCH * 2 + 1)]
    statements: list[str] = []
    engine = database._engine

    def note(*args: object) -> None:
        statements.append(str(args[2]))

    event.listen(engine, "before_cursor_execute", note)
    database.write(lambda connection: objects.insert_blobs(connection, texts))
    with database.read() as connection:
        found = objects.read_texts(connection, [blob.blob_id for blob in reversed(texts)])
    event.remove(engine, "before_cursor_execute", note)
    assert found == {blob.blob_id: blob.content for blob in texts}
    assert len([text for text in statements if "SELECT" in text or "INSERT" in text]) == 7
    with database.read() as connection:
        assert connection.execute(trees.select()).all() == []
