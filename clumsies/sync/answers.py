"""What a Server's answer means: its body within bounds, its value, or the error it stands for.

No text of an answer gets into an error, except the message of an envelope whose code is known: a
Server writes those for people. Anything else may come from a proxy, or quote what was sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from clumsies.api.common import MAX_BODY_BYTES, REQUEST_ID_HEADER, ErrorEnvelope
from clumsies.errors import ClumsiesError, SyncFailed, from_code

MAX_COMMIT_BODY_BYTES = 64 * 1024 * 1024
"""Of a commit's payload; every other answer has at most `MAX_BODY_BYTES`."""
MAX_RETRY_AFTER_S = 3_600.0
_MAX_MESSAGE = 1_000
_SERVER_CODES = frozenset(
    {
        "invalid_request",
        "invalid_json",
        "unauthorized",
        "forbidden",
        "not_found",
        "already_exists",
        "version_conflict",
        "reconciliation_required",
        "draft_already_current",
        "candidate_invalid",
        "precondition_failed",
        "oidc_not_configured",
        "oidc_unavailable",
        "oidc_code_exchange_failed",
        "oidc_id_token_invalid",
    }
)
"""Codes that a Server may use: no answer can claim that this machine's files are damaged."""
_TRANSIENT = frozenset(
    {"unreachable", "untrusted", "timeout", "connection_lost", "not_the_server", "closed"}
)
"""`details["reason"]` of a request that the Server did not answer, or not so that it was heard."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of any status; header names are lower-case, `body` is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


def retryable(error: BaseException) -> bool:
    """Whether the same request may succeed later: no answer was heard, or 408, 429 or >= 500."""
    if not isinstance(error, ClumsiesError):
        return False
    status = error.details.get("status")
    if isinstance(status, int):
        return retryable_status(status) or error.details.get("reason") in _TRANSIENT
    return error.code == "server_request_failed" and error.details.get("reason") in _TRANSIENT


def retryable_status(status: int) -> bool:
    """Whether an answer of that status says that the same request may succeed later."""
    return status in (408, 429) or status >= 500


def request_failed(
    reason: str, words: str, details: Mapping[str, object] | None = None
) -> SyncFailed:
    """A request that brought no usable answer; whether it took effect is unknown."""
    return SyncFailed("server_request_failed", words, {"reason": reason, **(details or {})})


def read_body(chunks: Iterable[bytes], encoding: str, limit: int) -> bytes:
    """The body of the chunks, unpacked as far as `limit` bytes and no further.

    Raises SyncFailed for one that is larger, packed otherwise than by gzip, or cut short.
    """
    parts: list[bytes] = []
    size = received = 0
    unpack = _unpacker(encoding)
    for chunk in chunks:
        received += len(chunk)
        part = chunk if unpack is None else _unpacked(unpack, chunk, limit - size + 1)
        size += len(part)
        if size > limit:
            raise request_failed(
                "too_large", f"The Server's answer has more than {limit} bytes; it was not read on."
            )
        parts.append(part)
    if unpack is not None and received and not unpack.eof:
        raise request_failed("connection_lost", "The Server's answer was cut short; try again.")
    return b"".join(parts)


def _unpacker(encoding: str) -> zlib._Decompress | None:
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(16 + zlib.MAX_WBITS)
    raise request_failed(
        "wrong_content", "The answer is packed in a way that was not asked for; check the proxy."
    )


def _unpacked(unpack: zlib._Decompress, chunk: bytes, limit: int) -> bytes:
    try:
        part = unpack.decompress(chunk, limit)
    except zlib.error:
        part, damaged = b"", True
    else:
        damaged = bool(unpack.unused_data)
    if damaged:
        raise request_failed("connection_lost", "The Server's answer came damaged; try again.")
    return part


def decode(response: Response, answer_type: type[T]) -> T:
    """The value of an answer that succeeded; raises SyncFailed for another body than JSON of it."""
    if answer_type is type(None):
        return answer_type()
    status: dict[str, object] = {"status": response.status}
    if not is_json(response):
        raise request_failed(
            "not_the_server",
            "Something other than a clumsies Server answered (a proxy or a sign-in page?); "
            "check the network and the Server's address.",
            status,
        )
    try:
        return msgspec.json.decode(response.body, type=answer_type)
    except (msgspec.ValidationError, RecursionError):
        reason, words = (
            "wrong_content",
            (
                "The Server's answer does not have the form that this version knows; update "
                "clumsies here or on the Server."
            ),
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without a length, a body that was cut looks whole until it is read.
        reason, words = "connection_lost", "The Server's answer came damaged; try again."
    # Outside of the handlers: the cause may quote the body.
    raise request_failed(reason, words, status)


def is_json(response: Response) -> bool:
    """Whether the answer says that it is JSON."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


def error_of(response: Response, now: float) -> ClumsiesError:
    """The error that an answer of a failed request stands for; `now` is the time of day in s.

    `details` has what the Server said beside `status`, `server_request_id` and, for 429 and 503,
    `retry_after_s`: how long the Server asks to wait.
    """
    facts: dict[str, object] = {"status": response.status}
    request_id = response.headers.get(REQUEST_ID_HEADER)
    if request_id is not None:
        facts["server_request_id"] = request_id[:128]
    if response.status in (429, 503):
        asked_s = retry_after_s(response.headers, now)
        if asked_s is not None:
            facts["retry_after_s"] = asked_s
    told = _told(response)
    if told is not None:
        message = "".join(c if c.isprintable() else " " for c in told.error.message)
        return from_code(told.error.code, message[:_MAX_MESSAGE], {**told.error.details, **facts})
    return SyncFailed("server_request_failed", _words(response.status), facts)


def has_envelope(response: Response) -> bool:
    """Whether the failure was told by a clumsies Server, and not by something in between."""
    return _envelope(response) is not None


def _told(response: Response) -> ErrorEnvelope | None:
    found = _envelope(response)
    if found is None or found.error.code not in _SERVER_CODES:
        return None
    if response.status >= 500 and not found.error.code.startswith("oidc_"):
        return None
    return found if 400 <= response.status < 600 else None


def _envelope(response: Response) -> ErrorEnvelope | None:
    if not is_json(response) or len(response.body) > MAX_BODY_BYTES:
        return None
    try:
        return msgspec.json.decode(response.body, type=ErrorEnvelope)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _words(status: int) -> str:
    if 300 <= status < 400:
        return f"The Server answered with a redirect ({status}); set the address it leads to."
    if status == 407:
        return "The proxy asks for a password (407); put it into the proxy's address."
    if status in (408, 429):
        return f"The Server asks to wait ({status}); try again later."
    if status >= 500:
        return f"The Server failed ({status}); try again later, or look at its log."
    return (
        f"The request was refused ({status}), and not in words of a clumsies Server; check its "
        "address and the proxies in between."
    )


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that Retry-After asks for, as a number or a date, at most an hour; else None."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(MAX_RETRY_AFTER_S, float(value[:9]))
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(MAX_RETRY_AFTER_S, max(0.0, moment.timestamp() - now))
