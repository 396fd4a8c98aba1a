"""A real HTTP server on loopback that serves files as a hub does, or fails as networks do.

Every request is recorded. A path's next planned behaviour answers it; without one the server
serves rightly, with ranges, `If-Range` and strong entity tags.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

STALL_S = 300.0
FLOOD_BYTES = 64 * 1024 * 1024
HTML = b"<!doctype html><title>Sign in</title><p>This network asks who you are."


@dataclass(frozen=True)
class Request:
    """One request as it came in; header names are lower-case."""

    path: str
    headers: dict[str, str]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.path, headers))
        path = re.sub(r"^http://[^/]*", "", self.path)
        planned = self.server.plans[path]
        behaviour = planned.popleft() if planned else serve
        body = self.server.files.get(path)
        if body is None and behaviour is serve:
            behaviour = status(404)
        behaviour(self, body or b"")

    def log_message(self, *arguments: object) -> None:
        """Silence: the recorded requests are what tests look at."""

    def begin(self, code: int, length: int | None, **headers: str) -> None:
        self.send_response(code)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()

    def hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def first_byte(self) -> int | None:
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(found[1]) if found else None


Behaviour = Callable[[Handler, bytes], None]


class FaultServer(ThreadingHTTPServer):
    """The server; `plan` says how the next requests of a path are answered, in order.

    `sent_enough` is set when a `stall` has sent its bytes; `release` lets stalls go on;
    `broken_off` is set when the client left a `flood` before its end.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.plans: defaultdict[str, deque[Behaviour]] = defaultdict(deque)
        self.requests: list[Request] = []
        self.sent_enough = threading.Event()
        self.release = threading.Event()
        self.broken_off = threading.Event()
        self.unexpected: list[BaseException] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FaultServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        assert self.unexpected == []

    def handle_error(self, request: object, client_address: object) -> None:
        import sys

        error = sys.exc_info()[1]
        # A client that goes away (killed, cancelled, refusing) is what these tests are about.
        if error is not None and not isinstance(error, ConnectionError | OSError):
            self.unexpected.append(error)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def other_name(self) -> str:
        """The same server under another host name."""
        return f"http://localhost:{self.port}"

    def plan(self, path: str, *behaviours: Behaviour) -> None:
        self.plans[path].extend(behaviours)

    def ranges(self, path: str) -> list[str | None]:
        """The Range header of each request of that path so far."""
        return [each.headers.get("range") for each in self.requests if each.path == path]


def etag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def serve(handler: Handler, body: bytes) -> None:
    """Rightly."""
    first = handler.first_byte()
    condition = handler.headers.get("If-Range")
    etag = etag_of(body)
    if first is None or (condition is not None and condition != etag):
        handler.begin(200, len(body), ETag=etag)
        handler.wfile.write(body)
    elif first >= len(body):
        handler.begin(416, 0, Content_Range=f"bytes */{len(body)}")
    else:
        whole = f"bytes {first}-{len(body) - 1}/{len(body)}"
        handler.begin(206, len(body) - first, ETag=etag, Content_Range=whole)
        handler.wfile.write(body[first:])


def serve_bytes(other: bytes) -> Behaviour:
    """Rightly, but other bytes."""
    return lambda handler, _: serve(handler, other)


def serve_without_etag(handler: Handler, body: bytes) -> None:
    first = handler.first_byte() or 0
    if first:
        whole = f"bytes {first}-{len(body) - 1}/{len(body)}"
        handler.begin(206, len(body) - first, Content_Range=whole)
    else:
        handler.begin(200, len(body))
    handler.wfile.write(body[first:])


def stall(after: int) -> Behaviour:
    """Promise the file, send the first `after` bytes that were asked for, then nothing more."""

    def behave(handler: Handler, body: bytes) -> None:
        first = handler.first_byte() or 0
        code = 206 if first else 200
        extra = {"Content_Range": f"bytes {first}-{len(body) - 1}/{len(body)}"} if first else {}
        handler.begin(code, len(body) - first, ETag=etag_of(body), **extra)
        handler.wfile.write(body[first : first + after])
        handler.wfile.flush()
        handler.server.sent_enough.set()
        handler.server.release.wait(STALL_S)
        handler.close_connection = True

    return behave


