"""Health: whether this Server and what it stands on can work."""

from __future__ import annotations

from litestar import get

from clumsies.api.admin import ServerHealth
from clumsies.server.http.dependencies import Context
from clumsies.server.organization.health import health_of


@get("/api/v1/admin/health", sync_to_thread=True, security=[{}])
def health(context: Context) -> ServerHealth:
    """Every component's state. Always 200: `status` says how bad it is."""
    return health_of(context)


ROUTES = [health]
