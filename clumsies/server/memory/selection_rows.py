"""What of the organisation's memory each project has, as rows.

Rows change only while the organisation's Ref is locked, and a project's revision grows by one with
each change, so that a selection's revision and its memories always belong together.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import delete, select, update

from clumsies.server.acting import Act
from clumsies.server.memory.objects import batches, insert_new
from clumsies.server.schema import (
    project_org_resource_selections as selections,
)
from clumsies.server.schema import (
    project_org_selection_states as states,
)


@dataclass(frozen=True, slots=True)
class Selection:
    """A project's memories by id, and the number of this state of them."""

    revision: int
    resource_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class SelectionChange:
    """Memories that a project takes, and others that it gives up."""

    project_id: str
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


def read_selections(act: Act, project_ids: Collection[str]) -> dict[str, Selection]:
    """The selection of each project; revision 1 of none where a project never had one."""
    revisions: dict[str, int] = {}
    chosen: dict[str, set[str]] = {name: set() for name in project_ids}
    for some in batches(sorted(project_ids)):
        numbers = select(states.c.project_id, states.c.revision)
        for project_id, revision in act.connection.execute(
            numbers.where(states.c.project_id.in_(some))
        ):
            revisions[project_id] = revision
        rows = select(selections.c.project_id, selections.c.resource_id)
        for project_id, resource_id in act.connection.execute(
            rows.where(selections.c.project_id.in_(some))
        ):
            chosen[project_id].add(resource_id)
    return {
        name: Selection(revisions.get(name, 1), frozenset(found)) for name, found in chosen.items()
    }


def holders(act: Act, resource_ids: Collection[str]) -> set[str]:
    """The projects that have one of the memories."""
    found: set[str] = set()
    for some in batches(resource_ids):
        query = select(selections.c.project_id).where(selections.c.resource_id.in_(some))
        found.update(act.connection.scalars(query.distinct()))
    return found


def change_selection(act: Act, change: SelectionChange) -> bool:
    """Take memories for a project and give others up; whether anything changed."""
    here = selections.c.project_id == change.project_id
    old = set(act.connection.scalars(select(selections.c.resource_id).where(here)))
    new, gone = change.added - old, change.removed & old
    insert_new(
        act.connection,
        selections,
        [{"project_id": change.project_id, "resource_id": name} for name in sorted(new)],
    )
    for some in batches(sorted(gone)):
        act.connection.execute(delete(selections).where(here, selections.c.resource_id.in_(some)))
    return bool(new or gone)


def drop_from_selections(act: Act, resource_ids: Collection[str]) -> set[str]:
    """Take memories that are no more out of every selection; the projects that had one."""
    losing = holders(act, resource_ids)
    for some in batches(resource_ids):
        act.connection.execute(delete(selections).where(selections.c.resource_id.in_(some)))
    return losing


def count_revisions(act: Act, project_ids: Collection[str]) -> None:
    """Give the projects' selections their next number: they changed."""
    for some in batches(sorted(project_ids)):
        act.connection.execute(
            update(states)
            .where(states.c.project_id.in_(some))
            .values(revision=states.c.revision + 1, updated_at=act.now)
        )
