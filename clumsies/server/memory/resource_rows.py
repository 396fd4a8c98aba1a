"""The rows that describe the memories of an organisation's current commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, delete, select

from clumsies.engine.units import title_of
from clumsies.server.acting import Act
from clumsies.server.memory.objects import batches, content_hashes, read_texts
from clumsies.server.schema import resources
from clumsies.storage.objects import TreeEntry
from clumsies.types import Resource, ResourceId


def delete_resources(act: Act, resource_ids: Collection[str]) -> None:
    """Remove the rows of memories that are no more."""
    for some in batches(resource_ids):
        act.connection.execute(
            delete(resources).where(
                resources.c.org_id == act.principal.org_id, resources.c.resource_id.in_(some)
            )
        )


def write_resources(
    act: Act, entries: Sequence[TreeEntry], texts: Mapping[str, str] | None = None
) -> None:
    """Let the rows of memories say what their entries say, with a revision more than before.

    Their blobs are kept already; `texts` are those by blob id that are at hand. All rows are taken
    away before one is written, as memories may exchange their paths.
    """
    names = [entry.item_id for entry in entries]
    old = _rows(act, names)
    shown = _names(act, entries, old, texts or {})
    hashes = content_hashes(act.connection, (entry.blob_id for entry in entries))
    delete_resources(act, names)
    rows = [_row(act, entry, old.get(entry.item_id)) for entry in entries]
    for row in rows:
        row["name"] = shown[row["resource_id"]]
        row["content_hash"] = hashes[row["blob_id"]]
    if rows:
        act.connection.execute(resources.insert(), rows)


def _rows(act: Act, names: Sequence[str]) -> dict[str, Row[Any]]:
    found: dict[str, Row[Any]] = {}
    for some in batches(names):
        query = select(resources).where(
            resources.c.org_id == act.principal.org_id, resources.c.resource_id.in_(some)
        )
        found.update({row.resource_id: row for row in act.connection.execute(query)})
    return found


def _names(
    act: Act,
    entries: Sequence[TreeEntry],
    old: Mapping[str, Row[Any]],
    texts: Mapping[str, str],
) -> dict[str, str]:
    """What people call each memory. Only text and path make it."""
    shown: dict[str, str] = {}
    renamed: list[TreeEntry] = []
    for entry in entries:
        row = old.get(entry.item_id)
        if row is not None and (row.blob_id, row.path) == (entry.blob_id, entry.path):
            shown[entry.item_id] = row.name
        else:
            renamed.append(entry)
    missing = {entry.blob_id for entry in renamed} - texts.keys()
    known = dict(texts) | read_texts(act.connection, sorted(missing))
    shown.update({entry.item_id: _name(entry, known[entry.blob_id]) for entry in renamed})
    return shown


def _name(entry: TreeEntry, text: str) -> str:
    """The title without NUL, which PostgreSQL does not keep in a text."""
    found = Resource(ResourceId(entry.item_id), entry.path or "", text)
    return title_of(found).replace("\x00", "")


def _row(act: Act, entry: TreeEntry, old: Row[Any] | None) -> dict[str, Any]:
    return {
        "resource_id": entry.item_id,
        "org_id": act.principal.org_id,
        "path": entry.path,
        "description": entry.description,
        "blob_id": entry.blob_id,
        "status": old.status if old is not None else "active",
        "revision": old.revision + 1 if old is not None else 1,
        "created_at": old.created_at if old is not None else act.now,
        "updated_at": act.now,
    }
