"""What a build must do: the difference between the resources wanted and those indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import apsw

from clumsies.errors import InvalidRequest
from clumsies.storage.database import all_rows, is_storable
from clumsies.types import Resource

ProgressStage = Literal["reading", "splitting", "embedding", "writing"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: `done` of `total` items of the stage (`total` 0: not known yet)."""

    stage: ProgressStage
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class StoredResource:
    """A resource as the live revision has it."""

    rowid: int
    text_facts: tuple[str, ...]
    label_facts: tuple[str | None, ...]


@dataclass(slots=True)
class Plan:
    """The difference: resources to split again, to relabel only, and rows to take away.

    A changed resource comes with the row it replaces, or None.
    """

    changed: list[tuple[Resource, int | None]] = field(default_factory=list)
    relabelled: list[tuple[Resource, int]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def consider(self, resource: Resource, stored: StoredResource | None, stale: bool) -> None:
        """Sort one wanted resource; with `stale`, whatever is stored was built by other rules."""
        if stored is None:
            self.changed.append((resource, None))
        elif stale or stored.text_facts != text_facts(resource):
            self.changed.append((resource, stored.rowid))
        elif stored.label_facts != label_facts(resource):
            self.relabelled.append((resource, stored.rowid))


def check_text(resource: Resource) -> None:
    """Raises InvalidRequest that names a resource whose text no UTF-8 can hold."""
    for value in (resource.resource_id, resource.path, resource.description, resource.content):
        if not is_storable(value):
            raise InvalidRequest(
                "invalid_request",
                f"The resource {resource.path!a} holds what is not valid text (a lone surrogate); "
                "leave it out or decode it again.",
                {"path": ascii(resource.path)},
            )


def text_facts(resource: Resource) -> tuple[str, ...]:
    """What the units of a resource depend on."""
    return (resource.path, resource.content_hash, resource.description)


def label_facts(resource: Resource) -> tuple[str | None, ...]:
    """What is stored beside the units and changes none of them."""
    return (
        resource.kind,
        resource.scope,
        resource.source_commit_id,
        resource.draft_id,
        resource.draft_revision,
    )


def stored_resources(
    connection: apsw.Connection, ids: Iterable[str] | None = None
) -> dict[str, StoredResource]:
    """The live revision's resources by id: all of them, or those named."""
    columns = (
        "SELECT resource_id, resource_rowid, path, content_hash, description, kind, scope, "
        "source_commit_id, draft_id, draft_revision FROM resources"
    )
    if ids is None:
        rows = all_rows(connection, columns)
    else:
        rows = []
        for resource_id in filter(is_storable, ids):
            rows += all_rows(connection, f"{columns} WHERE resource_id = ?", (resource_id,))
    return {row[0]: StoredResource(row[1], row[2:5], row[5:]) for row in rows}


def plan_all(
    stored: dict[str, StoredResource],
    wanted: Iterable[Resource],
    stale: bool,
    progress: ProgressCallback,
) -> Plan:
    """Make the memory exactly `wanted`; an id given twice is refused."""
    plan = Plan()
    seen: set[str] = set()
    for resource in wanted:
        check_text(resource)
        if resource.resource_id in seen:
            raise InvalidRequest(
                "invalid_request",
                f"The resource id {resource.resource_id!r} was given twice; ids must be unique.",
            )
        seen.add(resource.resource_id)
        plan.consider(resource, stored.get(resource.resource_id), stale)
        progress(Progress("reading", len(seen), 0))
    plan.removed = [row.rowid for resource_id, row in stored.items() if resource_id not in seen]
    return plan


def plan_some(
    stored: dict[str, StoredResource], changed: Iterable[Resource], removed: Sequence[str]
) -> Plan:
    """Put `changed` in and take `removed` ids away; everything else stays."""
    plan = Plan()
    wanted = {resource.resource_id: resource for resource in changed}
    both = sorted(wanted.keys() & set(removed))
    if both:
        raise InvalidRequest(
            "invalid_request",
            f"The resource ids {', '.join(map(repr, both))} were given as changed and as removed; "
            "give each once.",
        )
    for resource in wanted.values():
        check_text(resource)
        plan.consider(resource, stored.get(resource.resource_id), stale=False)
    plan.removed = [stored[i].rowid for i in dict.fromkeys(removed) if i in stored]
    return plan
