from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.samples import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "data")
    yield made
    made.database.close()
