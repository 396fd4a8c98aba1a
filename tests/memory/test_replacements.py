"""Exact replacements against an oracle that looks at every position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import InvalidRequest
from clumsies.memory.operations import Replacement
from clumsies.memory.replacements import replace_text

TEXTS = st.text(alphabet="abü\n", max_size=12)
PAIRS = st.lists(st.tuples(st.text(alphabet="abü\n", max_size=4), TEXTS), max_size=4)


def batch(pairs: list[tuple[str, str]]) -> list[Replacement]:
    return [Replacement(old_text=old, new_text=new) for old, new in pairs]


def outcome(original: str, pairs: list[tuple[str, str]]) -> str | None:
    """The new text, or None with what is wrong where the batch is refused."""
    owner: list[int | None] = [None] * len(original)
    if not pairs or not all(old for old, _ in pairs):
        return None
    for number, (old, _) in enumerate(pairs):
        starts = [i for i in range(len(original)) if original[i : i + len(old)] == old]
        if len(starts) != 1:
            return None
        for position in range(starts[0], starts[0] + len(old)):
            if owner[position] is not None:
                return None
            owner[position] = number
    pieces = [
        original[i] if n is None else pairs[n][1] if i == 0 or owner[i - 1] != n else ""
        for i, n in enumerate(owner)
    ]
    result = "".join(pieces)
    return None if result == original else result


@given(TEXTS, PAIRS)
def test_a_batch_is_made_whole_or_refused(original: str, pairs: list[tuple[str, str]]) -> None:
    expected = outcome(original, pairs)
    if expected is None:
        with pytest.raises(InvalidRequest):
            replace_text(original, batch(pairs))
    else:
        assert replace_text(original, batch(pairs)) == expected
        assert replace_text(original, batch(pairs[::-1])) == expected


@pytest.mark.parametrize(
    ("original", "pairs", "code", "numbers"),
    [
        ("abc", [("x", "y")], "text_replacement_not_found", [1]),
        ("abc", [("a", "b"), ("B", "y")], "text_replacement_not_found", [2]),
        ("abab", [("ab", "y")], "text_replacement_ambiguous", [1]),
        ("aaa", [("aa", "y")], "text_replacement_ambiguous", [1]),
        ("abc", [("bc", "y"), ("ab", "y")], "text_replacement_overlap", [2, 1]),
        ("abc", [("abc", "y"), ("b", "y")], "text_replacement_overlap", [1, 2]),
        ("abc", [("b", "b")], "text_replacement_no_change", []),
        ("aab", [("aa", "a"), ("b", "ab")], "text_replacement_no_change", []),
    ],
)
def test_codes_and_numbers(
    original: str, pairs: list[tuple[str, str]], code: str, numbers: list[int]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace_text(original, batch(pairs))
    assert (caught.value.code, caught.value.details) == (code, {"replacements": numbers})


@pytest.mark.parametrize("pairs", [[], [("", "y")]])
def test_nothing_to_replace_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace_text("abc", batch(pairs))
    assert caught.value.code == "invalid_request"


def test_neighbours_do_not_overlap_and_new_text_is_not_searched() -> None:
    assert replace_text("abc", batch([("a", "b"), ("b", "a"), ("c", "cc")])) == "bacc"


def test_messages_never_hold_text() -> None:
    for pairs in ([("secret", "x")], [("s", "x")]):
        with pytest.raises(InvalidRequest) as caught:
            replace_text("classified", batch(pairs))
        assert "secret" not in caught.value.message
