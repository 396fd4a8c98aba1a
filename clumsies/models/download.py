"""One file's transfer from the hub: resumed where it stopped, kept only when it is the pinned one.

A later attempt asks for the rest with `Range` and `If-Range`: an answer with the whole file
starts again, an answer that does not fit is refused. What an answer says of itself is judged
before it costs the bytes that are there already.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlsplit

import httpx

from clumsies.config import HubSettings
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import HUB_ENDPOINT, Artifact, ModelFile
from clumsies.models.part import Part, write_all
from clumsies.models.status import Cause, Patience, TransferFailed
from clumsies.models.verification import Cancelled

MAX_REDIRECTS = 5
CANCEL_POLL_S = 0.1


class Hub:
    """A connection to the hub or its mirror; one thread at a time, closed by `with`.

    Proxies and certificates are those that the platform's variables name. Raises InvalidRequest
    for an endpoint or a token that cannot be used.
    """

    def __init__(
        self,
        settings: HubSettings,
        patience: Patience | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ):
        self._patience = patience or Patience()
        self._clock = clock
        self._wall_clock = wall_clock
        endpoint = _parse(settings.endpoint or HUB_ENDPOINT)
        self._host = endpoint.host
        # httpx logs addresses: a password must not stay in one.
        self._endpoint = str(endpoint.copy_with(userinfo=b"")).rstrip("/")
        # Of each request to the endpoint; httpx drops it when a redirect leaves the origin.
        self._headers = {
            "Accept-Encoding": "identity",
            **_authorization(settings.token, endpoint),
        }
        self._client = httpx.Client(
            verify=_certificates(),
            follow_redirects=True,
            max_redirects=MAX_REDIRECTS,
            timeout=httpx.Timeout(self._patience.read_s, connect=self._patience.connect_s),
        )

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def fetch(
        self,
        artifact: Artifact,
        file: ModelFile,
        target: Path,
        *,
        on_bytes: Callable[[int], None],
        cancel: threading.Event,
    ) -> None:
        """Bring `file` to `target`, whose directory exists; `on_bytes` gets its bytes so far.

        Raises TransferFailed, IoFailed, or Cancelled; each leaves a part that is worth resuming,
        or none, and nothing at `target`.
        """
        part = Part(file, target)
        transfer = _Transfer(
            self._host, part, on_bytes, cancel, self._patience, self._clock, self._wall_clock
        )
        have = part.length()
        if cancel.is_set():
            raise Cancelled
        if have < file.size_bytes:
            url = (
                f"{self._endpoint}/{quote(artifact.repository)}"
                f"/resolve/{quote(artifact.revision)}/{quote(file.path)}"
            )
            headers = self._headers | part.range_headers(have)
            try:
                with self._client.stream("GET", url, headers=headers) as response:
                    transfer.receive(response, have)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if cancel.is_set():
                    raise Cancelled from None
                raise transfer.network_failure(error) from error
        if not part.keep(cancel):
            raise transfer.failure("wrong_content", "sent other bytes than the pinned ones for")


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The judgment and the reception of one answer."""

    host: str
    part: Part
    on_bytes: Callable[[int], None]
    cancel: threading.Event
    patience: Patience
    clock: Callable[[], float]
    wall_clock: Callable[[], float]

    def receive(self, response: httpx.Response, have: int) -> None:
        """Bring the part to its full length from an answer to a request that had `have` bytes."""
        start = self._start(response, have)
        with _interrupted_by(self.cancel, response):
            count = self._append(response, start)
        size = self.part.file.size_bytes
        if count > size:
            self.part.discard()
            raise self.failure("wrong_size", f"sent more than {size} bytes for")
        if count < size:
            if self.cancel.is_set():
                raise Cancelled
            raise self.failure("connection", "ended early while sending")

    def _start(self, response: httpx.Response, have: int) -> int:
        """The offset that the body continues from, once the answer fits what was asked."""
        status, headers = response.status_code, response.headers
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            self.part.discard()
            raise self.failure("range_refused", "refused to continue")
        if status not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            raise self._status_failure(response)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise self.failure("wrong_content", "sent re-encoded bytes for")
        if headers.get("content-type", "").lower().startswith("text/html"):
            raise self.failure(
                "wrong_content", "sent a web page (of a proxy or a login?) instead of"
            )
        if status == httpx.codes.PARTIAL_CONTENT:
            if not self.part.is_continued_by(headers, have):
                self.part.discard()
                raise self.failure("range_refused", "sent another range than asked for of")
            return have
        size, length = str(self.part.file.size_bytes), headers.get("content-length")
        if length not in (None, size):
            raise self.failure("wrong_size", f"offers {length} instead of {size} bytes for")
        self.part.begin(headers.get("etag"))
        return 0

    def _append(self, response: httpx.Response, start: int) -> int:
        """The part's length after the body; larger than the file's as soon as there is more."""
        have, size = start, self.part.file.size_bytes
        window_end, window_have = self.clock() + self.patience.window_s, have
        self.on_bytes(have)
        with self.part.appending() as stream:
            for chunk in response.iter_raw():
                if self.cancel.is_set():
                    raise Cancelled
                if have + len(chunk) > size:
                    return have + len(chunk)
                write_all(stream, chunk)
                have += len(chunk)
                self.on_bytes(have)
                if self.clock() >= window_end:
                    if have < size and have - window_have < self.patience.window_bytes:
                        raise self.failure("stalled", "all but stopped sending")
                    window_end, window_have = self.clock() + self.patience.window_s, have
        return have

    def failure(self, cause: Cause, deed: str) -> TransferFailed:
        """The failure whose message says what the host did to this file."""
        return TransferFailed(cause, f"{self.host} {deed} {self.part.file.path}")

    def network_failure(self, error: httpx.HTTPError | httpx.InvalidURL) -> TransferFailed:
        """The failure without the exception's own text, which may quote what was sent."""
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return self.failure("connection", "cannot be reached for")
        if isinstance(error, httpx.TimeoutException):
            return self.failure("stalled", "stopped answering while sending")
        if isinstance(error, httpx.TooManyRedirects):
            return self.failure("connection", "redirects in a circle for")
        kind = type(error).__name__
        return self.failure("connection", f"broke the connection ({kind}) while sending")

    def _status_failure(self, response: httpx.Response) -> TransferFailed:
        status = response.status_code
        deed = f"answered {status} for"
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            deed = f"refuses access ({status}; is HF_TOKEN right?) to"
        elif status == httpx.codes.NOT_FOUND:
            deed = f"does not have ({status}) the pinned revision of"
        message = f"{self.host} {deed} {self.part.file.path}"
        asked_s = retry_after_s(response.headers, self.wall_clock())
        return TransferFailed("http_status", message, asked_s)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or a date; None without one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)


