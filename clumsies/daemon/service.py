"""The composition root: everything that the resident process owns, and the handlers over it."""

from __future__ import annotations

import threading
import time

from clumsies.config import directories, hub_settings, worker_threads
from clumsies.daemon.context import Handlers, ProcessContext, Service
from clumsies.daemon.draft_methods import DraftMethods
from clumsies.daemon.indexes import IndexWorker, ProjectIndexes
from clumsies.daemon.memory_methods import MemoryMethods
from clumsies.daemon.project_methods import ProjectMethods
from clumsies.errors import ClumsiesError
from clumsies.logs import WorkerLog
from clumsies.memory import index_jobs
from clumsies.memory.bindings import BindingStore
from clumsies.memory.drafts import DraftStore, count_pending
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.local_authority import LocalAuthority
from clumsies.models.background import BackgroundPreparation
from clumsies.models.choice import resident_profile
from clumsies.models.preparation import ModelStore
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage

STOP_TIMEOUT_S = 5.0


class ResidentService:
    """State that lives as long as the daemon. The authority is local until a Server is set."""

    def __init__(self, context: ProcessContext):
        self._log = context.log
        profile = resident_profile()
        places = directories()
        self.database = LocalDatabase(context.places.root)
        self.storage = ProjectStorage(places.cache)
        self.models_store = ModelStore(places.models, profile, hub_settings())
        self.models = ModelRuntime(profile, self.models_store, worker_threads())
        self.authority = LocalAuthority(self.database, self.storage)
        self.effective = EffectiveMemory(self.database, self.storage, LOCAL_AUTHORITY)
        self.drafts = DraftStore(self.database, self.effective)
        self.bindings = BindingStore(self.database, LOCAL_AUTHORITY)
        self.indexes = ProjectIndexes(
            self.effective, self.storage, self.models, LOCAL_AUTHORITY, context.log
        )
        self._failures = WorkerLog(context.log, "index")
        self.worker = IndexWorker(self._step, self._failures.failed)
        self._preparation = BackgroundPreparation(self.models_store, self._models_ready)
        self._closing = threading.Event()
        projects = ProjectMethods(self, context)
        memory = MemoryMethods(self)
        drafts = DraftMethods(self)
        self._handlers: Handlers = {
            **projects.handlers(),
            **memory.handlers(),
            **drafts.handlers(),
        }
        index_jobs.requeue_interrupted(self.database)
        self.worker.start()
        self._preparation.start()

    @property
    def handlers(self) -> Handlers:
        return self._handlers

    def changed(self) -> None:
        """A mutation was committed: the index should follow."""
        self.worker.wake()

    def pending_operations(self) -> int:
        """Operations of all projects that no Server has confirmed."""
        return sum(count_pending(self.database, p.project_id) for p in self.authority.projects())

    def restore_generation(self, project_id: str) -> None:
        """Write a missing or corrupt generation of a local project anew from its objects."""
        self.authority.restore_generation(project_id)

    def reload(self) -> None:
        """Nothing of the configuration is read after the start but by new processes."""

    def close(self) -> None:
        """Finish the build under way, close indexes, models and the database."""
        self._closing.set()
        self.worker.stop(STOP_TIMEOUT_S)
        self._preparation.stop(STOP_TIMEOUT_S)
        self.indexes.close()
        self.models.close()
        self.database.close()

    def _models_ready(self) -> None:
        """Every project may have waited for the models."""
        for job in index_jobs.index_jobs(self.database):
            if job.completed_sequence < job.desired_sequence:
                index_jobs.enqueue(self.database, job.project_id)
        self.worker.wake()

    def _step(self) -> float | None:
        """Do the job that waits longest; the seconds until the next is due."""
        claim = index_jobs.claim(self.database, _now_ms())
        if claim is not None:
            try:
                self.indexes.build(claim.project_id)
            except ClumsiesError as error:
                if not self._closing.is_set():
                    index_jobs.fail(self.database, claim, error.code, _now_ms())
                    self._failures.failed(error)
            else:
                index_jobs.complete(self.database, claim)
                self._failures.recovered()
        pause_ms = index_jobs.pause_until_due_ms(self.database, _now_ms())
        return None if pause_ms is None else pause_ms / 1000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_service(context: ProcessContext) -> Service:
    """The service of `clumsiesd run`."""
    return ResidentService(context)
