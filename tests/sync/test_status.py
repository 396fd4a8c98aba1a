"""What people are told of synchronization, and what the worker does by itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clumsies.errors import ClumsiesError
from clumsies.logs import EventLog, LogFile
from clumsies.sync.synchroniser import Synchroniser
from clumsies.sync.worker import SyncWorker
from tests.memory.local_memory import create
from tests.server.memories import put
from tests.sync.fault_server import Asked, Reply, reset, status
from tests.sync.homes import PROJECT, Home, TestServer

WAIT_S = 30.0


def test_nothing_was_tried_yet(home: Home) -> None:
    found = home.sync.status()
    assert found.draft_sync.state == found.commit_sync.state == "idle"
    assert found.draft_sync.last_attempt_at is found.last_success_at is None
    assert found.commit_sync.server_cursor is None


def test_a_success_is_stamped(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A")
    home.run()
    home.store(create("n.md", "N"))
    assert home.sync.status().draft_sync.state == "queued"
    assert home.sync.status().pending_operation_count == 1
    home.run()
    found = home.sync.status(PROJECT)
    assert (found.draft_sync.state, found.commit_sync.state) == ("idle", "idle")
    assert found.draft_sync.server_cursor == "1"
    view = home.effective.view(PROJECT)
    assert found.commit_sync.server_cursor == view.commit_id
    assert found.last_success_at == min(
        str(found.draft_sync.last_success_at), str(found.commit_sync.last_success_at)
    )
    assert str(found.draft_sync.last_attempt_at) < str(found.draft_sync.last_success_at)


def test_a_success_is_not_stamped_while_something_waits(home: Home) -> None:
    home.run()
    before = home.sync.status().draft_sync.last_success_at
    home.store(create("n.md", "N"))
    home.script.plan(reset(), method="POST")
    with pytest.raises(ClumsiesError):
        home.run()
    found = home.sync.status()
    assert found.draft_sync.state == "retrying"
    assert found.draft_sync.last_success_at == before
    assert found.draft_sync.last_error == "server_request_failed"
    assert found.pending_operation_count == 1
    assert found.commit_sync.state == "idle"


def test_a_refusal_is_counted(home: Home) -> None:
    home.run()
    home.store(create("n.md", "N"))
    home.script.plan(status(403), method="POST")
    home.run()
    found = home.sync.status()
    assert found.draft_sync.state == "failed"
    assert (found.pending_operation_count, found.failed_operation_count) == (0, 1)


def test_drafts_behind_and_in_conflict_are_counted(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(create("n.md", "N"))
    home.run()
    server.publish(put("a.md", "A2"))
    home.run()
    assert home.sync.status().behind_draft_count == 1
    with home.database.writer() as connection:
        connection.execute("UPDATE local_drafts SET reconciliation = 'conflicts'")
    assert home.sync.status().reconciliation_conflict_count == 1
    assert home.draft(receipt.draft_id).draft.freshness == "behind"


def test_a_channel_at_work_says_so(home: Home, server: TestServer) -> None:
    seen: list[tuple[str, str]] = []

    def note(asked: Asked) -> Reply:
        found = home.sync.status()
        seen.append((found.draft_sync.state, found.commit_sync.state))
        return server.answers(asked)

    home.transport.answer = note
    home.run()
    assert seen == [
        ("syncing", "syncing"),
        ("syncing", "idle"),
        ("idle", "syncing"),
        ("idle", "syncing"),
    ]


def test_the_worker_runs_at_once_on_a_store_and_on_a_retry(home: Home, server: TestServer) -> None:
    done = threading.Semaphore(0)
    home.sync = Synchroniser(
        home.database, home.storage, interval_ms=3_600_000, changed=done.release
    )
    home.sync.set_accounts([home.account])
    home.sync.start()
    try:
        assert done.acquire(timeout=WAIT_S)
        home.store(create("n.md", "N"))
        home.sync.notify(PROJECT)
        wait_until(done, lambda: server.texts() == ["N"])
        home.script.plan(status(403), method="POST")
        home.store(create("m.md", "M"))
        home.sync.notify(PROJECT)
        wait_until(done, lambda: home.sync.status().failed_operation_count == 1)
        assert home.sync.retry().started
        wait_until(done, lambda: sorted(server.texts()) == ["M", "N"])
    finally:
        assert home.sync.stop(WAIT_S)
    assert not home.sync.retry().started


def wait_until(done: threading.Semaphore, holds: object) -> None:
    """Until it holds after a cycle; a cycle that comes late is waited for."""
    for _ in range(10):
        if holds():  # type: ignore[operator]
            return
        assert done.acquire(timeout=WAIT_S)
    raise AssertionError("it does not come to hold")


def test_the_worker_outlives_what_nobody_thought_of(
    home: Home, server: TestServer, tmp_path: Path
) -> None:
    log = EventLog(LogFile(tmp_path / "daemon.log"))
    done = threading.Semaphore(0)
    home.sync = Synchroniser(
        home.database, home.storage, interval_ms=3_600_000, changed=done.release, log=log
    )
    home.sync.set_accounts([home.account])
    wrong = [True]

    def answer(asked: Asked) -> Reply:
        if wrong:
            wrong.pop()
            raise RuntimeError("secret words")
        return server.answers(asked)

    home.transport.answer = answer
    home.sync.start()
    try:
        assert done.acquire(timeout=WAIT_S)
        home.store(create("n.md", "N"))
        home.sync.notify()
        wait_until(done, lambda: server.texts() == ["N"])
    finally:
        assert home.sync.stop(WAIT_S)
    text = (tmp_path / "daemon.log").read_text()
    assert '"worker_failed"' in text
    assert '"worker_recovered"' in text
    assert "secret words" not in text


def test_ticks_come_at_the_interval_and_stores_between_them() -> None:
    """The clock is the test's: a wake before the interval's end is no tick."""
    ticks: list[bool] = []
    ran = threading.Semaphore(0)
    now = [0.0]

    def cycle(tick: bool) -> None:
        ticks.append(tick)
        ran.release()

    worker = SyncWorker(cycle, 1_000_000, clock=lambda: now[0])
    worker.start()
    assert ran.acquire(timeout=WAIT_S)
    worker.wake()
    assert ran.acquire(timeout=WAIT_S)
    now[0] = 1_000.0
    worker.wake()
    assert ran.acquire(timeout=WAIT_S)
    worker.wake(as_tick=True)
    assert ran.acquire(timeout=WAIT_S)
    worker.wake()
    assert ran.acquire(timeout=WAIT_S)
    assert worker.stop(WAIT_S)
    assert ticks == [True, False, True, True, False]
    assert not worker.is_running
