"""Personal bundles: lists of memories that one person keeps, and nobody else sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, select, update

from clumsies.api.common import PageInfo
from clumsies.api.projects import (
    Bundle,
    BundleDetail,
    BundlePage,
    ChangeBundle,
    CreateBundle,
    MemoryMeta,
)
from clumsies.errors import NotFound
from clumsies.server.acting import Act
from clumsies.server.memory.memories import memories_by_id, require_memories
from clumsies.server.refusals import check_version
from clumsies.server.schema import personal_bundle_items as items
from clumsies.server.schema import personal_bundles as bundles
from clumsies.server.schema import resources


def list_bundles(act: Act) -> BundlePage:
    """The acting user's bundles, in order of name. Memories that are no more do not count."""
    counted = (
        select(items.c.bundle_id, func.count().label("resource_count"))
        .join(resources, resources.c.resource_id == items.c.resource_id)
        .join(bundles, bundles.c.bundle_id == items.c.bundle_id)
        .where(bundles.c.owner_user_id == act.principal.user_id)
        .group_by(items.c.bundle_id)
    )
    counts = {row.bundle_id: row.resource_count for row in act.connection.execute(counted)}
    rows = sorted(act.connection.execute(_mine(act)), key=lambda row: (row.name, row.bundle_id))
    found = [_message(row, counts.get(row.bundle_id, 0)) for row in rows]
    return BundlePage(items=found, page_info=PageInfo())


def get_bundle(act: Act, bundle_id: str) -> BundleDetail:
    """A bundle with its memories in their order; raises NotFound("not_found")."""
    return _detail(act, _require(act, bundle_id))


def create_bundle(act: Act, data: CreateBundle) -> BundleDetail:
    """A new bundle; raises InvalidRequest for an id of no memory."""
    require_memories(act, data.resource_ids)
    bundle_id = act.new_id("bundle")
    row = {
        "bundle_id": bundle_id,
        "org_id": act.principal.org_id,
        "owner_user_id": act.principal.user_id,
        "name": data.name,
        "description": data.description,
        "revision": 1,
        "created_at": act.now,
        "updated_at": act.now,
    }
    act.connection.execute(insert(bundles).values(row))
    _insert_items(act, bundle_id, data.resource_ids)
    return get_bundle(act, bundle_id)


def change_bundle(
    act: Act, bundle_id: str, expected_revision: int, data: ChangeBundle
) -> BundleDetail:
    """What is given takes the place of what was; raises Conflict("version_conflict")."""
    row = _require(act, bundle_id, lock=True)
    check_version("bundle", expected_revision, row.revision)
    facts: dict[str, Any] = {"revision": row.revision + 1, "updated_at": act.now}
    if data.name is not None:
        facts["name"] = data.name
    if data.description is not None:
        facts["description"] = data.description
    if data.resource_ids is not None:
        require_memories(act, data.resource_ids)
        act.connection.execute(delete(items).where(items.c.bundle_id == bundle_id))
        _insert_items(act, bundle_id, data.resource_ids)
    act.connection.execute(update(bundles).where(bundles.c.bundle_id == bundle_id).values(facts))
    return get_bundle(act, bundle_id)


def delete_bundle(act: Act, bundle_id: str, expected_revision: int) -> None:
    """Remove a bundle; its memories stay. Raises Conflict("version_conflict")."""
    row = _require(act, bundle_id, lock=True)
    check_version("bundle", expected_revision, row.revision)
    act.connection.execute(delete(items).where(items.c.bundle_id == bundle_id))
    act.connection.execute(delete(bundles).where(bundles.c.bundle_id == bundle_id))


def _mine(act: Act) -> Select[Any]:
    return select(bundles).where(
        bundles.c.org_id == act.principal.org_id,
        bundles.c.owner_user_id == act.principal.user_id,
    )


def _require(act: Act, bundle_id: str, lock: bool = False) -> Row[Any]:
    query = _mine(act).where(bundles.c.bundle_id == bundle_id)
    row = act.connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFound("not_found", "You have no such bundle; list them to see which there are.")
    return row


def _insert_items(act: Act, bundle_id: str, resource_ids: Iterable[str]) -> None:
    rows = [
        {"bundle_id": bundle_id, "ordinal": ordinal, "resource_id": name}
        for ordinal, name in enumerate(dict.fromkeys(resource_ids))
    ]
    if rows:
        act.connection.execute(insert(items), rows)


def _detail(act: Act, row: Row[Any]) -> BundleDetail:
    query = select(items.c.resource_id).where(items.c.bundle_id == row.bundle_id)
    names: Sequence[str] = act.connection.scalars(query.order_by(items.c.ordinal)).all()
    known = memories_by_id(act, names)
    memories: list[MemoryMeta] = [known[name] for name in names if name in known]
    return BundleDetail(
        bundle=_message(row, len(memories)), memories=memories, etag=f'"{row.revision}"'
    )


def _message(row: Row[Any], resource_count: int) -> Bundle:
    return Bundle(
        bundle_id=row.bundle_id,
        owner_user_id=row.owner_user_id,
        name=row.name,
        description=row.description,
        resource_count=resource_count,
        revision=row.revision,
    )
