"""A stub of the daemon, and hosts that talk to a proxy in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.daemon_stub import DaemonStub
from tests.agent.host import Host, command, host


@pytest.fixture
def daemon() -> Iterator[DaemonStub]:
    stub = DaemonStub().start()
    yield stub
    stub.close()


@pytest.fixture
def absent() -> Iterator[DaemonStub]:
    """A daemon that is not running yet."""
    stub = DaemonStub()
    yield stub
    stub.close()


@pytest.fixture
def session(daemon: DaemonStub) -> Iterator[Host]:
    """A host that has shaken hands."""
    with host(command("--no-start", "--socket", str(daemon.path))) as started:
        started.shake_hands()
        yield started