def _parse(endpoint: str) -> httpx.URL:
    """The endpoint's address; only its host may be shown in messages."""
    try:
        split = urlsplit(endpoint)
        if split.scheme in ("http", "https") and split.hostname:
            return httpx.URL(endpoint)
    except (ValueError, httpx.InvalidURL):
        pass
    raise InvalidRequest(
        "invalid_config", "HF_ENDPOINT is no http or https address; correct or unset it."
    )


def _authorization(token: str | None, endpoint: httpx.URL) -> dict[str, str]:
    """The token's header, else that of a name and password in the endpoint, else none."""
    if token is None:
        if not endpoint.userinfo:
            return {}
        pair = f"{endpoint.username}:{endpoint.password}".encode()
        return {"Authorization": f"Basic {b64encode(pair).decode()}"}
    if not all("!" <= character <= "~" for character in token):
        raise InvalidRequest(
            "invalid_config", "HF_TOKEN holds characters that no token has; set it again."
        )
    return {"Authorization": f"Bearer {token}"}


@cache
def _certificates() -> ssl.SSLContext:
    """The platform's trusted certificates; reading them takes longer than a small file."""
    return httpx.create_ssl_context()


@contextmanager
def _interrupted_by(cancel: threading.Event, response: httpx.Response) -> Iterator[None]:
    """Let `cancel` end a read that waits for bytes, by shutting the socket down."""
    network = response.extensions.get("network_stream")
    connection = None if network is None else network.get_extra_info("socket")
    if not isinstance(connection, socket.socket):
        yield
        return
    done = threading.Event()

    def watch(connection: socket.socket) -> None:
        while not done.wait(CANCEL_POLL_S):
            if cancel.is_set():
                with suppress(OSError):
                    # Past an SSLSocket's own shutdown, which is not safe beside a reader.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                return

    watcher = threading.Thread(
        target=watch, args=(connection,), name="model-download-cancel", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
