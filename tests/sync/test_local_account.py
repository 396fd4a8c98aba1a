"""Without a Server the same cycle runs over the authority in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from clumsies.errors import ClumsiesError, SyncFailed
from clumsies.memory.drafts import DraftStore, StoreReceipt
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.operations import StoreOperation, StoreRequest
from clumsies.memory.projects import ProjectDirectory
from clumsies.server.local import LocalServer
from clumsies.server.memory.imports import ImportedText
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from clumsies.sync.accounts import Account
from clumsies.sync.remote import RemoteClient
from clumsies.sync.reviews import Reviews
from clumsies.sync.sessions import FixedSession
from clumsies.sync.synchroniser import Synchroniser
from tests.daemon.running import LONG_S
from tests.memory.local_memory import create, update
from tests.sync.fault_server import AsgiAnswers, FaultTransport
from tests.sync.homes import Clock

NAMES = ("one", "two")


class Alone:
    """One person without a Server, with two local projects."""

    def __init__(self, directory: Path):
        clock = Clock()
        self.server = LocalServer(directory / "authority.db", b"s" * 32, clock_ns=clock)
        self.answers = AsgiAnswers(self.server.app)
        self.database = LocalDatabase(directory / "data", clock_ns=clock)
        self.storage = ProjectStorage(directory / "cache")
        authority_of = ProjectDirectory(self.database).authority_of
        self.effective = EffectiveMemory(self.database, self.storage, authority_of)
        self.drafts = DraftStore(self.database, self.effective, clock_ns=clock)
        self.sync = Synchroniser(self.database, self.storage, clock_ns=clock)
        self.clients: dict[str, RemoteClient] = {}
        self.transports: dict[str, FaultTransport] = {}
        for name in NAMES:
            self.server.ensure_project(f"proj_{name}", f"org_{name}", name, "x")
            with self.database.writer() as connection:
                connection.execute(
                    "INSERT INTO local_projects VALUES (?, ?, ?, 'x')",
                    (f"proj_{name}", f"org_{name}", name),
                )
            session = FixedSession(LOCAL_AUTHORITY, self.server.token(f"org_{name}"))
            self.transports[name] = FaultTransport(self.answers)
            self.clients[name] = RemoteClient(session, transport=self.transports[name])
        self.sync.set_accounts(
            [
                Account(LOCAL_AUTHORITY, self.clients[name], f"proj_{name}", f"org_{name}")
                for name in NAMES
            ]
        )

    def store(self, name: str, op: StoreOperation) -> StoreReceipt:
        request = StoreRequest(project_id=f"proj_{name}", op=op, source="cli")
        return self.drafts.store_draft_operation(request)

    def contents(self, name: str) -> dict[str, str]:
        view = self.effective.view(f"proj_{name}")
        return {found.path: found.content for found in self.effective.resources(view)}

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.answers.close()
        self.server.close()
        self.database.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    made = Alone(tmp_path)
    yield made
    made.close()


def test_propose_review_and_merge_without_a_server(alone: Alone) -> None:
    alone.sync.run_once("proj_one")
    receipt = alone.store("one", create("n.md", "N"))
    alone.sync.run_once("proj_one")
    with alone.database.reader() as connection:
        [(server_id,)] = connection.execute("SELECT server_draft_id FROM local_drafts")
    reviews = Reviews(alone.clients["one"])
    review = reviews.submit([str(server_id)], None, None)
    reviews.merge(review.review_id)
    alone.sync.run_once("proj_one")
    assert alone.contents("one") == {"n.md": "N"}
    [found] = alone.effective.load("proj_one", ["n.md"])
    assert found.resource_id != receipt.draft_id
    assert found.draft_id is None
    assert alone.sync.status("proj_one").draft_sync.server_cursor is not None
    assert alone.sync.status("proj_two").draft_sync.server_cursor is None


def test_what_is_imported_is_there_after_a_cycle(alone: Alone) -> None:
    alone.server.import_texts("proj_one", "org_one", [ImportedText("a.md", "A")], False)
    alone.sync.run_once("proj_one")
    assert alone.contents("one") == {"a.md": "A"}
    receipt = alone.store(
        "one", update(alone.effective.load("proj_one", ["a.md"])[0].resource_id, "A2")
    )
    alone.sync.run_once("proj_one")
    assert alone.contents("one") == {"a.md": "A2"}
    assert alone.sync.status("proj_one").pending_operation_count == 0
    assert receipt.draft_id


class Stalled:
    """A Server that answers nothing until it is told to."""

    def __init__(self) -> None:
        self.asked, self.told = threading.Event(), threading.Event()

    def exchange(self, *_: object, **__: object) -> NoReturn:
        self.asked.set()
        assert self.told.wait(LONG_S)
        raise SyncFailed("server_request_failed", "It never answered.", {"reason": "timeout"})

    call = exchange


def test_a_local_project_never_waits_for_a_server(alone: Alone) -> None:
    stalled = Stalled()
    accounts = [
        Account(LOCAL_AUTHORITY, alone.clients[name], f"proj_{name}", f"org_{name}")
        for name in NAMES
    ]
    alone.sync.set_accounts([Account("https://far.example", stalled), *accounts])
    waiting = threading.Thread(target=lambda: suppressed(alone.sync.run_once))
    waiting.start()
    try:
        assert stalled.asked.wait(LONG_S)
        alone.store("one", create("n.md", "N"))
        alone.sync.run_once("proj_one")
        assert alone.sync.status("proj_one").pending_operation_count == 0
        assert alone.sync.status("proj_one").draft_sync.state == "idle"
        assert alone.sync.status().draft_sync.state == "syncing"
        alone.sync.set_accounts([Account("https://far.example", stalled), *accounts[:1]])
    finally:
        stalled.told.set()
        waiting.join()
    assert alone.sync.status().draft_sync.last_error == "server_request_failed"


def suppressed(call: Callable[[], object]) -> None:
    with suppress(ClumsiesError):
        call()


def test_a_tick_asks_only_a_project_that_has_something_to_send(alone: Alone) -> None:
    for name in NAMES:
        alone.sync.run_once(f"proj_{name}")
    asked = {name: len(alone.transports[name].script.requests) for name in NAMES}
    alone.sync.run_once()
    alone.store("two", create("n.md", "N"))
    alone.sync.run_once()
    now = {name: len(alone.transports[name].script.requests) for name in NAMES}
    assert now["one"] == asked["one"]
    assert now["two"] > asked["two"]
    assert alone.sync.status("proj_two").pending_operation_count == 0
