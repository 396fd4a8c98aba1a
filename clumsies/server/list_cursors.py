"""Lists page by page: rows in order of a time and an id, the latest first."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, or_

from clumsies.api.common import PageInfo
from clumsies.server.refusals import invalid


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    time: str
    name: str


def rows_of_page(
    connection: Connection,
    query: Select[Any],
    keys: tuple[ColumnElement[Any], ColumnElement[Any]],
    cursor: str | None,
    limit: int,
) -> tuple[Sequence[RowMapping], PageInfo]:
    """The query's rows of one page, `keys` being its columns of time and id, and how to go on.

    Raises InvalidRequest for a cursor that no list gave.
    """
    time, name = keys
    if cursor is not None:
        query = query.where(_is_after(cursor, time, name))
    query = query.order_by(time.desc(), name.desc()).limit(limit + 1)
    rows = connection.execute(query).mappings().all()
    page, more = rows[:limit], len(rows) > limit
    following = _write(page[-1][time], page[-1][name]) if more else None
    return page, PageInfo(next_cursor=following, has_more=more)


def _write(time: str, name: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Cursor(time, name))).decode("ascii")


def _is_after(
    cursor: str, time: ColumnElement[Any], name: ColumnElement[Any]
) -> ColumnElement[bool]:
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
