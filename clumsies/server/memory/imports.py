"""Bringing many texts into a project's memory in one commit of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sqlalchemy import select

from clumsies.api.imports import ImportAnswer, ImportMemories
from clumsies.errors import InvalidRequest
from clumsies.memory.operations import check_content
from clumsies.memory.paths import check_path
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.memory.objects import batches, read_entries
from clumsies.server.memory.projects import require_project
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.server.memory.refs import org_key, project_key, read_ref
from clumsies.server.memory.selection_rows import SelectionChange, read_selections
from clumsies.server.schema import project_org_resource_selections as selections
from clumsies.server.schema import projects
from clumsies.storage.objects import TreeEntry, blob_id
from clumsies.storage.tree_paths import find_collision


@dataclass(frozen=True, slots=True)
class ImportedText:
    """A text to bring in; a description of None keeps the one that is there."""

    path: str
    content: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, by path; `commit_id` is the project's commit afterwards."""

    commit_id: str | None
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Plan:
    changes: list[ResourceChange] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def import_texts(
    act: Act, project_id: str, texts: Iterable[ImportedText], remove_others: bool = False
) -> ImportReport:
    """Make the texts part of the organisation's memory and of the project's selection.

    A path that the organisation has keeps its id and takes the text. With `remove_others` what
    else the project has leaves it, and leaves the organisation too unless another project has it.
    Without a difference no commit is made. Raises InvalidRequest for a path or text that cannot
    be kept and for two of them that collide, Conflict("already_exists") for one that collides with
    what is there, Refused("forbidden") for others than the organisation's owners and admins.
    """
    require_project(act, project_id)
    act.principal.require("review:merge")
    wanted = list(texts)
    _check(wanted)
    ref = read_ref(act, org_key(act.principal.org_id), lock=True)
    old = {entry.path or "": entry for entry in read_entries(act.connection, ref.commit_id)}
    plan = _plan(act, old, wanted)
    chosen = read_selections(act, [project_id])[project_id].resource_ids
    others = chosen - plan.kept if remove_others else frozenset()
    shared = _had_elsewhere(act, project_id, others)
    plan.changes += [ResourceChange(name, is_deleted=True) for name in sorted(others - shared)]
    selection = SelectionChange(project_id, frozenset(plan.kept), frozenset(shared))
    publish_org(act, plan.changes, project_id, selection)
    report = ImportReport(
        read_ref(act, project_key(project_id)).commit_id,
        tuple(plan.created),
        tuple(plan.updated),
        tuple(plan.unchanged),
        tuple(path for path, entry in sorted(old.items()) if entry.item_id in others),
    )
    if plan.changes or shared or not plan.kept <= chosen:
        _record(act, project_id, report)
    return report


def import_memories(act: Act, project_id: str, data: ImportMemories) -> ImportAnswer:
    """As `import_texts`, by message."""
    texts = (ImportedText(file.path, file.content, file.description) for file in data.files)
    report = import_texts(act, project_id, texts, data.remove_others)
    return ImportAnswer(
        created=len(report.created),
        updated=len(report.updated),
        unchanged=len(report.unchanged),
        removed=len(report.removed),
        commit_id=report.commit_id,
    )


def _check(wanted: Collection[ImportedText]) -> None:
    for text in wanted:
        check_path(text.path)
        check_content(text.content)
    found = find_collision(text.path for text in wanted)
    if found is not None:
        first, second = found
        raise InvalidRequest(
            "invalid_request",
            f"The paths {first!a} and {second!a} cannot stand side by side: they are the same, or "
            "one is a folder of the other, where case is ignored. Rename one.",
            {"paths": list(found)},
        )


def _plan(act: Act, old: dict[str, TreeEntry], wanted: Iterable[ImportedText]) -> _Plan:
    plan = _Plan()
    for text in wanted:
        entry = old.get(text.path)
        if entry is None:
            name = act.new_id("mem")
            plan.created.append(text.path)
        else:
            name = entry.item_id
            plan.kept.add(name)
            keeps = text.description is None or text.description == entry.description
            if keeps and entry.blob_id == blob_id(text.content):
                plan.unchanged.append(text.path)
                continue
            plan.updated.append(text.path)
        plan.changes.append(ResourceChange(name, text.path, text.content, text.description))
    return plan


def _had_elsewhere(act: Act, project_id: str, resource_ids: Collection[str]) -> frozenset[str]:
    """Those of the memories that another project has, which was not deleted."""
    found: set[str] = set()
    for some in batches(sorted(resource_ids)):
        query = (
            select(selections.c.resource_id)
            .join(projects, projects.c.project_id == selections.c.project_id)
            .where(
                selections.c.resource_id.in_(some),
                selections.c.project_id != project_id,
                projects.c.deleted_at.is_(None),
            )
        )
        found.update(act.connection.scalars(query))
    return frozenset(found)


def _record(act: Act, project_id: str, report: ImportReport) -> None:
    audit.record(
        act,
        "project.memory_imported",
        "project",
        project_id,
        created=len(report.created),
        updated=len(report.updated),
        removed=len(report.removed),
        commit_id=report.commit_id,
    )
