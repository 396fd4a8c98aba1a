"""Ids typed by their beginning."""

from __future__ import annotations

import pytest

from clumsies.cli.short_ids import shortened, whole
from clumsies.errors import InvalidRequest

ONE = "draft_2b23c5eebfa84022ae3de2599bb4b3f1"
OTHER = "draft_2b23ffffbfa84022ae3de2599bb4b3f1"


@pytest.mark.parametrize("given", ["draft_2b23c5ee", "2b23c5ee", "2b23c", shortened(ONE), ONE])
def test_a_beginning_names_the_one_that_has_it(given: str) -> None:
    assert whole(given, lambda: [ONE, OTHER]) == ONE


def test_what_several_begin_with_names_none() -> None:
    with pytest.raises(InvalidRequest, match=OTHER):
        whole("2b23", lambda: [ONE, OTHER])
    assert whole("2b23", lambda: [ONE, ONE]) == ONE


@pytest.mark.parametrize("given", ["review_2b23c5ee", "ffff", "draft_nobody", "", "*", "2b2"])
def test_what_names_nothing_is_handed_on(given: str) -> None:
    assert whole(given, lambda: [ONE, OTHER]) == given


def test_a_whole_id_asks_nobody() -> None:
    def never() -> list[str]:
        raise AssertionError("asked")

    assert whole(ONE, never) == ONE


def test_ids_of_another_form_are_not_cut() -> None:
    assert shortened(ONE) == "draft_2b23c5ee"
    assert shortened("proj_alpha") == "proj_alpha"
