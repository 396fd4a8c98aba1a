"""Where a page of a list ended: base64url without padding of a JSON object."""

from __future__ import annotations

import base64
import binascii

import msgspec

from clumsies.errors import InvalidRequest


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last row of a page: rows are listed by time, then id, both falling."""

    created_at: str
    run_id: str


def encode_cursor(cursor: Cursor) -> str:
    """The cursor as a caller gets it."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode("ascii").rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """The cursor that a caller sent back; raises InvalidRequest for anything else."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidRequest(
            "invalid_request", "The cursor is not one a list gave; send that, or none."
        ) from error
