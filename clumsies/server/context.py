"""What one running Server, or one authority in-process, is made of."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from clumsies.config import ServerSettings
from clumsies.server.acting import Principal
from clumsies.server.database import Database


class Authenticator(Protocol):
    """Knows who a bearer token belongs to."""

    def authenticate(self, bearer: str) -> Principal | None:
        """The active user of the token; None where it is unknown, ended or revoked."""


def random_id(prefix: str) -> str:
    """`<prefix>_` and 32 hexadecimal digits, never the same twice."""
    return f"{prefix}_{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Everything a request may use. Any thread may use it; it holds no state of a request."""

    database: Database
    authenticator: Authenticator
    clock_ns: Callable[[], int] = time.time_ns
    new_id: Callable[[str], str] = random_id
    settings: ServerSettings = field(default_factory=ServerSettings)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("clumsies.server"))
