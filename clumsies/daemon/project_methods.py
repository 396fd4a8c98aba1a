"""Handlers of projects: health, configuration, bindings, local projects, import, sync state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from clumsies.api.imports import ImportedFile
from clumsies.config import DEFAULT_RESOURCE_LIMIT_BYTES, personal_token
from clumsies.daemon import messages as m
from clumsies.daemon.context import Handler, ProcessContext, RequestContext
from clumsies.daemon.resident import Resident
from clumsies.daemon.wire import PROTOCOL_REVISION, AgentRuntime
from clumsies.errors import InvalidRequest, NotFound
from clumsies.memory.bindings import Binding, canonical_directory, require_directory
from clumsies.memory.directory import DirectoryScan, read_file
from clumsies.memory.legacy_config import NamedProject, resolve_or_migrate
from clumsies.memory.paths import check_path
from clumsies.memory.projects import KnownProject
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.types import Resource
from clumsies.version import VERSION


class ProjectMethods:
    def __init__(self, resident: Resident, process: ProcessContext):
        self._resident = resident
        self._process = process
        self._creating = threading.Lock()

    def handlers(self) -> dict[str, Handler]:
        return {
            "health": self.health,
            "list_projects": self.projects,
            "create_local_project": self.create,
            "import_memory": self.import_memory,
            "resolve_project_binding": self.resolve,
            "list_project_bindings": self.bindings,
            "replace_project_binding": self.replace_binding,
            "remove_project_binding": self.remove_binding,
            "mcp_status": self.mcp_status,
        }

    def health(self, _request: m.Nothing, _context: RequestContext) -> m.Health:
        database = self._resident.database
        return m.Health(
            daemon_version=VERSION,
            agent_runtime=_runtime(),
            server_url=self._resident.server.url or LOCAL_AUTHORITY,
            daemon_installation_id=database.installation_id,
            log_dir=str(self._process.places.logs),
            local_db=m.LocalDatabase(
                path=str(database.path), ready=True, schema_version=database.schema_version
            ),
            has_personal_token=personal_token() is not None,
        )

    def projects(self, _request: m.Nothing, _context: RequestContext) -> m.ProjectList:
        return m.ProjectList(projects=[_project(p) for p in self._resident.projects.projects()])

    def create(self, request: m.CreateLocalProject, _context: RequestContext) -> m.CreatedProject:
        """A local project of that name. A directory that is bound keeps its project, so a repeated
        call makes nothing twice."""
        with self._creating:
            return self._created(request)

    def _created(self, request: m.CreateLocalProject) -> m.CreatedProject:
        service = self._resident
        if request.workspace_root is None:
            return m.CreatedProject(
                project=_project(service.create_local(request.name)), created=True
            )
        root = canonical_directory(_absolute(request.workspace_root))
        bound = next((b for b in service.bindings.list() if b.workspace_root == str(root)), None)
        if bound is not None:
            found = service.projects.project(bound.project_id)
            return m.CreatedProject(project=_project(found), created=False, binding=_binding(bound))
        require_directory(root)
        made = service.create_local(request.name)
        binding = service.bindings.replace(root, made.project_id)
        return m.CreatedProject(project=_project(made), created=True, binding=_binding(binding))

    def import_memory(self, request: m.ImportMemory, _context: RequestContext) -> m.ImportReport:
        """Read the files and directories and make one commit of them."""
        scans: list[DirectoryScan] = []
        texts = {text.path: text for text in _texts(request, scans)}
        if not texts:
            reasons = [f"{w.path} {w.reason}" for scan in scans for w in scan.warnings]
            raise NotFound(
                "not_found",
                "No Markdown was found in what was named"
                + (f" ({'; '.join(reasons[:3])})" if reasons else "")
                + "; name .md files or directories with some.",
            )
        report = self._resident.import_texts(request.project_id, list(texts.values()))
        return m.ImportReport(
            project_id=request.project_id,
            commit_id=report.commit_id or "",
            added=report.created,
            updated=report.updated,
            unchanged=report.unchanged,
            left_out=[
                m.LeftOutFile(path=w.path, reason=w.reason) for scan in scans for w in scan.warnings
            ],
        )

    def resolve(self, request: m.ResolveBinding, _context: RequestContext) -> m.ProjectBinding:
        """The binding that speaks for a directory; an old settings file is migrated once."""
        directory = _absolute(request.directory)
        projects = [
            NamedProject(project.project_id, project.name)
            for project in self._resident.projects.projects()
        ]
        binding = resolve_or_migrate(
            Path.home() / ".clumsies" / "config.toml", directory, projects, self._resident.bindings
        )
        try:
            self._resident.projects.project(binding.project_id)  # kept when its access ends
        except NotFound as error:
            raise NotFound(
                "project_binding_unresolved",
                f"{binding.workspace_root} is bound to a project that is not here any more; "
                "run `clumsies unbind` in it, then `clumsies init`.",
                {"project_id": binding.project_id},
            ) from error
        return _binding(binding)

    def bindings(self, _request: m.Nothing, _context: RequestContext) -> m.BindingList:
        return m.BindingList(bindings=[_binding(b) for b in self._resident.bindings.list()])

    def replace_binding(
        self, request: m.ReplaceBinding, _context: RequestContext
    ) -> m.ProjectBinding:
        self._resident.projects.project(request.project_id)
        binding = self._resident.bindings.replace(
            _absolute(request.workspace_root), request.project_id, request.expected_revision
        )
        self._resident.sync.notify(request.project_id)  # from now on it is wanted here
        return _binding(binding)

    def remove_binding(
        self, request: m.RemoveBinding, _context: RequestContext
    ) -> m.ProjectBinding:
        """Unbind; the answer is the binding as it was."""
        root = canonical_directory(_absolute(request.workspace_root))
        found = next(
            (b for b in self._resident.bindings.list() if b.workspace_root == str(root)), None
        )
        if found is None:
            raise NotFound(
                "project_binding_not_found", f"{root} is not bound; nothing was changed."
            )
        self._resident.bindings.remove(root, request.expected_revision)
        return _binding(found)

    def mcp_status(self, _request: m.Nothing, _context: RequestContext) -> m.McpStatus:
        now = self._process.statistics()
        return m.McpStatus(
            agent_runtime=_runtime(),
            agent_connections=now.agent_connections,
            active_requests=now.active_requests,
        )


def _runtime() -> AgentRuntime:
    return AgentRuntime(protocol_revision=PROTOCOL_REVISION, build_id=VERSION)


def _project(project: KnownProject) -> m.Project:
    return m.Project(
        project_id=project.project_id,
        name=project.name,
        server_url=project.server_url,
        created_at=project.since,
    )


def _binding(binding: Binding) -> m.ProjectBinding:
    return msgspec.convert(msgspec.to_builtins(binding), m.ProjectBinding)


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise InvalidRequest("invalid_request", "The daemon needs an absolute path.")
    return path


def _texts(request: m.ImportMemory, scans: list[DirectoryScan]) -> Iterator[ImportedFile]:
    """What the named files and directories hold, under `prefix`; warnings stay in the scans."""
    prefix = PurePosixPath(check_path(request.prefix)) if request.prefix else PurePosixPath()
    for name in request.paths:
        place = _absolute(name)
        scan = DirectoryScan(
            place if place.is_dir() else place.parent, DEFAULT_RESOURCE_LIMIT_BYTES
        )
        scans.append(scan)
        found: Iterator[Resource] = scan.resources() if place.is_dir() else read_file(scan, place)
        for resource in found:
            yield ImportedFile(path=str(prefix / resource.path), content=resource.content)
