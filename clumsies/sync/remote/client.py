"""The client of one Server. What else talks to a Server talks to it through this.

A request has one bound on its whole time, also where an answer comes a byte at a time: when it is
over, the connection is shut down under whatever waits for it. Each request in flight has a
connection of its own (a *lane*), so that it is known which one that is. Requests are never sent
twice by themselves, with one exception: after a 401, once, with new tokens.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from clumsies.api.common import (
    CLIENT_REQUEST_ID_HEADER,
    MAX_BODY_BYTES,
    REQUEST_ID_HEADER,
)
from clumsies.api.identity import TokenAnswer, TokenRefresh
from clumsies.errors import ClumsiesError, InvalidRequest, Refused
from clumsies.logs import EventLog, Level, route_of
from clumsies.sync.addresses import LOCAL_AUTHORITY_BASE, api_path, check_path, server_base
from clumsies.sync.answers import (
    Response,
    decode,
    error_of,
    has_envelope,
    request_failed,
)
from clumsies.sync.credentials import Session
from clumsies.sync.remote.lanes import KEEP_ALIVE_S, Lane, closed, open_lane
from clumsies.sync.sessions import Held, SessionSource, superseded

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
MAX_LANES = 16
"""Requests at once; one more waits for a free lane within its own time."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HEADER_NAME = re.compile(r"[a-z0-9-]{1,64}")
_TOKEN_PATH = api_path("auth", "token")

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
T = TypeVar("T")


class Patience(NamedTuple):
    """How long a request may take, in seconds; tests shorten it."""

    connect_s: float = CONNECT_TIMEOUT_S
    request_s: float = REQUEST_TIMEOUT_S


