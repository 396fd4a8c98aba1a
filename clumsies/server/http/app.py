"""The ASGI application. It needs no lifespan, no environment and no server to run under."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from litestar import Litestar, Router
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.routes import HTTPRoute

from clumsies.api.common import MAX_BODY_BYTES, REQUEST_ID_HEADER
from clumsies.server.context import ServerContext
from clumsies.server.http.bodies import StrictRequest
from clumsies.server.http.dependencies import DEPENDENCIES
from clumsies.server.http.errors import HANDLERS
from clumsies.server.http.openapi import document_route
from clumsies.server.http.request_ids import AsgiApp, RequestIds

ROUTE_MODULES = (
    "health_routes",
    "auth_routes",
    "identity_routes",
    "setup_routes",
    "admin_routes",
    "memory_routes",
    "project_routes",
    "commit_routes",
    "draft_routes",
    "review_routes",
)
"""Modules beside this one; each has `ROUTES`."""
_COMPRESSED_FROM_BYTES = 1_024
_EXPOSED = ["etag", "location", REQUEST_ID_HEADER]


def routes() -> list[Any]:
    """Every route handler, in the order of ROUTE_MODULES."""
    package = __name__.rpartition(".")[0]
    names = [f"{package}.{name}" for name in ROUTE_MODULES]
    return [route for name in names if find_spec(name) for route in import_module(name).ROUTES]


def _by_path(handlers: list[Any]) -> Router:
    """The handlers, those of one path together.

    One by one the framework would answer OPTIONS with the methods of the first alone, and would
    hand a request of the others from thread to thread.
    """
    router = Router("/", route_handlers=handlers)
    for route in router.routes:
        if isinstance(route, HTTPRoute):
            route.route_handlers = [
                handler for handler in route.route_handlers if "OPTIONS" not in handler.http_methods
            ]
    return router


def make_app(
    context: ServerContext,
    *,
    threads: int | None = None,
    on_stop: Callable[[], None] | None = None,
) -> AsgiApp:
    """The application over `context`.

    Where a server speaks the lifespan protocol, requests run in `threads` threads of its loop from
    the start, and `on_stop` is called at the end.
    """

    async def use_threads() -> None:
        executor = ThreadPoolExecutor(threads, "request")
        asyncio.get_running_loop().set_default_executor(executor)

    handlers = routes()
    origins = context.settings.cors_origins
    app = Litestar(
        # By a router, as handlers that share a path are otherwise wrapped for a thread twice.
        route_handlers=[_by_path([*handlers, document_route(handlers)])],
        dependencies=DEPENDENCIES,
        exception_handlers=HANDLERS,
        state=State({"context": context}),
        request_class=StrictRequest,
        request_max_body_size=MAX_BODY_BYTES,
        compression_config=CompressionConfig("gzip", minimum_size=_COMPRESSED_FROM_BYTES),
        cors_config=CORSConfig(list(origins), expose_headers=_EXPOSED) if origins else None,
        openapi_config=None,
        logging_config=None,
        on_startup=[use_threads] if threads else [],
        on_shutdown=[on_stop] if on_stop else [],
    )
    return RequestIds(cast(AsgiApp, app), context.log)
