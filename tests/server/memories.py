"""Publishing in tests: changes in few words, and a whole check of what every Ref names."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select

from clumsies.server.acting import Act, Acting
from clumsies.server.database import Database
from clumsies.server.memory.objects import payload_of, read_commit, read_entries
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.server.memory.refs import RefRow, ref_of
from clumsies.server.schema import refs, resources
from clumsies.storage.objects import Commit, CommitPayload
from clumsies.storage.payload_checks import Authority, verify_payload

As = Callable[[str], Acting]


def put(
    path: str, text: str, name: str | None = None, description: str | None = None
) -> ResourceChange:
    """A memory `mem_<name or path>` with this text."""
    return ResourceChange(memory_id(name or path), path, text, description)


def memory_id(name: str) -> str:
    return "mem_" + name.replace("/", "_").replace(".", "_")


def deleted(name: str) -> ResourceChange:
    return ResourceChange(memory_id(name), is_deleted=True)


def publish(acting: Acting, *changes: ResourceChange, carrying: str | None = None) -> Commit | None:
    return acting.write(lambda act: publish_org(act, list(changes), carrying))


def payload(database: Database, commit_id: str) -> CommitPayload:
    with database.read() as connection:
        return payload_of(connection, commit_id)


def paths(database: Database, commit_id: str | None) -> dict[str, str]:
    """Text by path of a commit's memories."""
    if commit_id is None:
        return {}
    found = payload(database, commit_id)
    texts = {blob.blob_id: blob.content for blob in found.blobs}
    return {e.path or "": texts[e.blob_id] for e in found.tree.entries if e.is_memory}


def ref_at(database: Database, key: str) -> RefRow:
    with database.read() as connection:
        return ref_of(connection.execute(select(refs).where(refs.c.ref_key == key)).one())


def check_everything(database: Database) -> None:
    """Every Ref names a genuine commit with its history, and rows say what the commit says."""
    with database.read() as connection:
        rows = [ref_of(row) for row in connection.execute(select(refs))]
        for ref in rows:
            if ref.commit_id is None:
                continue
            found = payload_of(connection, ref.commit_id)
            verify_payload(found, Authority(ref.scope, ref.org_id, ref.project_id))
            commit = found.commit
            while commit.parent_commit_id is not None:
                parent = read_commit(connection, commit.parent_commit_id)
                assert parent is not None
                assert parent.version == commit.version - 1
                commit = parent
            assert commit.version == 1
        for ref in rows:
            if ref.scope == "org":
                described = connection.execute(
                    select(
                        resources.c.resource_id,
                        resources.c.path,
                        resources.c.blob_id,
                        resources.c.description,
                    ).where(resources.c.org_id == ref.org_id)
                )
                assert sorted(tuple(row) for row in described) == sorted(
                    (entry.item_id, entry.path, entry.blob_id, entry.description)
                    for entry in read_entries(connection, ref.commit_id)
                )


def reading(acting: Acting, work: Callable[[Act], object]) -> object:
    return acting.read(work)
