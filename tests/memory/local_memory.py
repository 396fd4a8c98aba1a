"""A whole local data layer in one directory: database, authority, Effective Memory, drafts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from clumsies.memory.drafts import DraftStore, StoreReceipt, random_id
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.memory.operations import (
    Create,
    Delete,
    Discard,
    MemoryContent,
    OperationSource,
    Rename,
    Replacement,
    StoreOperation,
    StoreRequest,
    Update,
)
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from clumsies.types import Resource
from tests.memory.direct_authority import ImportedText, ImportReport, LocalAuthority

START_NS = 1_767_323_045_000_000_000


class Clock:
    """Every reading is a millisecond after the one before."""

    def __init__(self) -> None:
        self._readings = itertools.count(START_NS, 1_000_000)

    def __call__(self) -> int:
        return next(self._readings)


class LocalMemory:
    """The layer and short words for what tests do with it. `new_id` makes ids random or counted."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[str], str] = random_id,
    ):
        self.directory = directory
        clock = clock or Clock()
        self.database = LocalDatabase(directory / "data", clock_ns=clock)
        self.storage = ProjectStorage(directory / "cache")
        self.authority = LocalAuthority(self.database, self.storage, clock_ns=clock, new_id=new_id)
        self.effective = EffectiveMemory(self.database, self.storage, lambda _: LOCAL_AUTHORITY)
        self.drafts = DraftStore(self.database, self.effective, clock_ns=clock, new_id=new_id)
        known = self.authority.projects()
        self.project = known[0] if known else self.authority.create_project("Courier")
        self.project_id = self.project.project_id

    def bring_in(self, texts: Mapping[str, str], **options: bool) -> ImportReport:
        imported = [ImportedText(path, text) for path, text in texts.items()]
        return self.authority.import_resources(self.project_id, imported, **options)

    def view(self) -> EffectiveView:
        return self.effective.view(self.project_id)

    def contents(self) -> dict[str, str]:
        """Path to text of everything in Effective Memory."""
        return {r.path: r.content for r in self.effective.resources(self.view())}

    def load(self, name: str) -> Resource:
        [resource] = self.effective.load(self.project_id, [name])
        return resource

    def id_of(self, path: str) -> str:
        return self.load(path).resource_id

    def store(
        self,
        op: StoreOperation,
        *,
        source: OperationSource = "mcp_store",
        draft_id: str | None = None,
        base_commit_id: str | None = None,
    ) -> StoreReceipt:
        return self.drafts.store_draft_operation(
            StoreRequest(
                project_id=self.project_id,
                op=op,
                source=source,
                draft_id=draft_id,
                base_commit_id=base_commit_id,
            )
        )

    def close(self) -> None:
        self.database.close()


def create(path: str, text: str, description: str | None = None) -> StoreOperation:
    return StoreOperation(
        create=Create(path=path, content=MemoryContent(content=text), description=description)
    )


def update(name: str, text: str, description: str | None = None) -> StoreOperation:
    content = MemoryContent(content=text, description=description)
    return StoreOperation(update=Update(id=name, content=content))


def replace_in(resource: Resource, old: str, new: str) -> StoreOperation:
    return StoreOperation(
        update=Update(
            id=resource.resource_id,
            expected_hash=resource.content_hash,
            replacements=[Replacement(old_text=old, new_text=new)],
        )
    )


def rename(name: str, path: str) -> StoreOperation:
    return StoreOperation(rename=Rename(id=name, new_path=path))


def delete(name: str) -> StoreOperation:
    return StoreOperation(delete=Delete(id=name))


def discard(name: str) -> StoreOperation:
    return StoreOperation(discard=Discard(id=name))


def counted_ids() -> Callable[[str], str]:
    """Ids `draft_1`, `op_1`, … in the order they are asked for."""
    counters: dict[str, itertools.count[int]] = {}

    def new_id(prefix: str) -> str:
        return f"{prefix}_{next(counters.setdefault(prefix, itertools.count(1)))}"

    return new_id
