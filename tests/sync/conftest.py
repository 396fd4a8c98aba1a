from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sync.homes import Clock, Home, TestServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestServer]:
    made = TestServer(tmp_path / "server", Clock())
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path, server: TestServer) -> Iterator[Home]:
    made = Home(tmp_path / "home", server)
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, server: TestServer) -> Iterator[Home]:
    """Another machine of the same person."""
    made = Home(tmp_path / "other", server)
    yield made
    made.close()
