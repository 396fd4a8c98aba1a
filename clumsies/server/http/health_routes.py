"""Health: whether this Server and what it stands on can work."""

from __future__ import annotations

from litestar import get

from clumsies.server.health import Health, health_of
from clumsies.server.http.dependencies import Context


@get("/api/v1/admin/health", sync_to_thread=True, security=[{}])
def health(context: Context) -> Health:
    """Every component's state. Always 200: `status` says how bad it is."""
    return health_of(context)


ROUTES = [health]
