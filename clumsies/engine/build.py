"""Building a revision: only what changed is split, embedded and rewritten.

A build reads the live revision, splits the resources that differ, embeds the passages whose input
hash is new (vectors are kept as they are made, so an interrupted build resumes), and moves to the
new revision in a single commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import apsw

from clumsies.engine.commit import (
    TOKEN_VECTOR_BYTES,
    BuiltUnit,
    RevisionWriter,
    VectorChange,
)
from clumsies.engine.index import Head, IndexStore, is_current, read_head
from clumsies.engine.plan import (
    Plan,
    Progress,
    ProgressCallback,
    StoredResource,
    plan_all,
    plan_some,
    stored_resources,
)
from clumsies.engine.revisions import vector_input_hash
from clumsies.engine.units import InputBudget, model_text, split
from clumsies.errors import NotReady
from clumsies.models.encoder import Embedding
from clumsies.models.runtime import ModelRuntime
from clumsies.models.tokenizer import ModelInput
from clumsies.storage.database import first_row, only_row
from clumsies.types import Resource, Unit

BUILD_LOCK_TIMEOUT_S = 600.0
_KEEP_EVERY = 64
"""Vectors a transaction while embedding: what a crash can cost."""

Planner = Callable[[dict[str, StoredResource], bool], Plan]


@dataclass(slots=True)
class BuildReport:
    """What a build did. `inputs_cut` are passages longer than the embedder's whole input."""

    revision: str = ""
    effective_hash: str = ""
    resources: int = 0
    resources_changed: int = 0
    resources_removed: int = 0
    units: int = 0
    units_added: int = 0
    units_removed: int = 0
    passages_embedded: int = 0
    inputs_cut: int = 0


