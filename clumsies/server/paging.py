"""Lists that are cut by an offset: a cursor is the offset, encoded so that nobody counts on it."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select

from clumsies.api.common import DEFAULT_LIMIT, PageInfo
from clumsies.errors import InvalidRequest

_CURSOR = re.compile(r"offset:(0|[1-9][0-9]{0,9})")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Page:
    """`limit` rows after the first `offset`."""

    limit: int = DEFAULT_LIMIT
    offset: int = 0

    def rows(self, connection: Connection, query: Select[Any]) -> Sequence[RowMapping]:
        """The page's rows, and one more where there are more."""
        cut = query.limit(self.limit + 1).offset(self.offset)
        return connection.execute(cut).mappings().all()

    def of(self, found: Sequence[_Item]) -> tuple[Sequence[_Item], PageInfo]:
        """The page's part of what `rows` gave, and where the list goes on."""
        more = len(found) > self.limit
        cursor = write_cursor(self.offset + self.limit) if more else None
        return found[: self.limit], PageInfo(next_cursor=cursor, has_more=more)


def write_cursor(offset: int) -> str:
    """The cursor of an offset."""
    return base64.urlsafe_b64encode(f"offset:{offset}".encode("ascii")).decode("ascii")


def read_cursor(cursor: str | None) -> int:
    """The offset of a cursor, 0 for none; raises InvalidRequest for one that no list gave."""
    if cursor is None:
        return 0
    try:
        text = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        found = _CURSOR.fullmatch(text.decode("ascii"))
    except ValueError:
        found = None
    if found is None:
        raise InvalidRequest(
            "invalid_request", "The cursor is not one of this list; leave it out to begin anew."
        )
    return int(found[1])
