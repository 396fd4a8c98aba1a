"""What every endpoint shares: the base of messages, bounded texts, pages and the error envelope."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

API_PREFIX = "/api/v1"
REQUEST_ID_HEADER = "x-request-id"
CLIENT_REQUEST_ID_HEADER = "x-clumsies-request-id"
MAX_BODY_BYTES = 10 * 1024 * 1024
DEFAULT_LIMIT = 50
MAX_LIMIT = 200

_PRINTED = r"^[^\x00-\x1f\x7f]*\Z"
WITHOUT_NUL = r"^[^\x00]*\Z"
Identifier = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.-]+\Z")]
"""An id that this system made. Opaque: nobody reads anything out of it."""
CommitId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Title = Annotated[str, Meta(min_length=1, max_length=300, pattern=_PRINTED)]
"""One line for people."""
Note = Annotated[str, Meta(max_length=65_536, pattern=WITHOUT_NUL)]
"""Several lines for people."""
Description = Annotated[str, Meta(max_length=4_096, pattern=WITHOUT_NUL)]
Version = Annotated[int, Meta(ge=0, le=2**53)]
"""The integer that a change must name; it grows with every change."""
Scope = Literal["org", "project"]


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a client sends."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a Server sends."""


class PageInfo(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """Where a list goes on; `next_cursor` is null at its end."""

    next_cursor: str | None = None
    has_more: bool = False


class ErrorBody(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A stable code, words for people, the request's id, and facts for programs."""

    code: str
    message: str
    request_id: str
    details: dict[str, Any] = {}


class ErrorEnvelope(Answer, frozen=True, kw_only=True):
    """The body of every answer that is a failure."""

    error: ErrorBody
