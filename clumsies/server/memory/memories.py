"""Reading an organisation's memory, whole or as a project has it selected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, collate, select

from clumsies.api.common import MAX_LIMIT, PageInfo
from clumsies.api.projects import MemoryDetail, MemoryMeta, MemoryPage
from clumsies.errors import InvalidRequest, NotFound
from clumsies.server.acting import Act
from clumsies.server.memory.objects import batches, read_text
from clumsies.server.memory.projects import require_project
from clumsies.server.schema import project_org_resource_selections as selections
from clumsies.server.schema import resources

_SHOWN = 20
"""Unknown ids that a refusal names."""


def list_org_memories(act: Act) -> MemoryPage:
    """The organisation's memories in order of path, no more than MAX_LIMIT."""
    return _page(act, _of_org(act))


def list_project_memories(act: Act, project_id: str) -> MemoryPage:
    """A project's memories in order of path, no more than MAX_LIMIT; raises NotFound."""
    return _page(act, _of_project(act, project_id))


def org_memory(act: Act, memory_id: str) -> MemoryDetail:
    """One memory with its text; raises NotFound("not_found")."""
    return _detail(act, _of_org(act), memory_id)


def project_memory(act: Act, project_id: str, memory_id: str) -> MemoryDetail:
    """One memory that the project has, with its text; raises NotFound("not_found")."""
    return _detail(act, _of_project(act, project_id), memory_id)


def selected_memories(act: Act, project_id: str) -> list[MemoryMeta]:
    """Every memory of a project that the caller may see, in order of path."""
    query = _selected(act, project_id)
    rows = act.connection.execute(query.order_by(by_bytes(act.connection, resources.c.path)))
    return [memory_meta(row) for row in rows]


def memories_by_id(act: Act, memory_ids: Iterable[str]) -> dict[str, MemoryMeta]:
    """Memories of the organisation by id; those that are not there are left out."""
    found: dict[str, MemoryMeta] = {}
    for some in batches(dict.fromkeys(memory_ids)):
        query = _of_org(act).where(resources.c.resource_id.in_(some))
        found.update({row.resource_id: memory_meta(row) for row in act.connection.execute(query)})
    return found


def require_memories(act: Act, memory_ids: Iterable[str]) -> None:
    """Raise InvalidRequest("invalid_request"), which names them, where ids are of no memory."""
    wanted = list(dict.fromkeys(memory_ids))
    known: set[str] = set()
    for some in batches(wanted):
        query = select(resources.c.resource_id).where(
            resources.c.org_id == act.principal.org_id, resources.c.resource_id.in_(some)
        )
        known.update(act.connection.scalars(query))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        shown = ", ".join(unknown[:_SHOWN])
        raise InvalidRequest(
            "invalid_request",
            f"{len(unknown)} of the ids are of no memory of this organisation: {shown}. "
            "Leave them out.",
            {"unknown_resource_ids": unknown[:_SHOWN], "unknown_count": len(unknown)},
        )


def by_bytes(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column's order by code point, whatever the database's own order of texts is."""
    return collate(column, "BINARY" if connection.dialect.name == "sqlite" else "C")


def memory_meta(row: Row[Any]) -> MemoryMeta:
    """A row that has every column of `resources`, as it travels."""
    return MemoryMeta(
        memory_id=row.resource_id,
        scope="org",
        project_id=None,
        path=row.path,
        name=row.name,
        description=row.description,
        content_hash=row.content_hash,
        status=row.status,
        updated_at=row.updated_at,
    )


def _of_org(act: Act) -> Select[Any]:
    return select(resources).where(resources.c.org_id == act.principal.org_id)


def _of_project(act: Act, project_id: str) -> Select[Any]:
    require_project(act, project_id)
    return _selected(act, project_id)


def _selected(act: Act, project_id: str) -> Select[Any]:
    chosen = selections.c.resource_id == resources.c.resource_id
    return _of_org(act).join(selections, chosen).where(selections.c.project_id == project_id)


def _page(act: Act, query: Select[Any]) -> MemoryPage:
    ordered = query.order_by(by_bytes(act.connection, resources.c.path)).limit(MAX_LIMIT)
    found = [memory_meta(row) for row in act.connection.execute(ordered)]
    return MemoryPage(items=found, page_info=PageInfo())


def _detail(act: Act, query: Select[Any], memory_id: str) -> MemoryDetail:
    row = act.connection.execute(query.where(resources.c.resource_id == memory_id)).first()
    if row is None:
        raise NotFound("not_found", "There is no such memory; list them to see which there are.")
    content = read_text(act.connection, row.blob_id)
    return MemoryDetail(memory=memory_meta(row), content=content, etag=f'"rev-{row.revision}"')
