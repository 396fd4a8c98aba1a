"""Ids as people read and type them: whole in files and pipes, their beginning on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable

from clumsies.errors import InvalidRequest

SHOWN_DIGITS = 8
_WHOLE = re.compile(r"[a-z]+_[0-9a-f]{32}")
_PART = re.compile(r"([a-z]+_)?[0-9a-f]{4,32}")


def shown(whole: str) -> str:
    """The id for a table's line."""
    return shortened(whole) if sys.stdout.isatty() else whole


def shortened(whole: str) -> str:
    """The id with the digits that tell it from others, in all likelihood."""
    kind, _, digits = whole.rpartition("_")
    return f"{kind}_{digits[:SHOWN_DIGITS]}" if _WHOLE.fullmatch(whole) else whole


def whole(given: str, known: Callable[[], Iterable[str]]) -> str:
    """The known id that begins so, with or without its kind; what names none is handed on.

    `known` is asked for beginnings alone. Raises InvalidRequest where several begin so.
    """
    if _WHOLE.fullmatch(given) or not _PART.fullmatch(given):
        return given
    found = sorted(
        {name for name in known() if given in (name[: len(given)], _digits(name, given))}
    )
    if len(found) > 1:
        raise InvalidRequest(
            "invalid_request", f"{given} is the beginning of {', '.join(found[:5])}; type more."
        )
    return found[0] if found else given


def _digits(name: str, given: str) -> str:
    return name.rpartition("_")[2][: len(given)]