class RemoteClient:
    """Requests to the Server of `sessions`, from any thread; `close` ends those that run.

    A `transport` is used instead of the network, and closed with the client; it has to keep to the
    `read` timeout of a request by itself, as one bound on the whole. Raises
    InvalidRequest("invalid_config") for an address or a proxy that cannot be used.
    """

    def __init__(
        self,
        sessions: SessionSource,
        *,
        transport: httpx.BaseTransport | None = None,
        log: EventLog | None = None,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ):
        self.sessions = sessions
        if transport is None:
            self._base, self._on_this_machine = server_base(sessions.server_url)
        else:
            self._base, self._on_this_machine = LOCAL_AUTHORITY_BASE, True
        self._transport = transport
        self._log = log
        self._patience = patience or Patience()
        self._clock = clock
        self._wall_clock = wall_clock
        self._mutex = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_LANES)
        self._idle: list[Lane] = [self._new_lane()]
        self._busy: set[Lane] = set()
        self._closed = False
        self._renewing = threading.Lock()
        self._renewals: dict[Held, Future[Held]] = {}

    def __enter__(self) -> RemoteClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is in flight and close every connection."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            for lane in self._busy:
                lane.give_up()
        for lane in idle:
            lane.client.close()
        if self._transport is not None:
            self._transport.close()

    def call(self, method: str, path: str, answer: type[T], **request: Any) -> T:
        """The value of the answer to `request` (its arguments); `NoneType` for an answer without.

        Raises the error that an answer of failure stands for (`answers.error_of`).
        """
        return self.exchange(method, path, answer, **request)[0]

    def exchange(
        self, method: str, path: str, answer: type[T], **request: Any
    ) -> tuple[T, Response]:
        """As `call`, beside the answer itself: its status and headers."""
        response = self.request(method, path, **request)
        try:
            if not response.ok:
                raise error_of(response, self._wall_clock())
            return decode(response, answer), response
        except ClumsiesError as error:
            if response.ok:
                self._failed(error, "decode", method, path)
            raise

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | None] | None = None,
        json: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        signed: bool = True,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> Response:
        """The answer of any status to one request; redirects are answers too.

        `json` is encoded by msgspec, `content` is sent as it is; None values of `query` are left
        out. `signed` requests carry the session, and are refused where there is none; a 401 brings
        one rotation of the tokens and one repetition.
        Raises SyncFailed("server_request_failed") where no answer within `max_bytes` came whole
        (`answers.retryable` tells whether to try again), Refused("unauthorized") where nobody is
        signed in, Conflict("sync_session_changed"), CredentialsFailed, and InvalidRequest for a
        request that is never sent.
        """
        query_text = urlencode({k: v for k, v in (query or {}).items() if v is not None})
        joint = "&" if "?" in path else "?"
        target = f"{path}{joint}{query_text}" if query_text else path
        check_path(target)
        if method not in METHODS:
            raise InvalidRequest(
                "invalid_request", "The method must be GET, POST, PUT, PATCH or DELETE."
            )
        message = _Message(
            method,
            target,
            _checked_headers(headers or {}, json is not None),
            content if json is None else msgspec.json.encode(json),
            _checked_id(request_id),
            max_bytes,
        )
        if len(message.body or b"") > MAX_BODY_BYTES:
            raise InvalidRequest(
                "invalid_request",
                f"The request has more than {MAX_BODY_BYTES} bytes; send less at once.",
            )
        if not signed:
            return self._send(message, None)
        held = self.sessions.current()
        if held.session is None:
            raise Refused(
                "unauthorized", "Nobody is signed in to the Server; run `clumsies login`."
            )
        response = self._send(message, held.session)
        if response.status != 401 or held.session.refresh_token is None:
            return response
        return self._send(message, self._renewed(held).session)

    def revoke(self, session: Session) -> None:
        """Have the Server end a session that was never used here; raises what `call` raises."""
        message = _message("DELETE", api_path("auth", "session"), None)
        response = self._send(message, session)
        if not response.ok:
            raise error_of(response, self._wall_clock())

    def _renewed(self, held: Held) -> Held:
        """The session with newer tokens than `held`: another thread's, or fetched by one for all.

        Raises what that thread's request raised, for all that waited for it.
        """
        with self._renewing:
            now = self.sessions.current()
            if now.revision != held.revision:
                raise superseded()
            if now.session != held.session:
                return now
            renewal = self._renewals.get(held)
            mine = renewal is None
            if renewal is None:
                renewal = self._renewals[held] = Future()
        if mine:
            try:
                renewal.set_result(self._renew(held))
            except BaseException as error:
                renewal.set_exception(error)
            finally:
                with self._renewing:
                    del self._renewals[held]
        return renewal.result()

    def _renew(self, held: Held) -> Held:
        assert held.session is not None
        assert held.session.refresh_token is not None
        body = TokenRefresh(refresh_token=held.session.refresh_token)
        response = self._send(_message("POST", _TOKEN_PATH, body), None)
        # A refusal by something in between (a sign-in page of a network) costs nobody the session.
        if response.status in (400, 401, 403) and has_envelope(response):
            self.sessions.forget(held)
            if self.sessions.current().session is not None:
                raise superseded()
            raise Refused(
                "unauthorized",
                "The session with the Server has ended; sign in again with `clumsies login`.",
                {"status": response.status},
            )
        if not response.ok:
            raise error_of(response, self._wall_clock())
        tokens = decode(response, TokenAnswer)
        return self.sessions.rotate(
            held, Session(held.session.server_url, tokens.access_token, tokens.refresh_token)
        )

    def _send(self, message: _Message, session: Session | None) -> Response:
        started = self._clock()
        self._note("http_started", message, body_bytes=len(message.body or b""))
        try:
            response = self._exchanged(message, session, started + self._patience.request_s)
        except ClumsiesError as error:
            stage = "body" if error.details.get("reason") == "too_large" else "send"
            self._failed(error, stage, message.method, message.target, message.request_id)
            raise
        level: Level = "debug" if response.status < 400 else "info"
        self._note(
            "http_headers",
            message,
            "warning" if response.status >= 500 else level,
            status=response.status,
            elapsed_ms=round((self._clock() - started) * 1000),
            server_request_id=response.headers.get(REQUEST_ID_HEADER),
        )
        return response

    def _exchanged(self, message: _Message, session: Session | None, deadline: float) -> Response:
        headers = dict(message.headers)
        if session is not None:
            headers["authorization"] = f"Bearer {_checked_token(session.access_token)}"
        with self._lane(deadline) as lane:
            left_s = max(0.001, deadline - self._clock())
            request = lane.client.build_request(
                message.method,
                f"{self._base}{message.target}",
                headers=headers
                | {
                    CLIENT_REQUEST_ID_HEADER: message.request_id,
                    REQUEST_ID_HEADER: message.request_id,
                },
                content=message.body,
                timeout=httpx.Timeout(left_s, connect=min(left_s, self._patience.connect_s)),
            )
            return lane.exchange(request, message.max_bytes, left_s)

    @contextmanager
    def _lane(self, deadline: float) -> Iterator[Lane]:
        if not self._free.acquire(timeout=max(0.0, deadline - self._clock())):
            raise request_failed(
                "timeout", "Too many requests to the Server are running; try again."
            )
        try:
            with self._mutex:
                if self._closed:
                    raise closed()
                lane = self._idle.pop() if self._idle else self._new_lane()
                self._busy.add(lane)
            try:
                yield lane
            finally:
                for each in self._returned(lane):
                    each.client.close()
        finally:
            self._free.release()

    def _returned(self, lane: Lane) -> list[Lane]:
        """The lanes to be closed now that this one is idle: those that nobody used for a while.

        The last one used is taken first, so the others' connections would stay, half closed.
        """
        lane.used_at = self._clock()
        with self._mutex:
            self._busy.discard(lane)
            if self._closed:
                return [lane]
            old: list[Lane] = []
            if self._transport is None:  # Else all lanes share it, and closing one would close it.
                old = [each for each in self._idle if lane.used_at - each.used_at > KEEP_ALIVE_S]
            self._idle = [each for each in self._idle if each not in old] + [lane]
            return old

    def _new_lane(self) -> Lane:
        return open_lane(self._transport, use_proxies=not self._on_this_machine)

    def _note(
        self, event: str, message: _Message, level: Level = "debug", **fields: object
    ) -> None:
        if self._log is not None:
            self._log.emit(
                event,
                level,
                http_method=message.method,
                route=route_of(message.target),
                request_id=message.request_id,
                **fields,
            )

    def _failed(
        self,
        error: ClumsiesError,
        stage: str,
        method: str,
        path: str,
        request_id: str | None = None,
    ) -> None:
        if self._log is not None:
            self._log.failed(
                "http_failed",
                error,
                "warning",
                stage=stage,
                http_method=method,
                route=route_of(path),
                request_id=request_id,
            )


