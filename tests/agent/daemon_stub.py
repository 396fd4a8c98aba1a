"""A daemon's socket with scripted answers: real frames, real types, the peer seen to leave."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from clumsies.daemon.contract import METHODS
from clumsies.daemon.wire import (
    PROTOCOL_REVISION,
    FrameBuffer,
    Request,
    Response,
    decode_request,
    encode_payload,
    encode_response,
    failure,
    success,
)
from clumsies.errors import ClumsiesError, DaemonFailed

PROJECT = "project_one"
HEALTH = {
    "daemon_version": "0",
    "agent_runtime": {"protocol_revision": PROTOCOL_REVISION, "build_id": "stub"},
    "server_url": "local:",
    "daemon_installation_id": "stub",
    "log_dir": "/nowhere",
    "local_db": {"path": "/nowhere", "ready": True, "schema_version": 1},
}
Handler = Callable[[Any], Mapping[str, Any]]


class Seen(NamedTuple):
    """A request as it came: its envelope, and its payload in the method's own type."""

    envelope: Request
    payload: Any

    @property
    def method(self) -> str:
        return self.envelope.method


def fragment(number: int, content: str = "Money is integer cents.") -> dict[str, Any]:
    return {
        "action": "add",
        "unit_key": f"res_{number}/root/0/0",
        "content_hash": f"sha256:{number:064x}",
        "resource_id": f"res_{number}",
        "scope": "org",
        "kind": "memory",
        "path": f"rules/money-{number}.md",
        "heading_path": ["Money"],
        "content": content,
    }


def activation(*fragments: dict[str, Any], next_state: str = "e30") -> dict[str, Any]:
    return {
        "index_revision": "search_1",
        "profile": "compact",
        "next_state": next_state,
        "fragments": list(fragments),
        "removed": [],
        "skipped": [],
    }


def loaded(number: int, content: str) -> dict[str, Any]:
    return {
        "resource_id": f"res_{number}",
        "path": f"rules/money-{number}.md",
        "scope": "org",
        "kind": "memory",
        "content_hash": f"sha256:{number:064x}",
        "description": "",
        "changed": True,
        "content": content,
    }


STORED = {
    "local_operation_id": "op_1",
    "draft_id": "draft_1",
    "queued": True,
    "sync_status": "queued",
}


def binding(project_id: str, root: str = "/somewhere") -> dict[str, Any]:
    return {
        "server_url": "local:",
        "workspace_root": root,
        "project_id": project_id,
        "revision": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    }


class DaemonStub:
    """Listens on `path`; `handlers` give the payloads, `seen` keeps what came."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="clumsies-"))
        self.path = self.directory / "daemon.sock"
        self.seen: list[Seen] = []
        self.peer_left = threading.Event()
        self.handlers: dict[str, Handler] = {
            "health": lambda _: HEALTH,
            "resolve_project_binding": lambda request: binding(PROJECT, request.directory),
            "activate_memory": lambda _: activation(fragment(1), fragment(2)),
            "load_memory": lambda _: {"resources": [loaded(1, "# Money\n")]},
            "store_draft_operation": lambda _: STORED,
        }
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    def start(self) -> DaemonStub:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._spawn(self._accept, self._listener)
        return self

    def stop(self) -> None:
        """End like a killed daemon: connections drop, the socket file stays."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in self._connections:
            _shut_down(connection)
        for thread in self._threads:
            thread.join(10)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def methods(self) -> list[str]:
        return [seen.method for seen in self.seen]

    def _spawn(self, target: Callable[[socket.socket], None], argument: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(argument,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameBuffer()
        with connection:
            while received := _received(connection):
                frames.feed(received)
                while (body := frames.pop()) is not None:
                    self._spawn_answer(connection, decode_request(body))
            self.peer_left.set()

    def _spawn_answer(self, connection: socket.socket, request: Request) -> None:
        def answer(_: socket.socket) -> None:
            try:
                connection.sendall(encode_response(self._answer(request)))
            except OSError:
                return

        self._spawn(answer, connection)

    def _answer(self, request: Request) -> Response:
        method = METHODS[request.method]
        try:
            if method.needs_marker and request.agent_runtime is None:
                raise DaemonFailed("agent_runtime_mismatch", "no marker")
            payload = msgspec.json.decode(request.payload, type=method.request)
            self.seen.append(Seen(request, payload))
            given = self.handlers[request.method](payload)
            # What the stub says has to be what the contract says.
            typed = msgspec.convert(given, type=method.response)
            return success(request, encode_payload(typed))
        except ClumsiesError as error:
            return failure(error, request.request_id, request.id)


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""
