"""Cached answers: what is kept, how much, for whom, and that nothing outlives its session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.logs import EventLog, LogFile, WorkerLog
from clumsies.storage.database import only_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.sync import response_cache
from clumsies.sync.answers import Response
from clumsies.sync.credentials import Session
from clumsies.sync.response_cache import MAX_ENTRY_BYTES, ResponseCache
from clumsies.sync.sessions import FixedSession, KeyringSession
from tests.sync.samples import Keyring

URL = "https://memory.example.org"
JSON = {"content-type": "application/json", "etag": '"1"', "x-request-id": "req_1"}
ENVELOPE = b'{"error":{"code":"not_found","message":"m","request_id":"r","details":{}}}'


@pytest.fixture
def database(tmp_path: Path) -> Iterator[LocalDatabase]:
    database = LocalDatabase(tmp_path / "data")
    yield database
    database.close()


@pytest.fixture
def sessions() -> KeyringSession:
    return KeyringSession(URL, Keyring(Session(URL, "a", "r")))


@pytest.fixture
def cache(database: LocalDatabase, sessions: KeyringSession) -> Iterator[ResponseCache]:
    cache = ResponseCache(database, sessions)
    yield cache
    cache.close()


def answer(body: bytes = b"{}", status: int = 200, **headers: str) -> Response:
    return Response(status, {**JSON, **headers}, body)


def rows(database: LocalDatabase) -> int:
    with database.reader() as connection:
        return int(only_row(connection, "SELECT count(*) FROM server_response_cache")[0])


def test_an_answer_is_found_at_once_and_after_it_was_written(
    cache: ResponseCache, database: LocalDatabase
) -> None:
    assert cache.keep(cache.epoch, "/api/v1/me", answer(b'{"a":1}'))
    for _ in range(2):
        found = cache.find(cache.epoch, "/api/v1/me")
        assert found == Response(
            200, {"content-type": "application/json", "etag": '"1"'}, b'{"a":1}'
        )
        cache.flush()
    assert rows(database) == 1
    assert cache.find(cache.epoch, "/api/v1/me?limit=1") is None


@pytest.mark.parametrize(
    ("response", "kept"),
    [
        (answer(), True),
        (answer(status=206), True),
        (answer(ENVELOPE, 404), True),
        (answer(b"{}", 404), False),
        (answer(b"", 304), False),
        (answer(ENVELOPE, 403), False),
        (answer(ENVELOPE, 500), False),
        (Response(200, {"content-type": "text/html"}, b"<p>"), False),
        (Response(200, {}, b"{}"), False),
        (answer(b"x" * MAX_ENTRY_BYTES), True),
        (answer(b"x" * (MAX_ENTRY_BYTES + 1)), False),
    ],
)
def test_only_small_answers_of_the_server_itself_are_kept(
    cache: ResponseCache, response: Response, kept: bool
) -> None:
    assert cache.keep(cache.epoch, "/api/v1/me", response) is kept
    assert (cache.find(cache.epoch, "/api/v1/me") is not None) is kept


def test_the_oldest_give_way_by_count(
    database: LocalDatabase, sessions: KeyringSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10_000))
    cache = ResponseCache(database, sessions, clock_ns=lambda: next(ticks) * 1_000_000)
    for number in range(520):
        assert cache.keep(cache.epoch, f"/api/v1/drafts/{number}", answer())
        if number % 10 == 9:
            cache.flush()
    cache.close()
    assert rows(database) == 512
    assert cache.find(cache.epoch, "/api/v1/drafts/7") is None
    assert cache.find(cache.epoch, "/api/v1/drafts/8") is not None


def test_the_oldest_give_way_by_size(
    database: LocalDatabase, sessions: KeyringSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_cache, "MAX_TOTAL_BYTES", 10_000)
    ticks = iter(range(10_000))
    cache = ResponseCache(database, sessions, clock_ns=lambda: next(ticks) * 1_000_000)
    for number in range(10):
        cache.keep(cache.epoch, f"/api/v1/drafts/{number}", answer(b"x" * 3_000))
        cache.flush()
    cache.close()
    assert rows(database) == 3
    assert cache.find(cache.epoch, "/api/v1/drafts/9") is not None


def test_what_the_writer_cannot_keep_up_with_is_not_kept(
    cache: ResponseCache, database: LocalDatabase
) -> None:
    with database.writer():  # Nobody else can write now.
        found = [cache.keep(cache.epoch, f"/api/v1/drafts/{n}", answer()) for n in range(40)]
        assert sum(found) == 16
        assert cache.keep(cache.epoch, "/api/v1/drafts/0", answer(b"[]")), "a newer one replaces"
    cache.flush()
    newer = cache.find(cache.epoch, "/api/v1/drafts/0")
    assert newer is not None
    assert newer.body == b"[]"


def test_a_change_of_the_session_forgets_everything(
    cache: ResponseCache, database: LocalDatabase, sessions: KeyringSession
) -> None:
    before = cache.epoch
    cache.keep(before, "/api/v1/me", answer())
    cache.flush()
    cache.keep(before, "/api/v1/projects", answer())
    sessions.replace(Session(URL, "other", "other"))
    assert rows(database) == 0
    for epoch in (before, cache.epoch):
        assert cache.find(epoch, "/api/v1/me") is None
        assert cache.find(epoch, "/api/v1/projects") is None
    assert not cache.keep(before, "/api/v1/me", answer()), "asked by who was signed in before"
    cache.flush()
    assert rows(database) == 0


def test_a_change_while_the_writer_writes_leaves_nothing(
    cache: ResponseCache, database: LocalDatabase, sessions: KeyringSession
) -> None:
    for turn in range(20):
        cache.keep(cache.epoch, f"/api/v1/drafts/{turn}", answer())
        other = threading.Thread(target=cache.flush)
        other.start()
        sessions.replace(Session(URL, f"a{turn}", "r"))
        other.join(10)
        assert rows(database) == 0


def test_rows_that_could_not_be_deleted_are_not_found(
    cache: ResponseCache, database: LocalDatabase, sessions: KeyringSession
) -> None:
    cache.keep(cache.epoch, "/api/v1/me", answer())
    cache.flush()
    with database.writer() as connection:
        connection.execute(
            "CREATE TRIGGER no_delete BEFORE DELETE ON server_response_cache "
            "BEGIN SELECT raise(ABORT, 'no'); END"
        )
    sessions.replace(None)
    assert rows(database) == 1
    assert cache.find(cache.epoch, "/api/v1/me") is None
    with database.writer() as connection:
        connection.execute("DROP TRIGGER no_delete")
    cache.keep(cache.epoch, "/api/v1/projects", answer())
    cache.flush()
    assert rows(database) == 1
    assert cache.find(cache.epoch, "/api/v1/me") is None


def test_entries_outlive_the_process_but_not_the_session(
    database: LocalDatabase, sessions: KeyringSession
) -> None:
    def cached(by: FixedSession | KeyringSession) -> bool:
        cache = ResponseCache(database, by)
        found = cache.find(cache.epoch, "/api/v1/me") is not None
        cache.keep(cache.epoch, "/api/v1/me", answer())
        cache.close()
        return found

    assert not cached(sessions)
    assert cached(sessions)
    assert not cached(FixedSession(URL, "token of one"))
    assert cached(FixedSession(URL, "token of one"))
    assert not cached(FixedSession(URL, "token of another"))
    assert not cached(FixedSession("https://elsewhere", "token of another"))


def test_a_write_that_fails_is_logged_and_the_next_one_is_tried(
    database: LocalDatabase, sessions: KeyringSession, tmp_path: Path
) -> None:
    log = EventLog(LogFile(tmp_path / "daemon.log"))
    with database.writer() as connection:
        connection.execute(
            "CREATE TRIGGER no_insert BEFORE INSERT ON server_response_cache "
            "BEGIN SELECT raise(ABORT, 'no'); END"
        )
    cache = ResponseCache(database, sessions, log=WorkerLog(log, "response_cache"))
    cache.keep(cache.epoch, "/api/v1/me", answer())
    cache.close()
    assert '"event":"worker_failed"' in (tmp_path / "daemon.log").read_text()
    with database.writer() as connection:
        connection.execute("DROP TRIGGER no_insert")
    cache = ResponseCache(database, sessions)
    cache.keep(cache.epoch, "/api/v1/me", answer())
    cache.close()
    assert rows(database) == 1
