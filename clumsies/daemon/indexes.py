"""The search indexes of projects: opened once, and brought to what the memory is now.

An index is derived. One that is damaged or gone is deleted and built again; one that is behind is
brought up to date by the changed resources alone. A caller that needs the newest memory waits for
that build, never for another project's; what it built when its time is over is kept for the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from clumsies.engine.build import BuildReport
from clumsies.engine.index import DATABASE_NAME, Head, is_current
from clumsies.engine.pipeline import Engine
from clumsies.engine.plan import Progress
from clumsies.errors import IndexFailed, NotReady
from clumsies.files import io_failed
from clumsies.logs import EventLog
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.project_storage import ProjectStorage

DISCARD_WAIT_S = 20.0
"""How long the deletion of an index waits for the queries that read it."""
_T = TypeVar("_T")


@dataclass(slots=True)
class _ProjectIndex:
    """One project's engine and how many use it; `mutex` is held while its index is built.

    While `discarding` is not zero nobody new gets the engine, and a build under way ends.
    """

    mutex: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Condition = field(default_factory=threading.Condition)
    leases: int = 0
    discarding: int = 0
    engine: Engine | None = None
    inode: int = 0
    indexed: EffectiveView | None = None
    progress: Progress | None = None


class ProjectIndexes:
    """Thread-safe. All engines share one model runtime.

    `view` gives what a project's memory is now, `effective` the texts of its resources.
    """

    def __init__(
        self,
        view: Callable[[str], EffectiveView],
        effective: EffectiveMemory,
        storage: ProjectStorage,
        models: ModelRuntime,
        authority_of: Callable[[str], str],
        log: EventLog,
    ):
        self._view = view
        self._effective = effective
        self._storage = storage
        self._models = models
        self._authority_of = authority_of
        self._log = log
        self._mutex = threading.Lock()
        self._projects: dict[str, _ProjectIndex] = {}
        self._closing = threading.Event()

    def read(self, view: EffectiveView, wait_s: float, reading: Callable[[Engine], _T]) -> _T:
        """What `reading` finds in the index of `view` or of a later one.

        Builds what is missing for at most `wait_s`, waiting for a build under way included; then
        raises NotReady("search_index_preparing") with how far it is. `reading` is called once
        more where it meets a damaged index.
        """
        until = time.monotonic() + wait_s

        def bring_and_read(project: _ProjectIndex, engine: Engine) -> _T:
            if not self._is_at(engine.head(), view):
                if not project.mutex.acquire(timeout=max(0.0, wait_s)):
                    raise _preparing(project.progress)
                try:
                    self._bring_up_to_date(project, engine, view.project_id, until)
                finally:
                    project.mutex.release()
            return reading(engine)

        return self._mended(view.project_id, bring_and_read)

    def build(self, project_id: str) -> None:
        """Bring the project's index to its memory; what the index worker does."""

        def bring(project: _ProjectIndex, engine: Engine) -> None:
            with project.mutex:
                self._bring_up_to_date(project, engine, project_id, None)

        self._mended(project_id, bring)

    def head(self, project_id: str) -> Head | None:
        """The live revision of the project's index; None where there is none any more."""
        return self._mended(project_id, lambda _, engine: engine.head())

    def progress(self, project_id: str) -> Progress | None:
        """How far a build under way is; None without one."""
        return self._project(project_id).progress

    def discard(self, project_id: str) -> None:
        """Delete the project's index once nobody reads it; the next build makes all of it anew.

        Raises NotReady("search_index_preparing") where queries read it for too long.
        """
        self._discard(self._project(project_id), project_id, None)

    def close(self) -> None:
        """End builds under way and close every engine; calls into them must have returned."""
        self.stop_builds()
        with self._mutex:
            for project in self._projects.values():
                if project.engine is not None:
                    project.engine.close()
            self._projects.clear()

    def stop_builds(self) -> None:
        """A build under way raises at its next step; what it embedded is kept."""
        self._closing.set()

    def _mended(self, project_id: str, work: Callable[[_ProjectIndex, Engine], _T]) -> _T:
        """Do the work, and once more with a new index where it met a damaged one."""
        project = self._project(project_id)
        with self._lease(project, project_id) as engine:
            try:
                self._require_in_place(project, project_id)
                return work(project, engine)
            except IndexFailed as error:
                if error.code != "search_index_corrupt":
                    raise
                self._log.failed("index_discarded", error, "warning")
        self._discard(project, project_id, engine)
        with self._lease(project, project_id) as engine:
            return work(project, engine)

    def _require_in_place(self, project: _ProjectIndex, project_id: str) -> None:
        """Raise unless the open file is the one at its path: a cache may be cleared under us."""
        if _inode(self._place(project_id)) != project.inode:
            raise IndexFailed(
                "search_index_corrupt", "The search index was taken away; it is built anew."
            )

    def _discard(self, project: _ProjectIndex, project_id: str, damaged: Engine | None) -> None:
        """Delete the index; where `damaged` is given, only while that is the open one."""
        with project.changed:
            if damaged is not None and project.engine is not damaged:
                return  # Another caller met the damage, too, and was first.
            project.discarding += 1
            try:
                if not project.changed.wait_for(lambda: not project.leases, DISCARD_WAIT_S):
                    raise NotReady(
                        "search_index_preparing",
                        "Queries read the search index for long; try again in a moment.",
                    )
                if project.engine is not None:
                    project.engine.close()
                project.engine = project.indexed = None
                _delete(self._place(project_id))
            finally:
                project.discarding -= 1
                project.changed.notify_all()

    @contextmanager
    def _lease(self, project: _ProjectIndex, project_id: str) -> Iterator[Engine]:
        with project.changed:
            project.changed.wait_for(lambda: not project.discarding)
            if project.engine is None:
                project.engine = self._open(project_id)
                project.inode = _inode(self._place(project_id))
            engine = project.engine
            project.leases += 1
        try:
            yield engine
        finally:
            with project.changed:
                project.leases -= 1
                project.changed.notify_all()

    def _project(self, project_id: str) -> _ProjectIndex:
        with self._mutex:
            return self._projects.setdefault(project_id, _ProjectIndex())

    def _place(self, project_id: str) -> Path:
        return self._storage.location(self._authority_of(project_id), project_id).search

    def _open(self, project_id: str) -> Engine:
        place = self._storage.prepare(self._authority_of(project_id), project_id).search
        try:
            return Engine.open(place, models=self._models, project_id=project_id)
        except IndexFailed as error:
            if error.code != "search_index_corrupt":
                raise
            self._log.failed("index_discarded", error, "warning")
            _delete(place)
            return Engine.open(place, models=self._models, project_id=project_id)

    def _bring_up_to_date(
        self, project: _ProjectIndex, engine: Engine, project_id: str, until: float | None
    ) -> None:
        """Called with the project's mutex held; stops at `until` (monotonic seconds)."""
        view = self._view(project_id)
        if not self._is_at(engine.head(), view):

            def show(progress: Progress) -> None:
                project.progress = progress
                late = until is not None and time.monotonic() >= until
                if late or project.discarding or self._closing.is_set():
                    raise _preparing(progress)

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
        if indexed is not None and self._is_at(engine.head(), indexed):
            changes = view.changes_since(indexed)
            changed = list(self._effective.resources(view, changes.changed))
            report = engine.update(
                changed, changes.removed, base_commit_id=view.commit_id, progress=show
            )
            if report.effective_hash == view.effective_hash:
                return report
        resources = self._effective.resources(view)
        return engine.index(resources, base_commit_id=view.commit_id, progress=show)

    def _is_at(self, head: Head | None, view: EffectiveView) -> bool:
        """Whether the index is of this memory, by today's rules and the chosen models."""
        profile = self._models.profile
        return (
            head is not None
            and head.effective_hash == view.effective_hash
            and is_current(head, profile.embedding_revision, profile.dimensions)
        )


def _preparing(progress: Progress | None) -> NotReady:
    details: dict[str, object] = {}
    if progress is not None and progress.stage == "embedding":
        details = {"units_done": progress.done, "units_total": progress.total}
    return NotReady(
        "search_index_preparing",
        "The search index is being built; send the same query again in a moment.",
        details,
    )


def _delete(place: Path) -> None:
    """Delete the index in `place`; raises IoFailed where something else stands there."""
    try:
        Engine.discard(place)
    except OSError as error:
        raise io_failed(error, "delete", place) from error


def _inode(place: Path) -> int:
    """Which file the index in `place` is; 0 where there is none."""
    try:
        return (place / DATABASE_NAME).stat().st_ino
    except OSError:
        return 0


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
        failed: Callable[[BaseException], None],
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
            except Exception as error:  # The outermost turn: try again at the next poll.
                self._failed(error)
                pause = None
