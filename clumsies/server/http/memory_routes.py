"""Reading memory, and bringing it in."""

from __future__ import annotations

from litestar import Response, get, post
from litestar.params import JSONBody

from clumsies.api.common import API_PREFIX
from clumsies.api.imports import ImportAnswer, ImportMemories
from clumsies.api.projects import MemoryDetail, MemoryPage
from clumsies.server.http.dependencies import PathId, SignedIn
from clumsies.server.memory import imports, memories

_ORG = f"{API_PREFIX}/org/memories"
_PROJECT = f"{API_PREFIX}/projects/{{project_id:str}}/memories"


@get(_ORG, sync_to_thread=True)
def list_org_memories(acting: SignedIn) -> MemoryPage:
    """The first 200 memories of the organisation, in order of path."""
    return acting.read(memories.list_org_memories)


@get(f"{_ORG}/{{memory_id:str}}", sync_to_thread=True)
def get_org_memory(acting: SignedIn, memory_id: PathId) -> Response[MemoryDetail]:
    """One memory of the organisation with its text."""
    return _tagged(acting.read(lambda act: memories.org_memory(act, memory_id)))


@get(_PROJECT, sync_to_thread=True)
def list_project_memories(acting: SignedIn, project_id: PathId) -> MemoryPage:
    """The first 200 memories of a project, in order of path."""
    return acting.read(lambda act: memories.list_project_memories(act, project_id))


@get(f"{_PROJECT}/{{memory_id:str}}", sync_to_thread=True)
def get_project_memory(
    acting: SignedIn, project_id: PathId, memory_id: PathId
) -> Response[MemoryDetail]:
    """One memory of a project with its text."""
    return _tagged(acting.read(lambda act: memories.project_memory(act, project_id, memory_id)))


def _tagged(detail: MemoryDetail) -> Response[MemoryDetail]:
    return Response(detail, headers={"etag": detail.etag})


@post(
    f"{API_PREFIX}/projects/{{project_id:str}}/memory-imports",
    sync_to_thread=True,
    status_code=200,
)
def import_memories(
    acting: SignedIn, project_id: PathId, data: JSONBody[ImportMemories]
) -> ImportAnswer:
    """Make files part of the project's memory in one commit, without drafts and reviews."""
    return acting.write(lambda act: imports.import_memories(act, project_id, data))


ROUTES = [
    list_org_memories,
    get_org_memory,
    list_project_memories,
    get_project_memory,
    import_memories,
]
