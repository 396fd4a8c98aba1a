"""RFC 3339 times in UTC, to the nanosecond and back without loss.

Rows of the local database carry microseconds in a fixed width, so that text order is time order.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from clumsies.errors import InvalidRequest

_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def row_time(time_ns: int) -> str:
    """The time as rows carry it: `2026-01-31T09:05:00.000123Z`, always 27 characters."""
    return (_EPOCH + timedelta(microseconds=time_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339(time_ns: int) -> str:
    """The time with as few groups of three decimals as it needs: none, 3, 6 or 9."""
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z" if digits else f"{text}Z"


def nanoseconds(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 time; raises InvalidRequest for anything else."""
    found = _FORM.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        second, fraction, zone = found.groups()
        zone = "+00:00" if zone in "Zz" else zone
        moment = datetime.fromisoformat(second.upper() + zone)
    except ValueError as error:
        raise InvalidRequest(
            "invalid_request", "A time is not in the form of RFC 3339; send it with a zone."
        ) from error
    whole = (moment - _EPOCH) // timedelta(seconds=1)
    return whole * _SECOND_NS + int((fraction or "0").ljust(9, "0"))
