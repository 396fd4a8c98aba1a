"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clumsies.models.manifest import COMPACT
from clumsies.models.runtime import ModelRuntime
from tests.engine.fake_models import ArithmeticModels


@pytest.fixture(scope="session")
def compact_models() -> Iterator[ModelRuntime]:
    """The real models of the `compact` profile."""
    runtime = ModelRuntime.for_profile(COMPACT, threads=2)
    yield runtime
    runtime.close()


@pytest.fixture
def models() -> Iterator[ArithmeticModels]:
    """A fresh arithmetic runtime: its call counts begin at zero."""
    runtime = ArithmeticModels()
    yield runtime
    runtime.close()
