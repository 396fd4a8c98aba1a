"""A Server that fails as networks and proxies do, before or after it did what was asked.

`FaultServer` is a real one on loopback, with the faults made on its sockets. `FaultTransport` is
the same inside the process, for models that ask thousands of times: faults of the network are the
exceptions that httpx would raise. Both put one application behind the faults and keep one script:

    server.plan(reset(after=True), method="POST", path="/api/v1/drafts")

has the next POST below that path take effect and its answer lost. Without a planned fault the
application answers.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from clumsies.sync.remote import in_process_transport

STALL_S = 60.0
DRIP_S = 0.1
MAX_THREADS = 64
HTML = b"<!doctype html><title>Sign in</title><p>This network asks who you are: s3cret."
HOP_BY_HOP = ("content-length", "transfer-encoding", "connection")


@dataclass(frozen=True)
class Asked:
    """A request as it came in; header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def bearer(self) -> str | None:
        value = self.headers.get("authorization")
        return None if value is None else value.removeprefix("Bearer ")


@dataclass(frozen=True)
class Reply:
    """An answer; its length is added when it is sent, unless `headers` name one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


Answer = Callable[[Asked], Reply]


class Break(Enum):
    """How the network fails under an answer."""

    RESET = "reset"
    HANG_UP = "hang up"
    STALL = "stall"
    STALL_BODY = "stall in the body"
    DRIP = "a byte at a time"
    CUT = "cut"
    CUT_UNANNOUNCED = "cut without a length"


@dataclass(frozen=True)
class Fault:
    """`after`: the application does what was asked first. `reply` makes another answer of the
    application's, which is None where it was not asked; `breaks` is what the network does to it.
    """

    name: str
    after: bool = False
    reply: Callable[[Reply | None], Reply] | None = None
    breaks: Break | None = None

    def __str__(self) -> str:
        return f"{self.name} {'after' if self.after else 'before'}"


def json_reply(status: int, value: object, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, {"content-type": "application/json", **named}, json.dumps(value).encode())


def envelope(
    status: int, code: str, details: dict[str, Any] | None = None, **headers: str
) -> Reply:
    """An answer of failure in the form of the API."""
    error = {
        "code": code,
        "message": f"words of {code}",
        "request_id": "req_server",
        "details": details or {},
    }
    return json_reply(status, {"error": error}, x_request_id="req_server", **headers)


CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "version_conflict",
    412: "precondition_failed",
    429: "too_many_requests",
    500: "internal_error",
    503: "oidc_unavailable",
}


def answers(reply: Reply, name: str, *, after: bool = False) -> Fault:
    """That answer in the place of the application's."""
    return Fault(name, after, lambda _: reply)


def status(code: int, *, after: bool = False, **headers: str) -> Fault:
    """A failure in an envelope, or without one where the API has no such status."""
    named = CODES.get(code)
    reply = envelope(code, named, None, **headers) if named else Reply(code, dict(headers))
    return answers(reply, str(code), after=after)


def html(code: int = 200, *, after: bool = False) -> Fault:
    page = Reply(code, {"content-type": "text/html; charset=utf-8"}, HTML)
    return answers(page, f"HTML with {code}", after=after)


def redirect(to: str, *, after: bool = False) -> Fault:
    return answers(Reply(307, {"location": to}), "redirect", after=after)


def body_of(size: int, *, after: bool = False) -> Fault:
    """A JSON text of that many bytes."""
    reply = Reply(200, {"content-type": "application/json"}, b'"' + b"x" * (size - 2) + b'"')
    return answers(reply, f"{size} bytes", after=after)


def gzip_bomb(size: int, *, after: bool = False) -> Fault:
    """A few kilobytes that unpack to `size` bytes."""
    packed = gzip.compress(b'"' + b"x" * (size - 2) + b'"')
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    return answers(Reply(200, headers, packed), "gzip bomb", after=after)


def without_header(name: str) -> Fault:
    """The application's answer, without one of its headers."""

    def stripped(reply: Reply | None) -> Reply:
        assert reply is not None
        return replace(reply, headers={n: v for n, v in reply.headers.items() if n != name})

    return Fault(f"no {name}", True, stripped)


def retyped(content_type: str) -> Fault:
    """The application's answer under another content type."""

    def under(reply: Reply | None) -> Reply:
        assert reply is not None
        return replace(reply, headers={**reply.headers, "content-type": content_type})

    return Fault(f"as {content_type}", True, under)


