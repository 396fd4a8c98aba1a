from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon that the tests of a module share."""
    running = Daemon(tmp_path_factory.mktemp("d"))
    yield running
    assert running.end() == 0


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test may kill."""
    running = Daemon(tmp_path / "d")
    yield running
    running.end()
