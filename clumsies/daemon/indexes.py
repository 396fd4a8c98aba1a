"""The search indexes of projects: opened once, and brought to what the memory is now.

An index is derived. One that is damaged is deleted and built again; one that is behind is brought
up to date by the changed resources alone. A caller that needs the newest memory waits for that
build, never for another project's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clumsies.engine.build import BuildReport
from clumsies.engine.index import Head
from clumsies.engine.pipeline import Engine
from clumsies.engine.plan import Progress
from clumsies.errors import ClumsiesError, IndexFailed, NotReady
from clumsies.logs import EventLog
from clumsies.memory.effective import EffectiveMemory, EffectiveView
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.project_storage import ProjectStorage


@dataclass(slots=True)
class _ProjectIndex:
    """One project's engine and how many use it; `mutex` is held while its index is built."""

    mutex: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Condition = field(default_factory=threading.Condition)
    leases: int = 0
    engine: Engine | None = None
    indexed: EffectiveView | None = None
    progress: Progress | None = None


class ProjectIndexes:
    """Thread-safe. All engines share one model runtime."""

    def __init__(
        self,
        effective: EffectiveMemory,
        storage: ProjectStorage,
        models: ModelRuntime,
        server_url: str,
        log: EventLog,
    ):
        self._effective = effective
        self._storage = storage
        self._models = models
        self._server_url = server_url
        self._log = log
        self._mutex = threading.Lock()
        self._projects: dict[str, _ProjectIndex] = {}

    @contextmanager
    def current(self, view: EffectiveView, wait_s: float) -> Iterator[Engine]:
        """The engine with the index of `view` or of a later one, which stays open meanwhile.

        Builds what is missing, waiting at most `wait_s` for a build under way; then raises
        NotReady("search_index_preparing") with how far it is.
        """
        project = self._project(view.project_id)
        with self._lease(project, view.project_id) as engine:
            if not _is_at(engine.head(), view):
                if not project.mutex.acquire(timeout=max(0.0, wait_s)):
                    raise _preparing(project.progress)
                try:
                    self._bring_up_to_date(project, engine, view.project_id)
                finally:
                    project.mutex.release()
            yield engine

    def build(self, project_id: str) -> None:
        """Bring the project's index to its memory; what the index worker does."""
        project = self._project(project_id)
        with self._lease(project, project_id) as engine, project.mutex:
            self._bring_up_to_date(project, engine, project_id)

    def head(self, project_id: str) -> Head | None:
        """The live revision of the project's index."""
        with self._lease(self._project(project_id), project_id) as engine:
            return engine.head()

    def progress(self, project_id: str) -> Progress | None:
        """How far a build under way is; None without one."""
        return self._project(project_id).progress

    def discard(self, project_id: str) -> None:
        """Delete the project's index once nobody reads it; the next build makes all of it anew."""
        project = self._project(project_id)
        with project.changed:
            project.changed.wait_for(lambda: project.leases == 0)
            if project.engine is not None:
                project.engine.close()
                project.engine = None
            project.indexed = None
            Engine.discard(self._storage.prepare(self._server_url, project_id).search)

    @contextmanager
    def _lease(self, project: _ProjectIndex, project_id: str) -> Iterator[Engine]:
        with project.changed:
            if project.engine is None:
                project.engine = self._open(project_id)
            engine = project.engine
            project.leases += 1
        try:
            yield engine
        finally:
            with project.changed:
                project.leases -= 1
                project.changed.notify_all()

    def close(self) -> None:
        """Close every engine; calls into them must have returned."""
        with self._mutex:
            for project in self._projects.values():
                if project.engine is not None:
                    project.engine.close()
            self._projects.clear()

    def _project(self, project_id: str) -> _ProjectIndex:
        with self._mutex:
            return self._projects.setdefault(project_id, _ProjectIndex())

    def _open(self, project_id: str) -> Engine:
        place = self._storage.prepare(self._server_url, project_id).search
        try:
            return Engine.open(place, models=self._models, project_id=project_id)
        except IndexFailed as error:
            if error.code != "search_index_corrupt":
                raise
            self._log.failed("index_discarded", error, "warning")
            Engine.discard(place)
            return Engine.open(place, models=self._models, project_id=project_id)

    def _bring_up_to_date(self, project: _ProjectIndex, engine: Engine, project_id: str) -> None:
        """Called with the project's mutex held."""
        view = self._effective.view(project_id)
        if not _is_at(engine.head(), view):

            def show(progress: Progress) -> None:
                project.progress = progress

            try:
                self._bring(engine, project.indexed, view, show)
            finally:
                project.progress = None
        project.indexed = view

    def _bring(
        self,
        engine: Engine,
        indexed: EffectiveView | None,
        view: EffectiveView,
        show: Callable[[Progress], None],
    ) -> BuildReport:
        """By the changed resources where it is known what is indexed, else by all of them."""
        if indexed is not None and _is_at(engine.head(), indexed):
            changes = view.changes_since(indexed)
            changed = list(self._effective.resources(view, changes.changed))
            report = engine.update(
                changed, changes.removed, base_commit_id=view.commit_id, progress=show
            )
            if report.effective_hash == view.effective_hash:
                return report
        resources = self._effective.resources(view)
        return engine.index(resources, base_commit_id=view.commit_id, progress=show)


def _preparing(progress: Progress | None) -> NotReady:
    details: dict[str, object] = {}
    if progress is not None and progress.stage == "embedding":
        details = {"units_done": progress.done, "units_total": progress.total}
    return NotReady(
        "search_index_preparing",
        "The search index is being built; send the same query again in a moment.",
        details,
    )


def _is_at(head: Head | None, view: EffectiveView) -> bool:
    return head is not None and head.effective_hash == view.effective_hash


class IndexWorker:
    """One thread that builds what the index jobs ask for.

    It waits a quiet moment after a wake, so that a burst of stores is one build, and looks on its
    own every IDLE_POLL_S for a retry that fell due.
    """

    QUIET_S = 0.025
    IDLE_POLL_S = 30.0

    def __init__(
        self,
        step: Callable[[], float | None],
        failed: Callable[[ClumsiesError], None],
    ):
        """`step` does one job and returns the seconds until the next is due, None for none."""
        self._step = step
        self._failed = failed
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clumsiesd-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something was asked for."""
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End after the job under way."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        pause: float | None = 0.0
        while not self._stop.is_set():
            if pause != 0.0:
                bound = self.IDLE_POLL_S if pause is None else min(pause, self.IDLE_POLL_S)
                if self._wake.wait(bound):
                    time.sleep(self.QUIET_S)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                pause = self._step()
            except ClumsiesError as error:  # the database refused: try again at the next poll
                self._failed(error)
                pause = None
