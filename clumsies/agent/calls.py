"""Tool calls as typed requests to the daemon, each in the project of the working directory.

The project is resolved anew for every call and has to stay the one that the first call found: a
conversation never continues in another project's memory. Loaded at the first call, so that the
handshake waits for neither msgspec nor a socket.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clumsies.agent.arguments import (
    Activate,
    Create,
    Delete,
    Discard,
    Load,
    Rename,
    Store,
    ToolRequest,
    Update,
)
from clumsies.agent.results import fitted_activation, fitted_load
from clumsies.config import runtime_socket
from clumsies.daemon import messages as m
from clumsies.daemon.client import DaemonClient, ensure_running, start_detached
from clumsies.daemon.wire import new_request_id
from clumsies.errors import Conflict, DaemonFailed, InvalidRequest, NotFound, NotReady
from clumsies.version import VERSION

BUILD_ID = f"mcp-proxy/{VERSION}"
CODEX_TURN_KEY = "x-codex-turn-metadata"
_MAX_WORKSPACES = 8

Report = Callable[[str], None]


class Call(NamedTuple):
    """What belongs to one tool call beside its arguments.

    `meta` is the host's `_meta`; `report` tells the host how far the call is.
    """

    meta: Mapping[str, Any]
    cancel: threading.Event
    report: Report


class Caller:
    """Carries out tool calls, from any number of threads side by side.

    `start` begins a daemon where none answers; None leaves that to the user.
    """

    def __init__(
        self,
        client: DaemonClient,
        *,
        start: Callable[[], None] | None,
        directory: Callable[[], Path] = Path.cwd,
    ):
        self._client = client
        self._start = start
        self._directory = directory
        self._mutex = threading.Lock()
        self._starting = threading.Lock()
        self._project_id: str | None = None

    def run(self, request: ToolRequest, call: Call) -> dict[str, Any]:
        """The structured answer of a call, short enough for hosts; raises ClumsiesError."""
        ask = partial(self._ask, call, new_request_id())
        call.report("resolving the project")
        project_id = self._project(ask, call.meta)
        if isinstance(request, Activate):
            call.report("searching the memory")
            wanted = m.ActivateMemory(project_id, request.query, request.state)
            return fitted_activation(ask("activate_memory", wanted))
        if isinstance(request, Load):
            call.report("reading the memory")
            whole = m.LoadMemory(project_id, list(request.ids), request.known_hashes)
            return fitted_load(ask("load_memory", whole))
        call.report("storing the draft")
        return ask("store_draft_operation", _stored(project_id, request), repeatable=False)

    def _project(self, ask: Callable[..., dict[str, Any]], meta: Mapping[str, Any]) -> str:
        directory = self._working_directory()
        found = str(ask("resolve_project_binding", m.ResolveBinding(str(directory)))["project_id"])
        with self._mutex:
            expected = self._project_id = self._project_id or found
        if found != expected:
            raise _changed(
                f"This directory belonged to project {expected} when the session began and now "
                f"belongs to {found}; start a new session.",
                expected,
                found,
            )
        for workspace in foreign_workspaces(meta, directory):
            self._check_workspace(ask, workspace, expected)
        return expected

    def _working_directory(self) -> Path:
        try:
            directory = self._directory()
            str(directory).encode("utf-8")
        except OSError as error:
            raise NotFound(
                "not_found",
                "The directory that this session began in is gone; start a new session.",
            ) from error
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                "invalid_request",
                "The name of this directory is not UTF-8; rename it to bind it to a project.",
            ) from error
        return directory

    @staticmethod
    def _check_workspace(ask: Callable[..., dict[str, Any]], workspace: str, expected: str) -> None:
        """Refuse where the host works in a directory of another project."""
        try:
            found = ask("resolve_project_binding", m.ResolveBinding(workspace))["project_id"]
        except NotFound:
            return
        if found != expected:
            raise _changed(
                f"The host works in a directory of project {found}, but its memory server was "
                f"started in one of {expected}; start a new session there.",
                expected,
                found,
            )

    def _ask(
        self,
        call: Call,
        request_id: str,
        method: str,
        payload: m.Message,
        *,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """The daemon's answer, started first where it is not there.

        A request that may have been carried out is sent again only if it is `repeatable`.
        """
        lost = started = False
        while True:
            try:
                return self._client.call(method, payload, request_id=request_id, cancel=call.cancel)
            except NotReady as error:
                if error.code != "daemon_unavailable" or self._start is None or started:
                    raise
                started = True
                call.report("starting the daemon")
                with self._starting:
                    ensure_running(self._client, start=self._start, cancel=call.cancel)
            except DaemonFailed as error:
                if error.code != "daemon_ipc_failed" or lost or not repeatable:
                    raise
                lost = True


def caller(socket_path: Path | None, start: bool) -> Caller:
    """A caller of the daemon at `socket_path`, or at this user's own; raises ClumsiesError.

    A daemon is started only where it would listen at that path.
    """
    own = runtime_socket()
    chosen = socket_path or own
    starter = start_detached if start and chosen == own else None
    return Caller(DaemonClient(chosen, BUILD_ID), start=starter)


def foreign_workspaces(meta: Mapping[str, Any], directory: Path) -> list[str]:
    """The workspaces that Codex says it works in, where `directory` is in none of them.

    Codex starts servers outside of its workspaces, too, and names those with every call: an
    object keyed by absolute path, or that object as JSON text. Another shape says nothing.
    """
    turn = meta.get(CODEX_TURN_KEY)
    if isinstance(turn, str):
        try:
            turn = json.loads(turn)
        except (ValueError, RecursionError):
            return []
    workspaces = turn.get("workspaces") if isinstance(turn, dict) else None
    if not isinstance(workspaces, dict | list):
        return []
    paths = [path for path in workspaces if isinstance(path, str) and path.startswith("/")]
    here = directory.resolve()
    if any("\0" in path or here.is_relative_to(Path(path).resolve()) for path in paths):
        return []
    return paths[:_MAX_WORKSPACES]


def _stored(project_id: str, request: Store) -> m.StoreDraftOperation:
    """The proposal for the organisation that the project carries."""
    return m.StoreDraftOperation(
        project_id=project_id,
        scope="org",
        resource="memory",
        op=_operation(request),
        source="mcp_store",
    )


def _operation(request: Store) -> m.DraftOperation:
    match request:
        case Create():
            content = m.DraftContent(request.body, request.description)
            return m.DraftOperation(create=m.CreateMemory(request.path, content))
        case Update():
            replacements = [m.Replacement(*each) for each in request.replacements]
            update = m.UpdateMemory(
                request.id,
                expected_hash=request.expected_hash,
                replacements=replacements,
                description=request.description,
            )
            return m.DraftOperation(update=update)
        case Rename():
            return m.DraftOperation(rename=m.RenameMemory(*request))
        case Delete():
            return m.DraftOperation(delete=m.DeleteMemory(*request))
        case Discard():
            return m.DraftOperation(discard=m.DiscardDraft(request.id))


def _changed(message: str, expected: str, found: object) -> Conflict:
    return Conflict("project_binding_changed", message, {"expected": expected, "found": str(found)})
