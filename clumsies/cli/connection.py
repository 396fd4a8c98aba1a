"""How a command reaches the daemon: started if need be, and the project of this directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from clumsies.config import daemon_places
from clumsies.daemon.client import CALL_TIMEOUT_S, DaemonClient, ensure_running
from clumsies.errors import NotFound
from clumsies.version import VERSION

BUILD_ID = f"clumsies-{VERSION}"

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="ID", help="The project; default: this directory's."),
]


class Connection:
    """Calls of one command."""

    def __init__(self, client: DaemonClient):
        self._client = client

    def call(
        self,
        method: str,
        payload: Mapping[str, Any] | msgspec.Struct | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """The daemon's answer; raises what the daemon raised."""
        return self._client.call(method, payload, timeout_s=timeout_s)

    def binding(self) -> dict[str, Any]:
        """The binding that speaks for the working directory."""
        return self.call("resolve_project_binding", {"directory": str(working_directory())})

    def project(self, given: str | None) -> str:
        """The project a command is about: the one named, else the working directory's."""
        return given if given is not None else str(self.binding()["project_id"])


def working_directory() -> Path:
    """Where the command runs; raises NotFound where that was removed meanwhile."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NotFound(
            "not_found", "The working directory is gone; change to one that is there."
        ) from error


@contextmanager
def connected() -> Iterator[Connection]:
    """A connection to the daemon, which is started where it does not run."""
    with DaemonClient(daemon_places().socket, BUILD_ID) as client:
        ensure_running(client)
        yield Connection(client)
