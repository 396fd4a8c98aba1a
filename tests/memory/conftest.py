from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory.local_memory import LocalMemory, counted_ids


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[LocalMemory]:
    layer = LocalMemory(tmp_path, new_id=counted_ids())
    yield layer
    layer.close()
