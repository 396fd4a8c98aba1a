"""A Server as its settings say, for its process and for commands on the same machine."""

from __future__ import annotations

from clumsies.config import ServerSettings, directories
from clumsies.server.context import ServerContext
from clumsies.server.database import Database, sqlite_url
from clumsies.server.identity.authentication import SessionAuthenticator


def database_url(settings: ServerSettings) -> str:
    """The database that is set, else the file in this user's own directory."""
    return settings.database_url or sqlite_url(directories().data / "server" / "server.db")


def make_context(settings: ServerSettings) -> ServerContext:
    """A Server over its database; whoever calls closes that."""
    database = Database(database_url(settings))
    return ServerContext(database, SessionAuthenticator(database), settings=settings)
