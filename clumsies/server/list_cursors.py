"""Lists page by page: rows in order of a time and an id, the latest first."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, or_

from clumsies.server.refusals import invalid


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    time: str
    name: str


def write_cursor(time: str, name: str) -> str:
    """Where a list goes on after the row with this time and id."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Cursor(time, name))).decode("ascii")


def is_after(
    cursor: str, time: ColumnElement[Any], name: ColumnElement[Any]
) -> ColumnElement[bool]:
    """What holds for the rows after the cursor; raises InvalidRequest for one no list gave."""
    found = _read(cursor)
    return or_(time < found.time, and_(time == found.time, name < found.name))


def _read(cursor: str) -> _Cursor:
    try:
        text = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        found = msgspec.json.decode(text, type=_Cursor)
        if "\x00" in found.time + found.name:
            raise ValueError("a NUL")
        (found.time + found.name).encode("utf-8")
    except (ValueError, msgspec.DecodeError) as error:
        raise invalid("The cursor is not one of this list; leave it out to begin anew.") from error
    return found
