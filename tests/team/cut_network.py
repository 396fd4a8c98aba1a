"""A network between one machine and the Server that can be cut at any request.

Bytes are passed on as they are; only the first line of a request is looked at.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

_REQUEST = re.compile(rb"([A-Z]{3,6}) (/[^ ]*) HTTP/1\.1\r\n")
_CHUNK = 65_536


class Cut(Enum):
    """When the connection breaks: before the Server sees the request, after it has answered and
    before anything of that comes back, or in the middle of the answer."""

    BEFORE = "before"
    AFTER = "after"
    HALFWAY = "halfway"


@dataclass
class _Plan:
    pattern: re.Pattern[str]
    cut: Cut
    done: threading.Event = field(default_factory=threading.Event)


class Network:
    """Listens on a port of its own and leads to `port`; up until `down`."""

    def __init__(self, port: int):
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        """`METHOD path` of every request that was begun."""
        self._is_up = True
        self._plans: list[_Plan] = []
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def cut_at(self, pattern: str, cut: Cut) -> threading.Event:
        """Break the next request whose `METHOD path` matches; set when that has happened."""
        plan = _Plan(re.compile(pattern), cut)
        with self._mutex:
            self._plans.append(plan)
        return plan.done

    def down(self) -> None:
        """Break what is open, and every connection from now on."""
        with self._mutex:
            self._is_up = False
            found = list(self._open)
        for connection in found:
            _reset(connection)

    def up(self) -> None:
        with self._mutex:
            self._is_up = True

    def close(self) -> None:
        self.down()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _run(self, call: object, *arguments: object) -> None:
        thread = threading.Thread(target=call, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _reset(client)
                client.close()
                continue
            pair = _Pair(self, client, server)
            with self._mutex:
                self._open |= {client, server}
                is_up = self._is_up
            self._run(pair.send)
            self._run(pair.receive)
            if not is_up:
                pair.reset()

    def _planned(self, request: str) -> _Plan | None:
        with self._mutex:
            self.requests.append(request)
            found = next((plan for plan in self._plans if plan.pattern.search(request)), None)
            if found is not None:
                self._plans.remove(found)
            return found

    def _closed(self, *connections: socket.socket) -> None:
        with self._mutex:
            self._open -= set(connections)


class _Pair:
    """One connection and its other half, each pumped by a thread."""

    def __init__(self, network: Network, client: socket.socket, server: socket.socket):
        self._network, self._client, self._server = network, client, server
        self._plan: _Plan | None = None
        self._ended = threading.Semaphore(0)

    def send(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(_CHUNK):
                found = _REQUEST.match(data)
                if found is not None:
                    request = b" ".join(found.groups()).decode()
                    self._plan = self._network._planned(request)
                    if self._plan is not None and self._plan.cut is Cut.BEFORE:
                        self._break(self._plan)
                        break
                self._server.sendall(data)
        self._end(self._server)

    def receive(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(_CHUNK):
                plan = self._plan
                if plan is not None:
                    if plan.cut is Cut.HALFWAY:
                        self._client.sendall(data[: len(data) // 2])
                    self._break(plan)
                    break
                self._client.sendall(data)
        self._end(self._client)

    def _break(self, plan: _Plan) -> None:
        self.reset()
        plan.done.set()

    def reset(self) -> None:
        _reset(self._client)
        _reset(self._server)

    def _end(self, other: socket.socket) -> None:
        """The second of the two threads closes both."""
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
        self._ended.release()
        if other is self._client:
            self._ended.acquire()
            self._ended.acquire()
            self._network._closed(self._client, self._server)
            self._client.close()
            self._server.close()


def _reset(connection: socket.socket) -> None:
    """End the connection as a cut wire does: no more bytes either way."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
