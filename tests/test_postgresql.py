"""The database server that other tests stand on: empty for each, and gone when its holder is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from tests.postgresql import PostgresqlCluster, program_directory
from tests.services import not_installed

WAIT_S = 60.0
HOLDER = """
import sys
from tests.postgresql import program_directory, running_cluster
with running_cluster(program_directory()) as cluster:
    print(cluster.socket_directory, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_an_empty_database(postgresql_url: str, turn: int) -> None:
    engine = create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE kept (id integer PRIMARY KEY)"))
    engine.dispose()


def test_databases_are_dropped_with_their_connections(
    postgresql_cluster: PostgresqlCluster,
) -> None:
    with postgresql_cluster.database() as first, postgresql_cluster.database() as second:
        names = [str(make_url(url).database) for url in (first, second)]
        left_open = postgresql_cluster.connect(names[0])
    try:
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("SELECT 1")
    finally:
        left_open.close()
    with postgresql_cluster.connect() as connection:
        there = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
    assert len(set(names)) == 2
    assert there.isdisjoint(names)


def test_the_server_ends_with_its_holder() -> None:
    """Even where the holder is killed, and has no turn to clean up."""
    if program_directory() is None:
        not_installed("PostgreSQL's server is not installed")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    with holder:
        assert holder.stdout is not None
        directory = Path(holder.stdout.readline().strip())
        server = int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        holder.send_signal(signal.SIGKILL)
    assert _within(lambda: not directory.exists())
    assert _within(lambda: not _runs(server))


def _within(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + WAIT_S
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    return happened()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
