"""What every test shares: a home of its own, no settings of the machine, hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgresql import postgresql_cluster, postgresql_url

__all__ = ["postgresql_cluster", "postgresql_url"]

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "default", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "fuzz", max_examples=2_000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile("default")


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Directories of this run alone; nothing of the user's is read or written."""
    saved = dict(os.environ)
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("CLUMSIES_", "HF_")):
            del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["CLUMSIES_HOME"] = str(home / "clumsies")
    yield
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def shared_data() -> Path:
    """The evaluation sets beside the checkout; the test is skipped where there are none."""
    data = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the shared evaluation data is not beside this checkout")
    return data
