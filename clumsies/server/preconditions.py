"""The two kinds of `If-Match`: an integer version, and the ETag of a Ref."""

from __future__ import annotations

import re

from clumsies.errors import InvalidRequest

REF_NONE = '"ref-none"'
"""The ETag of a Ref that names no commit."""
_INTEGER = re.compile(r'(")?(0|[1-9][0-9]{0,15})(?(1)")')
_COMMIT = re.compile(r'"([0-9a-f]{64})"')


def integer_if_match(header: str | None) -> int:
    """The version that `If-Match` names, with or without quotes; raises InvalidRequest."""
    if header is None:
        raise InvalidRequest(
            "invalid_request", "This change needs the header If-Match with the version it is for."
        )
    found = _INTEGER.fullmatch(header.strip(" \t"))
    if found is None:
        raise InvalidRequest(
            "invalid_request", 'If-Match must be the integer version, as `7` or `"7"`.'
        )
    return int(found[2])


def ref_if_match(header: str | None) -> str | None:
    """The commit that `If-Match` names, None for the empty Ref; raises InvalidRequest.

    Only a strong, quoted ETag is one: 64 hexadecimal digits or `"ref-none"`.
    """
    if header is None:
        raise InvalidRequest(
            "invalid_request", "This change needs the header If-Match with the Ref's ETag."
        )
    text = header.strip(" \t")
    found = _COMMIT.fullmatch(text)
    if found is None and text != REF_NONE:
        raise InvalidRequest(
            "invalid_request",
            'If-Match must be the Ref\'s ETag: 64 hexadecimal digits in quotes, or "ref-none".',
        )
    return None if found is None else found[1]
