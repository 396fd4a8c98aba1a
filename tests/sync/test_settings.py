from __future__ import annotations

import pytest

from clumsies.config import SyncSettings, sync_settings
from clumsies.errors import InvalidRequest


def test_the_interval_and_the_switch() -> None:
    assert sync_settings({}) == SyncSettings(30_000, True)
    assert sync_settings({"CLUMSIES_SYNC_INTERVAL_MS": " 1 "}) == SyncSettings(1, True)
    assert sync_settings({"CLUMSIES_SYNC_ENABLED": "False"}) == SyncSettings(30_000, False)
    assert sync_settings({"CLUMSIES_SYNC_ENABLED": "on"}).enabled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INTERVAL_MS", "0"),
        ("INTERVAL_MS", "-1"),
        ("INTERVAL_MS", "1.5"),
        ("INTERVAL_MS", "soon"),
        ("INTERVAL_MS", "9" * 30),
        ("ENABLED", "maybe"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"CLUMSIES_SYNC_{name}"):
        sync_settings({f"CLUMSIES_SYNC_{name}": value})
