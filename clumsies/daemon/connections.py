"""The socket's server: connections, their frames, and how many of each there may be.

A connection is answered in any order and has a bounded number of requests under way. Its end,
also of its sending half alone, cancels what it asked for. A frame that cannot be read is
answered by an error frame, and the connection is closed; a peer that stops in the middle of a
frame, or does not take its answers, is closed after a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any, cast

from clumsies.daemon.context import Statistics
from clumsies.daemon.dispatcher import Dispatcher
from clumsies.daemon.wire import (
    HEADER_BYTES,
    PROTOCOL_REVISION,
    Request,
    check_length,
    decode_request,
    encode_response,
    failure,
    new_request_id,
    peer_uid,
    torn_frame,
    usable_request_id,
)
from clumsies.errors import ClumsiesError, DaemonFailed, NotReady
from clumsies.logs import EventLog

MAX_CONNECTIONS = 512
MAX_REQUESTS = 32
"""Of one connection at a time; one more is answered `daemon_busy`."""
FRAME_TIMEOUT_S = 30.0
"""From a frame's first byte to its last, and for a peer to take an answer."""
BACKLOG = 512
_CLEANUP: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


async def read_frame(reader: asyncio.StreamReader, timeout_s: float) -> bytes | None:
    """The next body, or None at a clean end; an idle peer may take for ever to begin one.

    Raises DaemonFailed for a torn, slow, empty or oversized frame.
    """
    first = await reader.read(1)
    if not first:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            header = first + await reader.readexactly(HEADER_BYTES - 1)
            length = int.from_bytes(header, "big")
            check_length(length)
            return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise torn_frame() from error
    except TimeoutError as error:
        raise DaemonFailed(
            "daemon_ipc_failed", f"A frame was not complete within {timeout_s:g} s."
        ) from error


class SocketServer:
    """Serves one listening socket until `stop`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        log: EventLog,
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_requests: int = MAX_REQUESTS,
        frame_timeout_s: float = FRAME_TIMEOUT_S,
        owner: int | None = None,
    ):
        self.dispatcher = dispatcher
        self.max_requests = max_requests
        self.frame_timeout_s = frame_timeout_s
        self.stopping = False
        self._log = log
        self._max_connections = max_connections
        self._owner = os.getuid() if owner is None else owner
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on; the socket is closed by `stop`, its file is the caller's."""
        self._server = await asyncio.start_unix_server(
            self._accepted, sock=listener, backlog=BACKLOG, **_CLEANUP
        )

    def statistics(self) -> Statistics:
        """Counts for `mcp_status`; may be asked from any thread."""
        connections = list(self._connections)
        return Statistics(
            connections=len(connections),
            agent_connections=sum(connection.agent for connection in connections),
            active_requests=self.dispatcher.active,
        )

    async def stop(self, grace_s: float) -> bool:
        """Take no new work, let what is under way finish within `grace_s`, close everything.

        Whether all of it finished: what did not has been told to give up.
        """
        self.stopping = True
        if self._server is not None:
            self._server.close()
        requests = {task for connection in self._connections for task in connection.requests}
        if requests:
            await asyncio.wait(requests, timeout=grace_s)
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await self.dispatcher.wait_idle(1.0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        refusal = self._refusal(writer)
        if refusal is not None:
            await connection.refuse(refusal)
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.serve()
        except asyncio.CancelledError:
            if not self.stopping:
                raise
        finally:
            del self._connections[connection]

    def _refusal(self, writer: asyncio.StreamWriter) -> ClumsiesError | None:
        try:
            uid = peer_uid(cast(socket.socket, writer.get_extra_info("socket")))
        except OSError:
            uid = -1
        if uid != self._owner:
            self._log.emit("peer_refused", "warning", uid=uid)
            return DaemonFailed("peer_refused", "This daemon serves its own user alone.")
        if self.stopping:
            return _stopping()
        if len(self._connections) >= self._max_connections:
            self._log.emit("connection_refused", "warning", connections=len(self._connections))
            return NotReady("daemon_busy", "The daemon has too many connections; try again.")
        return None


class _Connection:
    """One peer."""

    def __init__(
        self, server: SocketServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ):
        self.requests: set[asyncio.Task[None]] = set()
        self.agent = False
        self._server = server
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def serve(self) -> None:
        """Read and answer until the peer ends or breaks the rules of frames."""
        try:
            while True:
                body = await read_frame(self._reader, self._server.frame_timeout_s)
                if body is None:
                    break
                await self._begin(decode_request(body))
        except ClumsiesError as error:
            await self._send(encode_response(failure(error, new_request_id())))
        except ConnectionError:
            pass  # The peer is gone; its requests are cancelled below.
        finally:
            await self._end()

    async def refuse(self, error: ClumsiesError) -> None:
        """Say why in an error frame and close."""
        await self._send(encode_response(failure(error, new_request_id())))
        await self._end()

    async def _begin(self, request: Request) -> None:
        marker = request.agent_runtime
        if marker is not None and marker.protocol_revision == PROTOCOL_REVISION:
            self.agent = True
        refusal: ClumsiesError | None = None
        if self._server.stopping:
            refusal = _stopping()
        elif len(self.requests) >= self._server.max_requests:
            refusal = NotReady(
                "daemon_busy",
                f"A connection has at most {self._server.max_requests} requests at once; wait for "
                "an answer.",
            )
        if refusal is not None:
            named = usable_request_id(request.request_id)
            await self._send(encode_response(failure(refusal, named, request.id)))
            return
        task = asyncio.create_task(self._answer(request))
        self.requests.add(task)
        task.add_done_callback(self.requests.discard)

    async def _answer(self, request: Request) -> None:
        await self._send(await self._server.dispatcher.answer(request))

    async def _send(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(self._server.frame_timeout_s), self._sending:
                self._writer.write(frame)
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
        except ConnectionError:
            pass  # The peer is gone; reading finds that out and ends the connection.

    async def _end(self) -> None:
        requests = list(self.requests)
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        self._writer.close()
        try:
            async with asyncio.timeout(self._server.frame_timeout_s):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()


def _stopping() -> NotReady:
    return NotReady("daemon_unavailable", "The daemon is stopping; start it and ask again.")
