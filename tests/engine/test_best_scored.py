"""The listed head of a scored list: keys decide between equal scores, also at the cut."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.engine.lexical import best_scored

ROWS = 30


@pytest.fixture(scope="module")
def units() -> apsw.Connection:
    """Rows 1 to ROWS whose keys stand in another order than the rows."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE units(unit_rowid INTEGER PRIMARY KEY, unit_key TEXT)")
    keys = [(row, f"key-{row * 17 % ROWS:02d}") for row in range(1, ROWS + 1)]
    connection.executemany("INSERT INTO units VALUES (?, ?)", keys)
    return connection


@given(
    scores=st.lists(st.sampled_from([3.0, 2.0, 1.0, 0.5]), max_size=ROWS),
    limit=st.integers(1, ROWS + 5),
)
def test_the_head_is_that_of_the_whole_list_sorted(
    units: apsw.Connection, scores: list[float], limit: int
) -> None:
    ordered = sorted(scores, reverse=True)
    scored = list(enumerate(ordered, 1))
    keys = dict(units.execute("SELECT unit_rowid, unit_key FROM units"))
    whole = sorted(((row, keys[row], s) for row, s in scored), key=lambda r: (-r[2], r[1]))
    assert best_scored(units, scored, limit) == whole[:limit]
