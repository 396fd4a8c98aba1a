"""Exact text replacements: a batch that changes a text as a whole or not at all.

Every `old_text` is looked up in the original, never in what an earlier replacement made of it, so
the order of the batch means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from clumsies.errors import InvalidRequest
from clumsies.memory.operations import Replacement, check_replacements


def replace_text(original: str, replacements: Sequence[Replacement]) -> str:
    """The text with every replacement made.

    Raises InvalidRequest: text_replacement_not_found and _ambiguous where an `old_text` does not
    stand exactly once (occurrences may overlap), _overlap where two meet the same characters,
    _no_change where the result is the original. `details` name replacements from 1, never text.
    """
    check_replacements(replacements)
    spans = sorted(
        (*_span(original, replacement, number), number, replacement.new_text)
        for number, replacement in enumerate(replacements, 1)
    )
    pieces: list[str] = []
    position = 0
    previous = 0
    for start, end, number, new_text in spans:
        if start < position:
            raise _failed(
                "text_replacement_overlap",
                f"Replacements {previous} and {number} overlap; join them into one.",
                [previous, number],
            )
        pieces += (original[position:start], new_text)
        position, previous = end, number
    result = "".join((*pieces, original[position:]))
    if result == original:
        raise _failed(
            "text_replacement_no_change",
            "The replacements change nothing; there is nothing to store.",
            [],
        )
    return result


def _span(original: str, replacement: Replacement, number: int) -> tuple[int, int]:
    start = original.find(replacement.old_text)
    if start == -1:
        raise _failed(
            "text_replacement_not_found",
            f"old_text of replacement {number} is not in the text; load it again and quote it "
            "exactly, white space included.",
            [number],
        )
    if original.find(replacement.old_text, start + 1) != -1:
        raise _failed(
            "text_replacement_ambiguous",
            f"old_text of replacement {number} stands more than once in the text; quote more "
            "around it.",
            [number],
        )
    return start, start + len(replacement.old_text)


def _failed(code: str, message: str, numbers: list[int]) -> InvalidRequest:
    return InvalidRequest(code, message, {"replacements": numbers})
