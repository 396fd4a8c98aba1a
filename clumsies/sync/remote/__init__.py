"""The client of a Server; the only owner of httpx here."""

from clumsies.sync.remote.client import MAX_LANES, METHODS, Patience, RemoteClient
from clumsies.sync.remote.in_process import in_process_transport

__all__ = ["MAX_LANES", "METHODS", "Patience", "RemoteClient", "in_process_transport"]
