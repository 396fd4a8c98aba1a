"""Connections that open a new file at the same time: all of them are served."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clumsies.server.database import Database, sqlite_url
from clumsies.storage.database import connect

ROUNDS = 40
AT_ONCE = 4


def local(path: Path) -> None:
    connect(path).close()


def of_a_server(path: Path) -> None:
    database = Database(sqlite_url(path))
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    database.close()


@pytest.mark.parametrize("opened", [local, of_a_server])
def test_a_new_file_is_opened_by_many_at_once(
    tmp_path: Path, opened: Callable[[Path], None]
) -> None:
    failures: list[Exception] = []
    for number in range(ROUNDS):
        path = tmp_path / str(number) / "new.sqlite"
        start = threading.Barrier(AT_ONCE)

        def work(path: Path = path, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                opened(path)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
