"""One connection at most, and an answer within one bound on its whole time."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from clumsies.errors import InvalidRequest, SyncFailed
from clumsies.sync.answers import Response, read_body, request_failed
from clumsies.version import VERSION

KEEP_ALIVE_S = 2.0
"""Shorter than servers keep an idle connection, so that none is used while it is being closed."""


class Lane:
    """A client with at most one connection, which can be shut down from another thread."""

    def __init__(self, client: httpx.Client, *, timed: bool = True):
        """`timed` where nothing else ends an exchange whose time is over."""
        self.client = client
        self._timed = timed
        self.used_at = 0.0
        self._mutex = threading.Lock()
        self._stream: Any = None
        self._turn = 0
        self._is_cut = False
        self._is_over = False

    def exchange(self, request: httpx.Request, max_bytes: int, left_s: float) -> Response:
        """The whole answer within `left_s`; raises SyncFailed."""
        with self._mutex:
            self._turn += 1
            self._is_cut = self._is_over
            if self._is_over:
                raise closed()
            # A timer that comes too late must not cut the next request.
            timer = threading.Timer(left_s, self._cut, (self._turn,))
        request.extensions["trace"] = self._traced
        timer.daemon = True
        if self._timed:
            timer.start()
        try:
            response = self.client.send(request, stream=True)
            try:
                return self._received(response, max_bytes)
            finally:
                response.close()
        except httpx.LocalProtocolError:
            # Its text may quote a header.
            raise request_failed("wrong_request", "The request could not be written.") from None
        except httpx.HTTPError as error:
            raise self._network_failure(error) from error
        finally:
            timer.cancel()

    def give_up(self) -> None:
        """End the request that runs, now or within a moment, and take no other."""
        with self._mutex:
            self._is_over = True
            self._cut_now()

    def _cut(self, turn: int) -> None:
        with self._mutex:
            if turn == self._turn:
                self._cut_now()

    def _cut_now(self) -> None:
        """Shut the connection down: what waits for it stops waiting."""
        self._is_cut = True
        self._shut_down()

    def _received(self, response: httpx.Response, max_bytes: int) -> Response:
        promised = response.headers.get("content-length", "")
        if promised.isascii() and promised.isdigit() and int(promised[:18]) > max_bytes:
            raise request_failed(
                "too_large", f"The Server's answer has more than {max_bytes} bytes; it was refused."
            )
        encoding = response.headers.get("content-encoding", "").strip().lower()
        body = read_body(response.iter_raw(), encoding, max_bytes)
        with self._mutex:
            if self._is_cut:  # A body without a length seems to end where it was cut.
                raise _timed_out()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status_code, headers, body)

    def _traced(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            with self._mutex:
                self._stream = info.get("return_value")
                if self._is_cut:
                    self._shut_down()

    def _shut_down(self) -> None:
        connection = None if self._stream is None else self._stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                # Past an SSLSocket's own shutdown, which is not safe beside a reader.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _network_failure(self, error: httpx.HTTPError) -> SyncFailed:
        """The failure without the exception's own text, which may quote addresses."""
        with self._mutex:
            is_cut = self._is_cut
        if is_cut or (
            isinstance(error, httpx.TimeoutException)
            and not isinstance(error, httpx.ConnectTimeout)
        ):
            return _timed_out()
        if isinstance(error, httpx.ProxyError):
            return request_failed("unreachable", "The proxy refuses the connection; check it.")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            if _mistrusted(error):
                return request_failed(
                    "untrusted",
                    "The Server's certificate is not trusted on this machine; install its "
                    "authority, or name it in SSL_CERT_FILE.",
                )
            return request_failed(
                "unreachable", "The Server cannot be reached; check the network and its address."
            )
        return request_failed(
            "connection_lost", "The connection to the Server broke off; try again."
        )


def open_lane(transport: httpx.BaseTransport | None, *, use_proxies: bool) -> Lane:
    """A lane over `transport`, or over the network; raises InvalidRequest for a proxy variable."""
    try:
        client = httpx.Client(
            transport=transport,
            verify=certificates(),
            trust_env=use_proxies,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEP_ALIVE_S),
            headers={
                "accept": "application/json",
                "accept-encoding": "gzip" if transport is None else "identity",
                "user-agent": f"clumsies/{VERSION}",
            },
        )
    except (ImportError, ValueError, httpx.InvalidURL):
        raise InvalidRequest(
            "invalid_config",
            "A proxy that the environment names cannot be used (http and https ones can); "
            "correct HTTPS_PROXY or ALL_PROXY.",
        ) from None
    return Lane(client, timed=transport is None)


@cache
def certificates() -> ssl.SSLContext:
    """The platform's trusted certificates, read once: there is one client for each lane."""
    return httpx.create_ssl_context()


def _mistrusted(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _timed_out() -> SyncFailed:
    return request_failed("timeout", "The Server did not answer in time; try again.")


def closed() -> SyncFailed:
    return request_failed("closed", "The connection to the Server is being closed; try again.")
