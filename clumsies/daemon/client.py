"""The light client of the daemon: standard-library sockets and msgspec, no event loop.

Nothing is sent before the socket, its directory and the process behind it have been seen to
belong to this user. Every failure is an error of `clumsies.errors`, so that a caller handles
what the daemon raised as if it had happened here.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from clumsies.daemon.wire import (
    PROTOCOL_REVISION,
    AgentRuntime,
    FrameBuffer,
    Request,
    decode_response,
    encode_payload,
    encode_request,
    error_of,
    new_request_id,
    peer_uid,
    torn_frame,
)
from clumsies.errors import ClumsiesError, DaemonFailed, NotReady, from_code

CALL_TIMEOUT_S = 65.0
STARTUP_TIMEOUT_S = 30.0
HOOK_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 5.0
_IDLE_CONNECTIONS = 8
_RECEIVE_BYTES = 256 * 1024
_CANCEL_POLL_S = 0.05
_START_POLL_S = 0.05
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR

Answer = TypeVar("Answer")


class HasFileno(Protocol):
    """Something that becomes readable when a call is to be given up."""

    def fileno(self) -> int: ...


Cancel = threading.Event | HasFileno


class DaemonClient:
    """Calls to the daemon of one socket, from any number of threads side by side.

    A call has a connection to itself; a connection that answered is used again. Giving a call up
    closes its connection, and that cancels its work in the daemon.
    """

    def __init__(
        self, socket_path: Path, build_id: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ):
        self.socket_path = socket_path
        self._runtime = AgentRuntime(PROTOCOL_REVISION, build_id)
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[_Connection] = []
        self._mutex = threading.Lock()
        self._closed = False

    def call(
        self,
        method: str,
        payload: Mapping[str, Any] | msgspec.Struct | None = None,
        *,
        request_id: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        cancel: Cancel | None = None,
    ) -> dict[str, Any]:
        """The method's answer as a mapping.

        Raises what the daemon raised, NotReady("daemon_unavailable") where none answers,
        NotReady("request_deadline") after `timeout_s`, NotReady("request_cancelled") once
        `cancel` is set or readable, and DaemonFailed for a peer that cannot be trusted.
        """
        return self.ask(
            method,
            payload,
            dict[str, Any],
            request_id=request_id,
            timeout_s=timeout_s,
            cancel=cancel,
        )

    def ask(
        self,
        method: str,
        payload: Mapping[str, Any] | msgspec.Struct | None,
        answer: type[Answer],
        *,
        request_id: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        cancel: Cancel | None = None,
    ) -> Answer:
        """Like `call`, as a value of the `answer` type (a Struct of `clumsies.daemon.messages`)."""
        wait = _Wait(time.monotonic() + timeout_s, timeout_s, cancel)
        named = request_id or new_request_id()
        connection = self._take(wait)
        try:
            raw = connection.exchange(method, payload, self._runtime, named, wait)
        except ClumsiesError as error:
            self._put(connection)
            error.details.setdefault("request_id", named)
            raise
        except BaseException:
            connection.close()
            raise
        self._put(connection)
        return _decoded(raw, answer)

    def close(self) -> None:
        """Close what is idle; calls under way end by themselves."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, wait: _Wait) -> _Connection:
        while True:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(_connect(self.socket_path, self._connect_timeout_s, wait))
            if connection.usable():
                return connection
            connection.close()

    def _put(self, connection: _Connection) -> None:
        with self._mutex:
            keep = not self._closed and len(self._idle) < _IDLE_CONNECTIONS
            if keep and connection.usable():
                self._idle.append(connection)
                return
        connection.close()


