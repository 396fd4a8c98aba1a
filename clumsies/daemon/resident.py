"""Everything that the resident process owns: databases, indexes, models, workers."""

from __future__ import annotations

import threading
import time

from clumsies.config import directories, hub_settings, worker_threads
from clumsies.daemon.activation_history import RecordedActivations
from clumsies.daemon.context import ProcessContext
from clumsies.daemon.indexes import IndexWorker, ProjectIndexes
from clumsies.errors import ClumsiesError
from clumsies.history.recorder import RunRecorder
from clumsies.history.runs import RunStore
from clumsies.logs import WorkerLog
from clumsies.memory import index_jobs
from clumsies.memory.bindings import BindingStore
from clumsies.memory.drafts import DraftStore, count_pending
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.memory.installation import Installation
from clumsies.memory.local_authority import LocalAuthority
from clumsies.memory.projects import ProjectDirectory
from clumsies.models.background import BackgroundPreparation
from clumsies.models.choice import resident_profile
from clumsies.models.preparation import ModelStore
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage

STOP_TIMEOUT_S = 5.0
RESTORABLE = frozenset({"commit_generation_missing", "commit_generation_corrupt"})


class Resident:
    """State that lives as long as the daemon. The authority is local until a Server is set."""

    def __init__(self, context: ProcessContext):
        self._log = context.log
        profile = resident_profile()
        places = directories()
        self.database = LocalDatabase(context.places.root)
        self.storage = ProjectStorage(places.cache)
        self.models_store = ModelStore(places.models, profile, hub_settings())
        self.models = ModelRuntime(profile, self.models_store, worker_threads())
        self.projects = ProjectDirectory(self.database)
        authority_of = self.projects.authority_of
        self.authority = LocalAuthority(self.database, self.storage)
        self.installation = Installation(self.database, self.storage, authority_of)
        self.effective = EffectiveMemory(self.database, self.storage, authority_of)
        self.drafts = DraftStore(self.database, self.effective)
        self.bindings = BindingStore(self.database, self.authorities, authority_of)
        self.indexes = ProjectIndexes(
            self.view, self.effective, self.storage, self.models, authority_of, context.log
        )
        self.history = RunRecorder(RunStore(self.database), context.log)
        self.recorded = RecordedActivations(self.history, self.effective)
        self._failures = WorkerLog(context.log, "index")
        self.worker = IndexWorker(self._step, self._failures.failed)
        self._preparation = BackgroundPreparation(self.models_store, self._models_ready)
        self._closing = threading.Event()
        self._restoring = threading.Lock()
        self._generations_checked = False
        index_jobs.requeue_interrupted(self.database)
        self.history.start()
        self.worker.start()
        self._preparation.start()

    def changed(self) -> None:
        """A mutation was committed: the index should follow."""
        self.worker.wake()

    def pending_operations(self) -> int:
        """Operations of all projects that no Server has confirmed."""
        return sum(count_pending(self.database, p.project_id) for p in self.projects.projects())

    def view(self, project_id: str) -> EffectiveView:
        """What the project's memory is now.

        A missing or corrupt generation of a local project is written anew: its objects are in the
        database, so nothing has to be fetched.
        """
        try:
            return self.effective.view(project_id)
        except ClumsiesError as error:
            if error.code not in RESTORABLE:
                raise
        with self._restoring:
            try:
                return self.effective.view(project_id)  # another caller may have restored it
            except ClumsiesError as error:
                if error.code not in RESTORABLE:
                    raise
                self._restore(project_id, error)
            return self.effective.view(project_id)

    def _restore(self, project_id: str, found: ClumsiesError) -> None:
        self._log.failed("generation_restored", found, "warning")
        self.installation.restore(project_id)

    def _check_generations(self) -> None:
        """Once per life, beside everything else: every file of every installed generation."""
        for project in self.projects.projects():
            if self._closing.is_set():
                return
            with self._restoring:
                try:
                    self.installation.generations(project.project_id).verify_files(
                        self.effective.view(project.project_id).commit_id
                    )
                except ClumsiesError as error:
                    if error.code in RESTORABLE:
                        self._restore(project.project_id, error)
                    else:
                        self._failures.failed(error)

    def authorities(self) -> list[str]:
        """URLs of the authorities in use, the local one last."""
        return [LOCAL_AUTHORITY]

    def close(self) -> None:
        """End the build under way, close indexes, models and the database."""
        self._closing.set()
        self.indexes.stop_builds()
        self.worker.stop(STOP_TIMEOUT_S)
        self._preparation.stop(STOP_TIMEOUT_S)
        self.indexes.close()
        self.models.close()
        self.history.close(STOP_TIMEOUT_S)
        self.database.close()

    def _models_ready(self) -> None:
        """Every project may have waited for the models."""
        for job in index_jobs.index_jobs(self.database):
            if job.completed_sequence < job.desired_sequence:
                index_jobs.enqueue(self.database, job.project_id)
        self.worker.wake()

    def _step(self) -> float | None:
        """Do the job that waits longest; the seconds until the next is due."""
        if not self._generations_checked:
            self._generations_checked = True
            self._check_generations()
        claim = index_jobs.claim(self.database, _now_ms())
        if claim is not None:
            try:
                self.indexes.build(claim.project_id)
            except Exception as error:  # Whatever it was, the job has to leave `building`.
                if not self._closing.is_set():
                    code = error.code if isinstance(error, ClumsiesError) else "internal_error"
                    index_jobs.fail(self.database, claim, code, _now_ms())
                    self._failures.failed(error)
            else:
                index_jobs.complete(self.database, claim)
                self._failures.recovered()
        pause_ms = index_jobs.pause_until_due_ms(self.database, _now_ms())
        return None if pause_ms is None else pause_ms / 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
