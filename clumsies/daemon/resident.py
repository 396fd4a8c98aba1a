"""Everything that the resident process owns: databases, indexes, models, workers."""

from __future__ import annotations

import threading
import time

from clumsies.api.imports import ImportAnswer, ImportedFile
from clumsies.config import (
    directories,
    hub_settings,
    sync_settings,
    worker_threads,
)
from clumsies.daemon.activation_history import RecordedActivations
from clumsies.daemon.context import ProcessContext
from clumsies.daemon.indexes import IndexWorker, ProjectIndexes
from clumsies.daemon.local_projects import LocalProjects
from clumsies.daemon.server_connection import ServerConnection
from clumsies.errors import ClumsiesError, NotReady
from clumsies.history.recorder import RunRecorder
from clumsies.history.runs import RunStore
from clumsies.logs import WorkerLog
from clumsies.memory import index_jobs
from clumsies.memory.bindings import BindingStore
from clumsies.memory.drafts import DraftStore
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.memory.installation import Installation
from clumsies.memory.projects import KnownProject, ProjectDirectory
from clumsies.models.background import BackgroundPreparation
from clumsies.models.choice import resident_profile
from clumsies.models.preparation import ModelStore
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from clumsies.sync.imports import import_remotely
from clumsies.sync.remote import RemoteClient
from clumsies.sync.response_cache import ResponseCache
from clumsies.sync.synchroniser import Synchroniser

STOP_TIMEOUT_S = 5.0
RESTORABLE = frozenset({"commit_generation_missing", "commit_generation_corrupt"})


class Resident:
    """State that lives as long as the daemon: both authorities, what is installed of them, and
    the workers that keep indexes and accounts in step."""

    def __init__(self, context: ProcessContext):
        self.log = context.log
        profile = resident_profile()
        places = directories()
        self.database = LocalDatabase(context.places.root)
        self.storage = ProjectStorage(places.cache)
        self.models_store = ModelStore(places.models, profile, hub_settings())
        self.models = ModelRuntime(profile, self.models_store, worker_threads())
        self.projects = ProjectDirectory(self.database)
        authority_of = self.projects.authority_of
        self.local = LocalProjects(self.database, context.log)
        self.installation = Installation(self.database, self.storage, authority_of)
        self.effective = EffectiveMemory(self.database, self.storage, authority_of)
        self.drafts = DraftStore(self.database, self.effective)
        self.bindings = BindingStore(self.database, self.authorities, authority_of)
        self.indexes = ProjectIndexes(
            self.view, self.effective, self.storage, self.models, authority_of, context.log
        )
        self._installing = threading.Lock()
        settings = sync_settings()
        self.sync = Synchroniser(
            self.database,
            self.storage,
            interval_ms=settings.interval_ms,
            changed=self.index_changed,
            log=context.log,
            installing=self._installing,
        )
        self.server = ServerConnection(self.database, context.log, self.accounts_changed)
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
        self.accounts_changed()
        if settings.enabled:
            self.sync.start()

    def changed(self, project_id: str) -> None:
        """A mutation of the project was committed: index and authority should follow."""
        self.worker.wake()
        self.sync.notify(project_id)

    def index_changed(self) -> None:
        """What is installed may have changed: the index should follow."""
        self.worker.wake()

    def accounts_changed(self) -> None:
        """Projects, Server or session are others than before."""
        server = self.server.account
        self.sync.set_accounts([*([] if server is None else [server]), *self.local.accounts()])

    def client_of(self, project_id: str | None) -> tuple[RemoteClient, ResponseCache | None]:
        """The client of the project's authority, else of the Server, with the Server's cache.

        Raises NotReady("daemon_project_config_incomplete") where that is a Server and none is set.
        """
        if project_id is not None:
            project = self.projects.project(project_id)
            if project.is_local:
                return self.local.client(project.project_id, project.org_id), None
            if project.server_url != self.server.url:
                raise NotReady(
                    "daemon_project_config_incomplete",
                    f"The project is of {project.server_url}, which is not in use; sign in there "
                    "with `clumsies login`.",
                    {"server_url": project.server_url},
                )
        return self.server.require()

    def create_local(self, name: str) -> KnownProject:
        """A new local project with no memory yet, ready to be searched and stored into."""
        project = self.local.create(name)
        self.accounts_changed()
        self.synchronize(project.project_id)
        return project

    def import_texts(self, project_id: str, files: list[ImportedFile]) -> ImportAnswer:
        """Make texts part of a project's memory, and bring that here: at the local authority as
        its owner; at a Server by its administrators, everybody else proposes."""
        project = self.projects.project(project_id)
        if project.is_local:
            answer = self.local.import_files(project, files)
        else:
            answer = import_remotely(self.client_of(project_id)[0], project_id, files)
        self.synchronize(project_id)
        return answer

    def synchronize(self, project_id: str) -> None:
        """Bring the project's account in step now; raises the first error."""
        self.sync.run_once(project_id)

    def view(self, project_id: str) -> EffectiveView:
        """What the project's memory is now.

        A missing or corrupt generation is written anew: its objects are in the database, so nothing
        has to be fetched.
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
        self.log.failed("generation_restored", found, "warning")
        with self._installing:
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
        url = self.server.url
        return [LOCAL_AUTHORITY] if url is None else [url, LOCAL_AUTHORITY]

    def close(self) -> None:
        """End what is under way, close indexes, models and the database."""
        self._closing.set()
        self.sync.prepare_to_stop()
        self.server.close()
        self.local.close()
        self.sync.stop(STOP_TIMEOUT_S)
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
