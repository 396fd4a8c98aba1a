"""What is installed of a project: its generations, and writing one again from the objects."""

from __future__ import annotations

from collections.abc import Callable

from clumsies.memory.refs import require_project_ref
from clumsies.storage.generations import GenerationStore
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import read_payload
from clumsies.storage.project_storage import ProjectStorage


class Installation:
    """The installed generations of every project; any thread may use it."""

    def __init__(
        self, database: LocalDatabase, storage: ProjectStorage, authority_of: Callable[[str], str]
    ):
        self._database = database
        self._storage = storage
        self._authority_of = authority_of

    def generations(self, project_id: str) -> GenerationStore:
        """The project's generations where they are, whether or not anything is there yet."""
        place = self._storage.location(self._authority_of(project_id), project_id)
        return GenerationStore(place.generations, project_id)

    def prepared(self, project_id: str) -> GenerationStore:
        """The project's generations with their directory made and its marker verified."""
        place = self._storage.prepare(self._authority_of(project_id), project_id)
        return GenerationStore(place.generations, project_id)

    def restore(self, project_id: str) -> None:
        """Write the installed commit's generation again from the objects: after a cache was
        cleared, or a generation was found missing or corrupt. The caller sees that nobody else
        installs one meanwhile."""
        with self._database.reader() as connection:
            ref = require_project_ref(connection, project_id)
            payload = read_payload(connection, ref.commit_id) if ref.commit_id else None
        generations = self.prepared(project_id)
        generations.discard(ref.commit_id)
        generations.install(payload)
