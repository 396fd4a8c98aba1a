"""Two machines and their Server over PostgreSQL, all of them real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.team.machines import Machine
from tests.team.server_process import ServerProcess


@dataclass
class Team:
    """`ann` proposes, `olga` owns the organisation and merges; each has a network of her own."""

    server: ServerProcess
    ann: Machine
    olga: Machine


@pytest.fixture
def team(tmp_path: Path, postgresql_url: str) -> Iterator[Team]:
    server = ServerProcess(tmp_path / "server", postgresql_url)
    try:
        ann = Machine(tmp_path / "ann", server, server.member["token"])
        olga = Machine(tmp_path / "olga", server, server.owner["token"])
        yield Team(server, ann, olga)
        ann.stop()
        olga.stop()
    finally:
        server.end()
