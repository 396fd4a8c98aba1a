from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.storage.local_database import LocalDatabase


@pytest.fixture
def database(tmp_path: Path) -> Iterator[LocalDatabase]:
    opened = LocalDatabase(tmp_path / "data")
    yield opened
    opened.close()
