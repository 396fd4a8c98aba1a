"""Handlers of reading: activate, load, checkout, and the state of cache and index."""

from __future__ import annotations

from clumsies.daemon import messages as m
from clumsies.daemon.context import Handler, RequestContext
from clumsies.daemon.resident import Resident
from clumsies.engine.pipeline import Answer, Engine, check_query
from clumsies.errors import ClumsiesError, StoreFailed
from clumsies.memory import index_jobs
from clumsies.memory.effective_view import EffectiveView
from clumsies.memory.refs import project_key, read_ref
from clumsies.storage.object_store import read_commit

INDEX_WAIT_S = 20.0
"""How long an activation waits for a build under way before it says how far that is."""
_MARGIN_S = 1.0


class MemoryMethods:
    def __init__(self, resident: Resident):
        self._resident = resident

    def handlers(self) -> dict[str, Handler]:
        return {
            "activate_memory": self.activate,
            "load_memory": self.load,
            "project_checkout": self.checkout,
            "memory_cache": self.cache,
            "search_index_status": self.index_status,
            "rebuild_search_index": self.rebuild,
        }

    def activate(self, request: m.ActivateMemory, context: RequestContext) -> m.Activation:
        """Ranked fragments of the memory as it is at this moment, drafts included.

        What it did becomes a run of the history, beside the answer.
        """
        self._resident.projects.project(request.project_id)
        check_query(request.query)
        return self._resident.recorded.activate(
            request, self._resident.view, lambda view: self.ask(view, request, context)
        )

    def ask(
        self, view: EffectiveView, request: m.ActivateMemory, context: RequestContext
    ) -> Answer:
        """The engine's answer from the index of `view` or of a later one."""
        self._resident.models.require_ready()
        wait_s = min(INDEX_WAIT_S, context.remaining_s() - _MARGIN_S)

        def ask(engine: Engine) -> Answer:
            context.cancel.raise_if_cancelled()
            return engine.activate(
                request.query,
                state=request.state,
                deadline_s=max(_MARGIN_S, context.remaining_s() - _MARGIN_S),
            )

        return self._resident.indexes.read(view, wait_s, ask)

    def load(self, request: m.LoadMemory, _context: RequestContext) -> m.LoadedMemories:
        """Whole resources of Effective Memory by id, else by path."""
        view = self._view(request.project_id)
        entries = view.require(request.ids)
        known = request.known_hashes
        loaded: list[m.LoadedMemory] = []
        for entry in entries:
            hashes = {known.get(entry.resource_id), known.get(entry.path)}
            changed = entry.content_hash not in hashes
            content = None
            if changed:
                with self._resident.database.reader() as connection:
                    content = self._resident.effective.content_in(connection, entry)
            loaded.append(
                m.LoadedMemory(
                    resource_id=entry.resource_id,
                    path=entry.path,
                    scope=entry.scope,
                    kind="memory",
                    content_hash=entry.content_hash,
                    description=entry.description,
                    changed=changed,
                    content=content,
                )
            )
        return m.LoadedMemories(resources=loaded)

    def checkout(self, request: m.OfProject, _context: RequestContext) -> m.ProjectCheckout:
        """The whole of Effective Memory, and the Ref it stands on."""
        view = self._view(request.project_id)
        with self._resident.database.reader() as connection:
            ref = read_ref(connection, project_key(request.project_id))
            commit = read_commit(connection, view.commit_id) if view.commit_id else None
        resources = [
            m.CheckedOutResource(
                resource_id=resource.resource_id,
                scope="org" if resource.scope == "org" else "project",
                resource_kind=resource.kind,
                path=resource.path,
                content_hash=resource.content_hash,
                content=resource.content,
                project_id=None if resource.scope == "org" else request.project_id,
            )
            for resource in self._resident.effective.resources(view)
        ]
        return m.ProjectCheckout(
            project_id=request.project_id,
            org_selection_revision=1,
            selected_org_resource_ids=sorted(
                name for name, entry in view.entries.items() if entry.draft_id is None
            ),
            resources=resources,
            ready=True,
            commit_id=view.commit_id,
            ref_etag=None if ref is None else ref.etag,
            commit_created_at=None if commit is None else commit.created_at,
        )

    def cache(self, request: m.OfProject, _context: RequestContext) -> m.MemoryCache:
        """What of the project's commit is on this machine, without raising for its absence."""
        self._resident.projects.project(request.project_id)
        with self._resident.database.reader() as connection:
            ref = read_ref(connection, project_key(request.project_id))
        if ref is None:
            return m.MemoryCache(project_id=request.project_id, state="project_ref_not_synced")
        generations = self._resident.installation.generations(request.project_id)
        try:
            generations.verify_files(ref.commit_id)
        except ClumsiesError as error:
            corrupt = isinstance(error, StoreFailed)
            return m.MemoryCache(
                project_id=request.project_id,
                state="generation_corrupt" if corrupt else "generation_missing",
                commit_id=ref.commit_id,
                diagnostic=error.message,
            )
        return m.MemoryCache(
            project_id=request.project_id,
            state="ready",
            commit_id=ref.commit_id,
            active_generation_path=str(generations.path(ref.commit_id)),
        )

    def index_status(self, request: m.OfProject, _context: RequestContext) -> m.SearchIndexStatus:
        """Where the project's index stands to its memory, and the models."""
        service = self._resident
        view = self._view(request.project_id)
        head = service.indexes.head(request.project_id)
        revision = service.models.profile.embedding_revision
        usable = head is not None and head.embedding_revision == revision
        current = head is not None and head.effective_hash == view.effective_hash
        models = service.models_store.status()
        job = index_jobs.index_job(service.database, request.project_id)
        progress = service.indexes.progress(request.project_id)
        embedding = progress if progress is not None and progress.stage == "embedding" else None
        return m.SearchIndexStatus(
            project_id=request.project_id,
            effective_hash=view.effective_hash,
            ready=usable and current and models.state == "ready",
            model_status=models.state,
            active_revision=None if head is None else head.revision,
            active_effective_hash=None if head is None else head.effective_hash,
            model_downloaded_bytes=models.downloaded_bytes,
            model_total_bytes=models.total_bytes,
            build_state=None if job is None else job.state,
            desired_sequence=None if job is None else job.desired_sequence,
            completed_sequence=None if job is None else job.completed_sequence,
            units_done=None if embedding is None else embedding.done,
            units_total=None if embedding is None else embedding.total,
            last_error=None if job is None else job.last_error,
        )

    def rebuild(self, request: m.OfProject, context: RequestContext) -> m.SearchIndexStatus:
        """Delete the index and build it anew, in the background; the status as it is now."""
        self._resident.projects.project(request.project_id)
        self._resident.indexes.discard(request.project_id)
        index_jobs.enqueue(self._resident.database, request.project_id)
        self._resident.changed(request.project_id)
        return self.index_status(request, context)

    def _view(self, project_id: str) -> EffectiveView:
        self._resident.projects.project(project_id)
        return self._resident.view(project_id)