def never_answer(handler: Handler, body: bytes) -> None:
    handler.server.sent_enough.set()
    handler.server.release.wait(STALL_S)
    handler.close_connection = True


def trickle(count: int, interval_s: float) -> Behaviour:
    """A byte at a time, `count` of them, then the connection ends."""

    def behave(handler: Handler, body: bytes) -> None:
        handler.begin(200, len(body), ETag=etag_of(body))
        for position in range(count):
            handler.wfile.write(body[position : position + 1])
            handler.wfile.flush()
            time.sleep(interval_s)
        handler.hang_up()

    return behave


def cut(after: int) -> Behaviour:
    """Promise the file and hang up after `after` of its bytes."""

    def behave(handler: Handler, body: bytes) -> None:
        handler.begin(200, len(body), ETag=etag_of(body))
        handler.wfile.write(body[:after])
        handler.hang_up()

    return behave


def cut_unannounced(after: int) -> Behaviour:
    """The first `after` bytes without a length, so that the end looks like the file's end."""

    def behave(handler: Handler, body: bytes) -> None:
        handler.begin(200, None, ETag=etag_of(body))
        handler.wfile.write(body[:after])

    return behave


def claim(length: int) -> Behaviour:
    """A Content-Length that is not the file's."""

    def behave(handler: Handler, body: bytes) -> None:
        handler.begin(200, length)
        handler.wfile.write(body.ljust(length, b"\0")[:length])

    return behave


def send_too_much(handler: Handler, body: bytes) -> None:
    """More than the file, without a length."""
    handler.begin(200, None)
    handler.wfile.write(body + b"and more")


def flood(handler: Handler, body: bytes) -> None:
    """The file and then far more, without a length, for as long as the client listens."""
    handler.begin(200, None)
    handler.wfile.write(body)
    try:
        for _ in range(FLOOD_BYTES // 65_536):
            handler.wfile.write(bytes(65_536))
    except OSError:
        handler.server.broken_off.set()


def html(handler: Handler, body: bytes) -> None:
    handler.begin(200, len(HTML), Content_Type="text/html; charset=utf-8")
    handler.wfile.write(HTML)


def html_in_disguise(handler: Handler, body: bytes) -> None:
    """A page of the file's size and of no particular type."""
    page = HTML.ljust(len(body))[: len(body)]
    handler.begin(200, len(page), Content_Type="application/octet-stream")
    handler.wfile.write(page)


def ignore_range(handler: Handler, body: bytes) -> None:
    handler.begin(200, len(body), ETag=etag_of(body))
    handler.wfile.write(body)


def start_elsewhere(handler: Handler, body: bytes) -> None:
    """A 206 that begins one byte early."""
    first = max(0, (handler.first_byte() or 0) - 1)
    whole = f"bytes {first}-{len(body) - 1}/{len(body)}"
    handler.begin(206, len(body) - first, ETag=etag_of(body), Content_Range=whole)
    handler.wfile.write(body[first:])


def resume_another(other: bytes) -> Behaviour:
    """A 206 of another entity, whatever `If-Range` says."""

    def behave(handler: Handler, body: bytes) -> None:
        first = handler.first_byte() or 0
        whole = f"bytes {first}-{len(other) - 1}/{len(other)}"
        handler.begin(206, len(other) - first, ETag=etag_of(other), Content_Range=whole)
        handler.wfile.write(other[first:])

    return behave


def unsatisfiable(handler: Handler, body: bytes) -> None:
    handler.begin(416, 0, Content_Range="bytes */1")


def compressed(handler: Handler, body: bytes) -> None:
    packed = gzip.compress(body)
    handler.begin(200, len(packed), Content_Encoding="gzip")
    handler.wfile.write(packed)


def status(code: int, retry_after: str | None = None) -> Behaviour:
    def behave(handler: Handler, body: bytes) -> None:
        extra = {} if retry_after is None else {"Retry_After": retry_after}
        handler.begin(code, 0, **extra)

    return behave


def redirect(to: str) -> Behaviour:
    return lambda handler, _: handler.begin(302, 0, Location=to)
