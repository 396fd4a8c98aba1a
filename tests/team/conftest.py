"""Two machines and their Server over PostgreSQL, all of them real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.team.cut_network import Network
from tests.team.machines import Machine
from tests.team.server_process import ServerProcess


@dataclass
class Team:
    """`ann` proposes; her network can be cut. `olga` owns the organisation and merges."""

    server: ServerProcess
    network: Network
    ann: Machine
    olga: Machine


@pytest.fixture
def team(tmp_path: Path, postgresql_url: str) -> Iterator[Team]:
    server = ServerProcess(tmp_path / "server", postgresql_url)
    try:
        network = Network(server.port)
        ann = Machine(tmp_path / "ann", server, server.member["token"], network.url)
        olga = Machine(tmp_path / "olga", server, server.owner["token"])
        yield Team(server, network, ann, olga)
        ann.stop()
        olga.stop()
        network.close()
    finally:
        server.end()
