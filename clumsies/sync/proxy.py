"""Requests that a local client has the daemon send to the Server: which may pass, and what returns.

The client never sees a token, and the Server sees only what the list of headers lets through. An
answer of failure is an answer. Where the Server is away, a GET is answered from what was heard
before, marked `x-clumsies-cache: stale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from clumsies.api.common import (
    API_PREFIX,
    CLIENT_REQUEST_ID_HEADER,
    MAX_BODY_BYTES,
    REQUEST_ID_HEADER,
)
from clumsies.errors import ClumsiesError, InvalidRequest
from clumsies.logs import EventLog, route_of
from clumsies.sync.addresses import check_path
from clumsies.sync.answers import Response, request_failed, retryable, retryable_status
from clumsies.sync.remote import METHODS, RemoteClient
from clumsies.sync.response_cache import ResponseCache

FORWARDED_HEADERS = frozenset(
    {"accept", "content-type", "idempotency-key", "if-match", "if-none-match"}
)
"""Beside `x-clumsies-request-id`, which becomes the request's own id."""
RETURNED_HEADERS = ("content-type", "etag", REQUEST_ID_HEADER)
CACHE_HEADER = "x-clumsies-cache"


@dataclass(frozen=True, slots=True)
class Proxied:
    """An answer of any status, as a local client gets it."""

    status: int
    headers: dict[str, str]
    body: str = field(repr=False)


def server_request(
    client: RemoteClient,
    cache: ResponseCache | None,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
    log: EventLog | None = None,
) -> Proxied:
    """The Server's answer to a client's request; `cache` is None for the authority in-process.

    Raises InvalidRequest for a request that may not pass, and what `RemoteClient.request` raises
    where no answer came and none is cached.
    """
    _check(method, path, body)
    named = {name.lower(): value for name, value in (headers or {}).items()}
    if body is not None:
        named.setdefault("content-type", "application/json")
    request_id = named.get(CLIENT_REQUEST_ID_HEADER)
    epoch = 0 if cache is None else cache.epoch
    failure: ClumsiesError | None = None
    response: Response | None = None
    try:
        response = client.request(
            method,
            path,
            headers={name: named[name] for name in FORWARDED_HEADERS if name in named},
            content=None if body is None else body.encode(),
            request_id=request_id,
        )
        _require_no_page(response)
    except ClumsiesError as error:
        failure = error
    if cache is not None and method == "GET":
        if failure is None and response is not None and not retryable_status(response.status):
            cache.keep(epoch, path, response)
        elif failure is None or retryable(failure):
            stale = cache.find(epoch, path)
            if stale is not None:
                _note(log, path, stale, request_id)
                return _proxied(stale, {CACHE_HEADER: "stale"})
    if failure is not None or response is None:
        assert failure is not None
        raise failure
    return _proxied(response, {})


def _check(method: str, path: str, body: str | None) -> None:
    check_path(path)
    if method not in METHODS:
        raise InvalidRequest(
            "invalid_request", "The method must be GET, POST, PUT, PATCH or DELETE."
        )
    family = unquote(path.partition("?")[0].removeprefix(f"{API_PREFIX}/")).partition("/")[0]
    if family.lower() == "auth" or not family:
        raise InvalidRequest(
            "invalid_request",
            "Tokens do not pass here; sign in and out with `clumsies login` and `clumsies logout`.",
        )
    if body is not None and method == "GET":
        raise InvalidRequest("invalid_request", "A GET has no body; leave it out.")
    if body is not None:
        try:
            size = len(body.encode())
        except UnicodeEncodeError:
            raise InvalidRequest(
                "invalid_request", "The body is no text that UTF-8 can hold; correct it."
            ) from None
        if size > MAX_BODY_BYTES:
            raise InvalidRequest(
                "invalid_request",
                f"The body has more than {MAX_BODY_BYTES} bytes; send less at once.",
            )


def _require_no_page(response: Response) -> None:
    """A page with a success is that of a network which asks who one is."""
    if response.ok and response.headers.get("content-type", "").lower().startswith("text/html"):
        raise request_failed(
            "not_the_server",
            "A web page answered instead of the Server (a sign-in page of this network?); "
            "check the network.",
            {"status": response.status},
        )


def _proxied(response: Response, more: Mapping[str, str]) -> Proxied:
    try:
        body = response.body.decode("utf-8")
    except UnicodeDecodeError:
        raise request_failed(
            "wrong_content", "The Server's answer is not UTF-8 and was not passed on."
        ) from None
    kept = {n: response.headers[n] for n in RETURNED_HEADERS if n in response.headers}
    return Proxied(response.status, {**kept, **more}, body)


def _note(log: EventLog | None, path: str, stale: Response, request_id: str | None) -> None:
    if log is not None:
        log.emit(
            "http_cache_fallback",
            "warning",
            route=route_of(path),
            http_method="GET",
            status=stale.status,
            request_id=request_id,
        )