def broken(how: Break, *, after: bool = False) -> Fault:
    return Fault(how.value, after, None, how)


def reset(*, after: bool = False) -> Fault:
    return broken(Break.RESET, after=after)


def network_faults() -> list[Fault]:
    """Every way in which the network fails, before and after; an answer is cut only after."""
    before = [Break.RESET, Break.HANG_UP, Break.STALL]
    return [broken(how) for how in before] + [broken(how, after=True) for how in Break]


def refusals() -> list[Fault]:
    """Every answer of failure, from the Server and from what stands in front of it."""
    codes = (401, 403, 404, 408, 409, 412, 429, 500, 502, 503, 504)
    made = [status(code, after=after) for code in codes for after in (False, True)]
    return [
        *made,
        *(html(code, after=after) for code in (200, 403, 502) for after in (False, True)),
    ]


@dataclass
class _Plan:
    fault: Fault
    method: str | None
    path: str | None
    left: int

    def fits(self, asked: Asked) -> bool:
        """`path` is the whole path without its query, or its start where it ends in `*`."""
        place = asked.path.partition("?")[0]
        if self.left <= 0 or self.method not in (None, asked.method):
            return False
        if self.path is None or self.path == place:
            return True
        return self.path.endswith("*") and place.startswith(self.path[:-1])


