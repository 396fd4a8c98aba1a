"""A Server as a process: one worker or several, which share nothing but the database.

Plain HTTP is served on loopback alone, unless a proxy in front speaks TLS. On SIGTERM or SIGINT no
new connection is taken, requests under way finish within GRACE_S, and the database is closed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import uvicorn

from clumsies.config import server_settings
from clumsies.errors import InvalidRequest, IoFailed
from clumsies.server.http.app import make_app
from clumsies.server.migrations import require_current
from clumsies.server.settings import make_context

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
GRACE_S = 20
KEEP_ALIVE_S = 75
"""Longer than daemons wait between two looks, so that they need not connect anew each time."""
THREADS = 24
"""Requests of a worker that use the database at once: fewer than its connections."""
BACKLOG = 1_024
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_LOG_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    workers: int = 1,
    behind_tls_proxy: bool = False,
) -> None:
    """Serve until told to stop; port 0 takes a free one, which is logged.

    Raises InvalidRequest("invalid_config") for a host that is not loopback without a proxy,
    StoreFailed where the database is away or of another schema, and IoFailed where the port is
    taken.
    """
    if host not in LOOPBACK and not behind_tls_proxy:
        raise InvalidRequest(
            "invalid_config",
            "Plain HTTP is served on loopback alone; put a proxy that speaks TLS in front of it "
            "and say --behind-tls-proxy.",
        )
    settings = server_settings()
    context = make_context(settings)
    try:
        require_current(context.database)
    finally:
        context.database.close()
    _log_to_stderr()
    try:
        uvicorn.run(
            "clumsies.server.process:worker_app",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            **_OPTIONS,
        )
    except SystemExit as error:
        raise IoFailed(
            "io_error", f"Cannot listen on {host}:{port}; the log says why, often a taken port."
        ) from error


_OPTIONS: Mapping[str, Any] = {
    "access_log": False,  # its lines hold query strings, and those hold codes
    "log_config": None,
    "lifespan": "on",
    "ws": "none",
    "server_header": False,
    "proxy_headers": False,
    "backlog": BACKLOG,
    "timeout_keep_alive": KEEP_ALIVE_S,
    "timeout_graceful_shutdown": GRACE_S,
}


def worker_app() -> Any:
    """One worker's application; it reads the environment that all of them share."""
    _log_to_stderr()
    context = make_context(server_settings())
    return make_app(context, threads=THREADS, on_stop=context.database.close)


def _log_to_stderr() -> None:
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LOG_FORM))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # its lines hold addresses whole