class _Message(NamedTuple):
    """A request without its signature, so that it can be sent again with another one."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    request_id: str
    max_bytes: int


def _message(method: str, path: str, json: object) -> _Message:
    """A request of the client's own."""
    body = None if json is None else msgspec.json.encode(json)
    headers = _checked_headers({}, body is not None)
    return _Message(method, path, headers, body, _checked_id(None), MAX_BODY_BYTES)


def _checked_token(token: str) -> str:
    if not all("!" <= character <= "~" for character in token):
        raise Refused(
            "unauthorized", "The session holds no usable token; sign in with `clumsies login`."
        )
    return token


def _checked_id(request_id: str | None) -> str:
    if request_id is None:
        return f"req_{uuid.uuid4().hex}"
    if _REQUEST_ID.fullmatch(request_id) is None:
        raise InvalidRequest(
            "invalid_request", "A request id has 1 to 128 of A-Z, a-z, 0-9 and `_.-`."
        )
    return request_id


def _checked_headers(headers: Mapping[str, str], has_json: bool) -> dict[str, str]:
    found = {"content-type": "application/json"} if has_json else {}
    for name, value in headers.items():
        lower = name.lower()
        fits = _HEADER_NAME.fullmatch(lower) and value.isascii() and value.isprintable()
        if not fits or lower in ("host", "content-length", "transfer-encoding", "authorization"):
            raise InvalidRequest(
                "invalid_request", "A header of the request cannot be sent; write it in plain text."
            )
        found[lower] = value
    return found
