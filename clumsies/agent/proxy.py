"""`clumsiesd mcp serve`: the Model Context Protocol on standard input and output.

A host goes without tools that are late, so nothing is imported before the handshake that the
handshake does not need, and a daemon that is not there costs nothing until a tool is called.
The process ends at once at the end of its input, and never by itself otherwise.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from clumsies.agent.arguments import ToolRequest, decode_call
from clumsies.agent.eras import Era, Session
from clumsies.agent.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Id,
    LineBuffer,
    Notification,
    ProtocolError,
    Request,
    decode,
    failure,
    success,
    too_long,
)
from clumsies.agent.output import (
    Output,
    keep_standard_error,
    take_standard_input,
    take_standard_output,
)
from clumsies.agent.results import failed, tool_result
from clumsies.agent.running import RunningCall
from clumsies.agent.tools import listed
from clumsies.errors import EXIT_OK, EXIT_USAGE, ClumsiesError, NotReady

if TYPE_CHECKING:
    from clumsies.agent.calls import Caller

USAGE = "usage: clumsiesd mcp serve [--tools memory] [--no-start] [--socket PATH]\n"
MAX_CALLS = 32
"""Tool calls at once; one more is told to try again."""
PROGRESS_INTERVAL_S = 5.0
_READ_BYTES = 64 * 1024
_LAST_ANSWERS_S = 0.5
_CONGESTED_POLL_MS = 50
_LOG_LEVELS = frozenset(
    {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
)
_HANDSHAKE_ONLY = frozenset({"ping", "logging/setLevel"})


class Options(NamedTuple):
    """What the command line says: one unified tool, start a daemon, another socket."""

    unified: bool = False
    start: bool = True
    socket: Path | None = None


def main(argv: Sequence[str]) -> NoReturn:
    """Serve with the arguments after `mcp serve`; ends the process when the host ends.

    Raises SystemExit(2) for arguments that are not understood.
    """
    options = parse_options(argv)
    if options is None:
        _complain(USAGE)
        raise SystemExit(EXIT_USAGE)
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.SIG_DFL)
    keep_standard_error()
    Proxy(options, take_standard_input(), take_standard_output()).serve()


def parse_options(argv: Sequence[str]) -> Options | None:
    """The options, None where an argument is not understood."""
    options = Options()
    left = list(argv)
    while left:
        name, _, value = left.pop(0).partition("=")
        if name == "--no-start" and not value:
            options = options._replace(start=False)
            continue
        value = value or (left.pop(0) if left else "")
        if name == "--tools" and value == "memory":
            options = options._replace(unified=True)
        elif name == "--socket" and Path(value).is_absolute():
            options = options._replace(socket=Path(value))
        else:
            return None
    return options


class Proxy:
    """One host's connection. `serve` reads; each tool call has a thread of its own."""

    def __init__(self, options: Options, input_descriptor: int, output_descriptor: int):
        self._options = options
        self._input = input_descriptor
        self._output = Output(output_descriptor, lambda: os._exit(EXIT_OK))
        self._session = Session(options.unified)
        self._lines = LineBuffer()
        self._running: dict[Id, RunningCall] = {}
        self._mutex = threading.Lock()
        self._caller: Caller | None = None

    def serve(self) -> NoReturn:
        """Answer until the input ends."""
        try:
            while received := self._read():
                for line in self._lines.feed(received):
                    self._take(line)
            self._output.drain(_LAST_ANSWERS_S)
        finally:
            # Calls under way are given up with their connections; nothing here is worth waiting.
            os._exit(EXIT_OK)

    def _read(self) -> bytes:
        """What came in; empty at the end, which is seen even while nothing is read."""
        poll = select.poll()
        poll.register(self._input, 0 if self._output.congested else select.POLLIN)
        while True:
            ready = poll.poll(self._patience_ms())
            if ready:
                readable = ready[0][1] & select.POLLIN
                return os.read(self._input, _READ_BYTES) if readable else b""
            if not self._output.congested:
                poll.modify(self._input, select.POLLIN)
            self._report_all()

    def _patience_ms(self) -> int | None:
        if self._output.congested:
            return _CONGESTED_POLL_MS
        with self._mutex:
            told = any(running.token is not None for running in self._running.values())
        return int(PROGRESS_INTERVAL_S * 1000) if told else None

    def _report_all(self) -> None:
        if self._output.congested:
            return
        with self._mutex:
            under_way = list(self._running.values())
        for running in under_way:
            running.report("still working")

    def _take(self, line: bytes | None) -> None:
        request_id: Id | None = None
        try:
            if line is None:
                raise too_long()
            message = decode(line)
            if isinstance(message, Notification):
                self._notice(message)
            elif message is not None:
                request_id = message.request_id
                self._answer(message)
        except ProtocolError as error:
            if error.request_id is None:
                error.request_id = request_id
            self._output.send(failure(error))
        except Exception as error:
            self._output.send(failure(_internal(error, request_id)))

    def _notice(self, message: Notification) -> None:
        if message.method != "notifications/cancelled":
            return
        request_id = message.params.get("requestId")
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return
        with self._mutex:
            running = self._running.pop(request_id, None)
        if running is not None:
            running.end()

    def _answer(self, request: Request) -> None:
        if request.method not in _METHODS:
            raise ProtocolError(METHOD_NOT_FOUND, f"There is no method `{request.method[:64]}`.")
        self._session.admit(request)
        if request.method in _HANDSHAKE_ONLY and self._session.era is Era.STATELESS:
            raise ProtocolError(METHOD_NOT_FOUND, "This protocol version has no such method.")
        result = _METHODS[request.method](self, request)
        if result is not None:
            self._reply(request, result)

    def _reply(self, request: Request, result: Mapping[str, Any]) -> None:
        sealed = self._session.sealed(request.method, result)
        self._output.send(success(request.request_id, sealed))

    def _initialize(self, request: Request) -> Mapping[str, Any]:
        return self._session.initialize(request.params)

    def _discover(self, _request: Request) -> Mapping[str, Any]:
        if self._session.era is not Era.STATELESS:
            raise ProtocolError(METHOD_NOT_FOUND, "This protocol version has no such method.")
        return self._session.discover()

    def _ping(self, _request: Request) -> Mapping[str, Any]:
        return {}

    def _set_level(self, request: Request) -> Mapping[str, Any]:
        """Nothing is ever logged to the host, so every level is kept."""
        if request.params.get("level") not in _LOG_LEVELS:
            raise ProtocolError(
                INVALID_PARAMS, "`level` is not a level of logging.", {"field": "level"}
            )
        return {}

    def _list_tools(self, request: Request) -> Mapping[str, Any]:
        if request.params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, "There is one page only.", {"field": "cursor"})
        return {"tools": listed(self._options.unified)}

    def _call_tool(self, request: Request) -> Mapping[str, Any] | None:
        wanted = decode_call(request.params)
        meta = request.params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        token = meta.get("progressToken")
        if isinstance(token, bool) or not isinstance(token, str | int):
            token = None
        running = RunningCall(token, self._output.send)
        with self._mutex:
            if request.request_id in self._running:
                raise ProtocolError(INVALID_REQUEST, "A request of this id is under way.")
            if len(self._running) >= MAX_CALLS:
                return failed(NotReady("daemon_busy", "Too many calls at once; try again."))
            self._running[request.request_id] = running
        threading.Thread(
            target=self._run,
            args=(request, wanted, meta, running),
            name="mcp-call",
            daemon=True,
        ).start()
        return None

    def _run(
        self, request: Request, wanted: ToolRequest, meta: Mapping[str, Any], running: RunningCall
    ) -> None:
        try:
            answer = success(
                request.request_id,
                self._session.sealed(request.method, self._outcome(wanted, meta, running)),
            )
        except Exception as error:
            answer = failure(_internal(error, request.request_id))
        with self._mutex:
            if self._running.get(request.request_id) is running:
                del self._running[request.request_id]
        if running.end():
            self._send_answer(answer, request.request_id)

    def _outcome(
        self, wanted: ToolRequest, meta: Mapping[str, Any], running: RunningCall
    ) -> Mapping[str, Any]:
        from clumsies.agent.calls import Call

        call = Call(meta, running.cancel, running.report)
        try:
            return tool_result(self._ready().run(wanted, call))
        except ClumsiesError as error:
            return failed(error)

    def _ready(self) -> Caller:
        from clumsies.agent.calls import caller

        with self._mutex:
            if self._caller is None:
                self._caller = caller(self._options.socket, self._options.start)
            return self._caller

    def _send_answer(self, answer: Mapping[str, Any], request_id: Id) -> None:
        try:
            self._output.send(answer)
        except ValueError as error:
            self._output.send(failure(_internal(error, request_id)))


_METHODS = {
    "initialize": Proxy._initialize,
    "server/discover": Proxy._discover,
    "ping": Proxy._ping,
    "logging/setLevel": Proxy._set_level,
    "tools/list": Proxy._list_tools,
    "tools/call": Proxy._call_tool,
}
"""Resources, prompts and completions are not declared, and so are not methods here."""


def _internal(error: Exception, request_id: Id | None) -> ProtocolError:
    """A fault of this program: its kind goes to standard error, its text to nobody."""
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    _complain(
        f"clumsies mcp: {type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}\n"
    )
    return ProtocolError(
        INTERNAL_ERROR, "The memory proxy failed at this message.", None, request_id
    )


def _complain(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
