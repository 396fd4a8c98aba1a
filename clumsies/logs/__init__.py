"""Rotating JSON-line logs that cannot hold memory text, queries, tokens or addresses."""

from clumsies.logs.events import EventLog, Level, WorkerLog, adopt_library_logs
from clumsies.logs.failures import Failure, failure_of, kind_of
from clumsies.logs.fields import SAFE_FIELDS, route_of
from clumsies.logs.rotation import LOG_ARCHIVES, LOG_LIMIT_BYTES, LogFile

DAEMON_LOG = "daemon.log"
CLIENT_LOG = "client.log"
CRASH_LOG = "clumsiesd.crash.log"
SERVICE_ERROR_LOG = "clumsiesd.err.log"
SERVICE_OUTPUT_LOG = "clumsiesd.out.log"

__all__ = [
    "CLIENT_LOG",
    "CRASH_LOG",
    "DAEMON_LOG",
    "LOG_ARCHIVES",
    "LOG_LIMIT_BYTES",
    "SAFE_FIELDS",
    "SERVICE_ERROR_LOG",
    "SERVICE_OUTPUT_LOG",
    "EventLog",
    "Failure",
    "Level",
    "LogFile",
    "WorkerLog",
    "adopt_library_logs",
    "failure_of",
    "kind_of",
    "route_of",
]