class Script:
    """What goes wrong next, and what was asked; of several plans that fit the oldest acts."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._plans: list[_Plan] = []
        self.requests: list[Asked] = []
        self.acted: list[tuple[Asked, Fault]] = []

    def plan(
        self, fault: Fault, *, method: str | None = None, path: str | None = None, times: int = 1
    ) -> None:
        with self._mutex:
            self._plans.append(_Plan(fault, method, path, times))

    def clear(self) -> None:
        """Forget what was planned and has not happened."""
        with self._mutex:
            self._plans.clear()

    def take(self, asked: Asked) -> Fault | None:
        with self._mutex:
            self.requests.append(asked)
            for plan in self._plans:
                if plan.fits(asked):
                    plan.left -= 1
                    self.acted.append((asked, plan.fault))
                    return plan.fault
        return None

    def of(self, method: str, path: str) -> list[Asked]:
        """The requests of that method and path so far."""
        with self._mutex:
            return [
                asked
                for asked in self.requests
                if asked.method == method and asked.path.partition("?")[0] == path
            ]


class AsgiAnswers:
    """An ASGI application as an `Answer`."""

    def __init__(self, app: Any):
        self._transport = in_process_transport(app)

    def __call__(self, asked: Asked) -> Reply:
        request = httpx.Request(
            asked.method,
            f"http://local.invalid{asked.path}",
            headers={n: v for n, v in asked.headers.items() if n not in HOP_BY_HOP},
            content=asked.body,
            extensions={"timeout": {"read": STALL_S}},
        )
        response = self._transport.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        headers = {n.lower(): v for n, v in response.headers.items() if n not in HOP_BY_HOP}
        return Reply(response.status_code, headers, b"".join(response.stream))

    def close(self) -> None:
        self._transport.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def handle_one(self) -> None:
        asked = Asked(
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("content-length", "0"))),
        )
        fault = self.server.script.take(asked)
        if fault is None:
            self.send(self.server.answer(asked))
            return
        reply = self.server.answer(asked) if fault.after else None
        if fault.reply is not None:
            reply = fault.reply(reply)
        if fault.breaks is not None:
            self.break_down(fault.breaks, reply)
        else:
            assert reply is not None
            self.send(reply)

    def do_GET(self) -> None:
        self.handle_one()

    def do_POST(self) -> None:
        self.handle_one()

    def do_PUT(self) -> None:
        self.handle_one()

    def do_PATCH(self) -> None:
        self.handle_one()

    def do_DELETE(self) -> None:
        self.handle_one()

    def log_message(self, *arguments: object) -> None:
        """Silence: the script's record is what tests look at."""

    def send(self, reply: Reply) -> None:
        self.wfile.write(self.head(reply, len(reply.body)) + reply.body)

    def head(self, reply: Reply, length: int | None) -> bytes:
        named = dict(reply.headers)
        if length is None:
            named["connection"] = "close"
            self.close_connection = True
        else:
            named.setdefault("content-length", str(length))
        lines = [f"HTTP/1.1 {reply.status} Words"] + [f"{n}: {v}" for n, v in named.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def break_down(self, how: Break, reply: Reply | None) -> None:
        self.close_connection = True
        if how is Break.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())  # `close` waits for the handler's own files
            return
        if how is Break.STALL:
            self.stall()
        if reply is not None:
            self.break_body(how, reply)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def break_body(self, how: Break, reply: Reply) -> None:
        half = reply.body[: len(reply.body) // 2]
        if how is Break.CUT:
            self.wfile.write(self.head(reply, len(reply.body) + 1) + half)
        elif how is Break.CUT_UNANNOUNCED:
            self.wfile.write(self.head(reply, None) + half)
        elif how is Break.STALL_BODY:
            self.wfile.write(self.head(reply, len(reply.body) + 1) + half)
            self.stall()
        elif how is Break.DRIP:
            data = self.head(reply, len(reply.body)) + reply.body
            for position in range(len(data)):
                self.wfile.write(data[position : position + 1])
                if self.server.release.wait(DRIP_S):
                    return

    def stall(self) -> None:
        """Until the test releases it, or the client goes away."""
        self.server.stalled.set()
        self.connection.settimeout(0.05)
        for _ in range(int(STALL_S / 0.05)):
            try:
                gone = self.server.release.is_set() or not self.connection.recv(1)
            except TimeoutError:
                continue
            except OSError:
                return
            if gone:
                return


class FaultServer(ThreadingHTTPServer):
    """The application behind faults, on a port of 127.0.0.1; use it as a context.

    `stalled` is set when a stall began, `release` ends every stall; `connections` are open now.
    With `tls` it speaks that; the name in its certificate has to be 127.0.0.1's.
    """

    daemon_threads = True
    request_queue_size = MAX_THREADS

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self._tls = tls
        self.answer = answer
        self.script = Script()
        self.plan = self.script.plan
        self.connections = 0
        self.stalled = threading.Event()
        self.release = threading.Event()
        self.unexpected: list[BaseException] = []
        self._slots = threading.BoundedSemaphore(MAX_THREADS)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FaultServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        assert self.unexpected == []

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._slots:
            self.connections += 1
            try:
                super().process_request_thread(request, client_address)
            finally:
                self.connections -= 1

    def handle_error(self, request: object, client_address: object) -> None:
        import sys

        error = sys.exc_info()[1]
        # Clients that go away are what these tests are about.
        if error is not None and not isinstance(error, OSError | ValueError):
            self.unexpected.append(error)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{int(self.server_address[1])}"


class FaultTransport(httpx.BaseTransport):
    """The application behind faults, inside the process; nothing ever waits."""

    def __init__(self, answer: Answer):
        self.answer = answer
        self.script = Script()
        self.plan = self.script.plan

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.method, request.url.raw_path.decode("ascii"), headers, request.read())
        fault = self.script.take(asked)
        if fault is None:
            return _response(self.answer(asked))
        reply = self.answer(asked) if fault.after else None
        if fault.reply is not None:
            reply = fault.reply(reply)
        if fault.breaks is Break.CUT_UNANNOUNCED and reply is not None:
            return _response(replace(reply, body=reply.body[: len(reply.body) // 2]))
        if fault.breaks is not None:
            raise _EXCEPTIONS[fault.breaks]("planned", request=request)
        assert reply is not None
        return _response(reply)


_EXCEPTIONS: dict[Break, type[httpx.TransportError]] = {
    Break.RESET: httpx.ReadError,
    Break.HANG_UP: httpx.RemoteProtocolError,
    Break.STALL: httpx.ReadTimeout,
    Break.STALL_BODY: httpx.ReadTimeout,
    Break.DRIP: httpx.ReadTimeout,
    Break.CUT: httpx.RemoteProtocolError,
    Break.CUT_UNANNOUNCED: httpx.RemoteProtocolError,
}


def _response(reply: Reply) -> httpx.Response:
    return httpx.Response(reply.status, headers=reply.headers, stream=httpx.ByteStream(reply.body))


@contextmanager
def serving(app: Any) -> Iterator[FaultServer]:
    """An ASGI application behind a real server that can fail."""
    answers_of_app = AsgiAnswers(app)
    try:
        with FaultServer(answers_of_app) as server:
            yield server
    finally:
        answers_of_app.close()


def refused_url() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