class _Wait:
    """Until when a call may wait, and what ends it sooner."""

    def __init__(self, end: float, timeout_s: float, cancel: Cancel | None):
        self._end = end
        self._timeout_s = timeout_s
        self._event = cancel if isinstance(cancel, threading.Event) else None
        self._source = None if isinstance(cancel, threading.Event) else cancel

    def until(self, connection: socket.socket, events: int) -> int:
        """The poll events that the connection has; raises when the call is to end."""
        poll = select.poll()
        poll.register(connection, events)
        if self._source is not None:
            poll.register(self._source.fileno(), select.POLLIN)
        while True:
            left = self._end - time.monotonic()
            if self._event is not None and self._event.is_set():
                raise _cancelled()
            if left <= 0:
                raise self.expired()
            slice_s = left if self._event is None else min(left, _CANCEL_POLL_S)
            ready = dict(poll.poll(max(1, int(slice_s * 1000))))
            found = ready.pop(connection.fileno(), 0)
            if ready:
                raise _cancelled()
            if found:
                return found

    def remaining_s(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def expired(self) -> NotReady:
        return NotReady(
            "request_deadline",
            f"The daemon did not answer within {self._timeout_s:g} s. A change may still be "
            "carried out: look before you repeat it.",
        )


class _Connection:
    """One socket that carries one call at a time."""

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self._frames = FrameBuffer()
        self._ids = count(1)
        self._broken = False

    def exchange(
        self,
        method: str,
        payload: Mapping[str, Any] | msgspec.Struct | None,
        runtime: AgentRuntime,
        request_id: str,
        wait: _Wait,
    ) -> msgspec.Raw:
        """The payload of the answer; a failure inside the daemon leaves the connection usable."""
        request = Request(
            id=next(self._ids),
            method=method,
            payload=encode_payload({} if payload is None else payload),
            agent_runtime=runtime,
            request_id=request_id,
        )
        frame = encode_request(request)
        self._broken = True
        try:
            self._send(frame, wait)
            response = decode_response(self._receive(wait))
        except OSError as error:
            raise _lost() from error
        if response.id is not None and response.id != request.id:
            raise DaemonFailed(
                "daemon_ipc_failed",
                "The daemon answered another request; run `clumsies daemon restart`.",
            )
        self._broken = response.id is None or self._frames.torn
        if not response.ok:
            raise error_of(response)
        return response.payload

    def usable(self) -> bool:
        """Whether the connection is quiet and open: anything to read now is an end or a fault."""
        if self._broken:
            return False
        poll = select.poll()
        poll.register(self._socket, _READABLE)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()

    def _send(self, frame: bytes, wait: _Wait) -> None:
        view = memoryview(frame)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                wait.until(self._socket, select.POLLOUT)
            except (BrokenPipeError, ConnectionResetError):
                return  # The daemon may have said why before it closed; `_receive` finds it.

    def _receive(self, wait: _Wait) -> bytes:
        while True:
            body = self._frames.pop()
            if body is not None:
                return body
            wait.until(self._socket, select.POLLIN)
            try:
                received = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                continue
            if not received:
                raise torn_frame() if self._frames.torn else _lost()
            self._frames.feed(received)


def check_endpoint(socket_path: Path) -> None:
    """See that the socket and its directory are this user's alone, following no symlink.

    Raises NotReady("daemon_unavailable") where they are not there and DaemonFailed("peer_refused")
    where someone else could have put them there.
    """
    owner = os.getuid()
    try:
        directory = socket_path.parent.lstat()
        found = socket_path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise unavailable() from error
    except OSError as error:
        raise _refused(f"{socket_path} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != owner:
        raise _refused(f"{socket_path.parent} is not a directory of this user")
    if stat.S_IMODE(directory.st_mode) & 0o077:
        raise _refused(f"{socket_path.parent} is open to other users")
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != owner:
        raise _refused(f"{socket_path} is not a socket of this user")


def ensure_running(
    client: DaemonClient,
    *,
    wait_s: float = STARTUP_TIMEOUT_S,
    start: Callable[[], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """The health of a running daemon, started first where none answers.

    `start` begins one without waiting (by default `clumsiesd start`, which prefers an installed
    service). Raises NotReady("daemon_unavailable") when none is ready within `wait_s`, and at once
    what a daemon said that refused to start.
    """
    end = time.monotonic() + wait_s
    begun = False
    while True:
        left = end - time.monotonic()
        try:
            return client.call("health", timeout_s=max(left, _START_POLL_S), cancel=cancel)
        except NotReady as error:
            if error.code not in {"daemon_unavailable", "daemon_busy"} or left <= 0:
                raise
        if not begun:
            (start or start_detached)()
            begun = True
        if cancel is not None and cancel.is_set():
            raise _cancelled()
        time.sleep(_START_POLL_S)


def start_detached(command: Sequence[str] | None = None) -> None:
    """Run `clumsiesd start`, which leaves the daemon in a session of its own and returns.

    `-P` keeps the working directory out of the module path: it is somebody's repository.
    """
    import subprocess

    arguments = command or [sys.executable, "-P", "-m", "clumsies.daemon.main", "start"]
    try:
        subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=STARTUP_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise said_refusal(error.stderr) or _not_started() from error
    except (OSError, subprocess.SubprocessError) as error:
        raise _not_started() from error


def said_refusal(standard_error: bytes) -> ClumsiesError | None:
    """Why a daemon did not start, from its last line of the form `clumsiesd: WORDS (code)`."""
    for line in reversed(standard_error.decode("utf-8", "replace").splitlines()):
        program, _, said = line.partition("clumsiesd: ")
        message, _, code = said.rpartition(" (")
        if not program and message and code.endswith(")"):
            return from_code(code[:-1], message)
    return None


def _not_started() -> NotReady:
    return NotReady(
        "daemon_unavailable",
        "The daemon could not be started; run `clumsies daemon run` to see why.",
    )


def unavailable() -> NotReady:
    """No daemon answers at the socket."""
    return NotReady(
        "daemon_unavailable",
        "The clumsies daemon is not running; start it with `clumsies daemon start`.",
    )


def _connect(path: Path, timeout_s: float, wait: _Wait) -> socket.socket:
    check_endpoint(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(max(0.001, min(timeout_s, wait.remaining_s())))
        connection.connect(str(path))
        connection.setblocking(False)
        if peer_uid(connection) != os.getuid():
            raise _refused(f"the process behind {path} belongs to another user")
    except TimeoutError as error:
        connection.close()
        raise _busy() from error
    except OSError as error:
        connection.close()
        raise _unconnected(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _unconnected(error: OSError) -> ClumsiesError:
    if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN}:
        return unavailable()
    if error.errno == errno.EAGAIN:
        return _busy()
    return DaemonFailed(
        "daemon_ipc_failed", f"The daemon's socket cannot be used: {error.strerror or error}."
    )


def _busy() -> NotReady:
    return NotReady("daemon_busy", "The daemon has too many callers at once; try again.")


def _cancelled() -> NotReady:
    return NotReady("request_cancelled", "The request was given up.")


def _lost() -> DaemonFailed:
    return DaemonFailed(
        "daemon_ipc_failed",
        "The daemon ended before it answered. A change may have been carried out: look before "
        "you repeat it.",
    )


def _refused(reason: str) -> DaemonFailed:
    return DaemonFailed("peer_refused", f"Nothing was sent to the daemon: {reason}.")


def _decoded(raw: msgspec.Raw, answer: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(raw, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DaemonFailed(
            "daemon_ipc_failed",
            f"The daemon's answer has another shape ({error}); run `clumsies daemon restart` so "
            "that both are of one version.",
        ) from error
