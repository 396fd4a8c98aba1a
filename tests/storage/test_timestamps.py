from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import InvalidRequest
from clumsies.storage.timestamps import nanoseconds, rfc3339, row_time

TIMES = st.integers(min_value=-(10**18), max_value=4 * 10**18)


@given(TIMES)
def test_every_nanosecond_comes_back(time_ns: int) -> None:
    assert nanoseconds(rfc3339(time_ns)) == time_ns


@given(TIMES, TIMES)
def test_row_times_sort_as_times_do(first_ns: int, second_ns: int) -> None:
    first, second = row_time(first_ns), row_time(second_ns)
    assert len(first) == 27
    assert (first < second) == (first_ns // 1000 < second_ns // 1000)


def test_forms() -> None:
    assert rfc3339(1_767_323_045_000_000_000) == "2026-01-02T03:04:05Z"
    assert rfc3339(1_767_323_045_120_000_000) == "2026-01-02T03:04:05.120Z"
    assert rfc3339(1_767_323_045_000_000_009) == "2026-01-02T03:04:05.000000009Z"
    assert row_time(1_767_323_045_000_000_009) == "2026-01-02T03:04:05.000000Z"
    assert nanoseconds("2026-01-02t05:04:05.5+02:00") == 1_767_323_045_500_000_000


@pytest.mark.parametrize(
    "text",
    ["", "2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05.Z"],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        nanoseconds(text)