class IndexBuilder:
    """Builds revisions of one store with one profile's models; one build at a time."""

    def __init__(self, store: IndexStore, models: ModelRuntime, project_id: str):
        self._store = store
        self._models = models
        self._project_id = project_id

    def replace_all(
        self, resources: Iterable[Resource], base_commit_id: str | None, progress: ProgressCallback
    ) -> tuple[BuildReport, VectorChange | None]:
        """Make the live revision consist of exactly `resources`."""

        def planner(stored: dict[str, StoredResource], stale: bool) -> Plan:
            return plan_all(stored, resources, stale, progress)

        return self._build(planner, None, base_commit_id, progress)

    def update(
        self,
        changed: Sequence[Resource],
        removed: Sequence[str],
        base_commit_id: str | None,
        progress: ProgressCallback,
    ) -> tuple[BuildReport, VectorChange | None]:
        """Put `changed` in place of what has their ids, and take the `removed` ids away."""

        def planner(stored: dict[str, StoredResource], stale: bool) -> Plan:
            if stale:
                raise NotReady(
                    "search_index_not_ready",
                    "The index was built by other rules or another profile; "
                    "index all resources again first.",
                )
            return plan_some(stored, changed, removed)

        ids = [resource.resource_id for resource in changed] + list(removed)
        return self._build(planner, ids, base_commit_id, progress)

    def _build(
        self,
        planner: Planner,
        ids: Sequence[str] | None,
        base_commit_id: str | None,
        progress: ProgressCallback,
    ) -> tuple[BuildReport, VectorChange | None]:
        self._store.build_lock.acquire(BUILD_LOCK_TIMEOUT_S)
        with self._store.build_lock:
            with self._store.reader() as connection:
                head = read_head(connection)
                stored = stored_resources(connection, ids)
            plan = planner(stored, head is not None and not self._is_current(head))
            report = BuildReport(
                resources_changed=len(plan.changed) + len(plan.relabelled),
                resources_removed=len(plan.removed),
            )
            built = self._split(plan, progress)
            self._embed(plan, built, progress, report)
            progress(Progress("writing", 0, 1))
            writer = RevisionWriter(self._store, self._models.profile, self._project_id)
            new_head, change = writer.commit(plan, built, base_commit_id)
            progress(Progress("writing", 1, 1))
        report.revision = new_head.revision
        report.effective_hash = new_head.effective_hash
        report.resources = new_head.resource_count
        report.units = new_head.unit_count
        if change is not None:
            report.units_added = len(change.added_ids)
            report.units_removed = len(change.removed_ids)
        return report, change

    def _is_current(self, head: Head) -> bool:
        profile = self._models.profile
        return is_current(head, profile.embedding_revision, profile.dimensions)

    def _split(self, plan: Plan, progress: ProgressCallback) -> list[list[BuiltUnit]]:
        """The units of each changed resource, in the plan's order."""
        profile = self._models.profile
        tokenizer = self._models.tokenizer
        budget = InputBudget.of(tokenizer, profile.max_tokens, profile.passage_prefix)
        built: list[list[BuiltUnit]] = []
        for resource, _ in plan.changed:
            progress(Progress("splitting", len(built), len(plan.changed)))
            units = split(resource, tokenizer, budget)
            built.append([BuiltUnit(unit, self._input_hash(resource, unit)) for unit in units])
        progress(Progress("splitting", len(built), len(built)))
        return built

    def _input_hash(self, resource: Resource, unit: Unit) -> str:
        profile = self._models.profile
        passage = model_text(resource.path, unit.heading_path, unit.text)
        return vector_input_hash(profile.embedding_revision, profile.dimensions, passage)

    def _embed(
        self,
        plan: Plan,
        built: list[list[BuiltUnit]],
        progress: ProgressCallback,
        report: BuildReport,
    ) -> None:
        """Make and keep the vectors that the built units need and the store does not have."""
        wanted: dict[str, str] = {}
        for (resource, _), units in zip(plan.changed, built, strict=True):
            for item in units:
                text = model_text(resource.path, item.unit.heading_path, item.unit.text)
                wanted[item.input_hash] = text
        with self._store.reader() as connection:
            missing = [i for i in wanted if not _has_vector(connection, i)]
        if not missing:
            return
        embedder = self._models.embedder
        inputs = [embedder.passage_input(wanted[i]) for i in missing]
        report.passages_embedded = len(missing)
        report.inputs_cut = sum(item.cut for item in inputs)
        batch: list[tuple[str, Embedding]] = []
        room = TOKEN_VECTOR_BYTES
        progress(Progress("embedding", 0, len(missing)))
        results = self._models.pool.stream(embedder.embed, inputs, cost=_length)
        for done, (position, embedding) in enumerate(results, 1):
            batch.append((missing[position], embedding))
            if len(batch) == _KEEP_EVERY or done == len(missing):
                room = self._keep(batch, room)
                batch = []
            progress(Progress("embedding", done, len(missing)))

    def _keep(self, batch: list[tuple[str, Embedding]], room: int) -> int:
        """Store vectors before any unit uses them; a later build finds them if this one dies.

        Token vectors are stored while they fit into `room` bytes; what is left of it is returned.
        A large build would otherwise write gigabytes that its commit deletes again.
        """
        with self._store.writer() as connection:
            for input_hash, embedding in batch:
                connection.execute(
                    "INSERT OR IGNORE INTO vectors(input_hash, vector) VALUES (?, ?)",
                    (input_hash, embedding.vector.astype("<f4").tobytes()),
                )
                (vector_id,) = only_row(
                    connection, "SELECT vector_id FROM vectors WHERE input_hash = ?", (input_hash,)
                )
                connection.execute(
                    "INSERT OR IGNORE INTO idle_vectors(vector_id) VALUES (?)", (vector_id,)
                )
                room -= len(embedding.tokens) * (self._models.profile.dimensions + 4)
                if room >= 0:
                    connection.execute(
                        "INSERT OR REPLACE INTO token_vectors VALUES (?, ?)",
                        (vector_id, embedding.quantised().to_bytes()),
                    )
        return room


def _length(sequence: ModelInput) -> int:
    return len(sequence)


def _has_vector(connection: apsw.Connection, input_hash: str) -> bool:
    row = first_row(connection, "SELECT 1 FROM vectors WHERE input_hash = ?", (input_hash,))
    return row is not None
