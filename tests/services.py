"""Programs that some tests start: a database server, a Secret Service.

Where a program is not installed its tests are skipped; `CLUMSIES_TEST_SERVICES=required`, which
continuous integration sets, makes that a failure.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRED = os.environ.get("CLUMSIES_TEST_SERVICES", "") == "required"
"""Read before the run's own home takes every such variable out of the environment."""


def not_installed(reason: str) -> NoReturn:
    """Skip the running test, or fail it where the services are required."""
    if REQUIRED:
        pytest.fail(f"{reason}, and CLUMSIES_TEST_SERVICES=required", pytrace=False)
    pytest.skip(reason)
