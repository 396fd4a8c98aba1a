"""The composition root: the resident state and the handlers over it."""

from __future__ import annotations

from clumsies.daemon.context import Handlers, ProcessContext, Service
from clumsies.daemon.draft_methods import DraftMethods
from clumsies.daemon.history_methods import HistoryMethods
from clumsies.daemon.memory_methods import MemoryMethods
from clumsies.daemon.project_methods import ProjectMethods
from clumsies.daemon.resident import Resident
from clumsies.daemon.review_methods import ReviewMethods
from clumsies.daemon.server_methods import ServerMethods


class ResidentService:
    """What `clumsiesd run` serves."""

    def __init__(self, context: ProcessContext):
        self._resident = Resident(context)
        memory = MemoryMethods(self._resident)
        self._handlers: Handlers = {
            **ProjectMethods(self._resident, context).handlers(),
            **memory.handlers(),
            **DraftMethods(self._resident).handlers(),
            **ServerMethods(self._resident).handlers(),
            **ReviewMethods(self._resident).handlers(),
            **HistoryMethods(self._resident, self._resident.history, memory).handlers(),
        }

    @property
    def handlers(self) -> Handlers:
        return self._handlers

    def reload(self) -> None:
        """Nothing of the configuration is read after the start but by new processes."""

    def close(self) -> None:
        """End the build under way, close indexes, models and the database."""
        self._resident.close()


def make_service(context: ProcessContext) -> Service:
    """The service of `clumsiesd run`."""
    return ResidentService(context)
