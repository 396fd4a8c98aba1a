"""Every request of a cycle, with everything that can go wrong with it, before and after its effect.

One round stores, changes, gives up, receives and brings commits, so that a cycle makes every kind
of request; one of them goes wrong. Whatever it was: what was acknowledged is still seen here and is
at the Server at most once; the installed Ref and its files are sound; and a cycle without faults
brings both machines and the Server together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from clumsies.errors import ClumsiesError
from clumsies.memory.refs import project_key, read_ref
from clumsies.storage.generations import GenerationStore
from clumsies.sync.accounts import Account
from clumsies.sync.remote import Patience, RemoteClient
from clumsies.sync.sessions import FixedSession
from tests.memory.local_memory import create, discard, update
from tests.server.memories import put
from tests.sync.fault_server import (
    Answer,
    AsgiAnswers,
    Asked,
    Fault,
    FaultServer,
    Reply,
    body_of,
    gzip_bomb,
    network_faults,
    redirect,
    refusals,
    refused_url,
    retyped,
    status,
    without_header,
)
from tests.sync.homes import PROJECT, SERVER_URL, Home, TestServer, altered

API = "/api/v1"
REQUESTS = {
    "me": ("GET", f"{API}/me"),
    "create": ("POST", f"{API}/drafts"),
    "append": ("POST", f"{API}/draft-operation-batches"),
    "discard": ("DELETE", f"{API}/drafts/*"),
    "read": ("GET", f"{API}/drafts/*"),
    "feed": ("GET", f"{API}/draft-events"),
    "org state": ("GET", f"{API}/org/commit-state"),
    "project state": ("GET", f"{API}/projects/{PROJECT}/commit-state"),
    "commit": ("GET", f"{API}/commits/*"),
}
MIB = 1024 * 1024


def empty(value: Any) -> object:
    return {}


def listed(value: Any) -> object:
    return [value]


def nothing(value: Any) -> object:
    return "null"


def text_reply(body: bytes) -> Callable[[Reply | None], Reply]:
    return lambda reply: Reply(200, {"content-type": "application/json"}, body)


BODIES = [
    *(body_of(size, after=after) for size in (10 * MIB, 11 * MIB) for after in (False, True)),
    gzip_bomb(200 * MIB, after=True),
    redirect("https://elsewhere.example/"),
    retyped("text/html"),
    without_header("etag"),
    without_header("content-type"),
    status(400),
    status(400, after=True),
    Fault("no body", True, text_reply(b"")),
    Fault("not JSON", True, text_reply(b"{")),
    Fault("not UTF-8", True, text_reply(b'"\xff"')),
    Fault("deep", True, text_reply(b"[" * 100_000)),
    altered("an empty object", empty),
    altered("a list", listed),
    altered("another type", nothing),
]
GROUPS = {"network": network_faults(), "refusals": refusals(), "bodies": BODIES}


class Rounds:
    """Two machines and the Server, and what everybody has acknowledged so far."""

    def __init__(self, home: Home, other: Home, server: TestServer):
        self.home, self.other, self.server = home, other, server
        self.number = 0
        self.team: dict[str, str] = {"team.md": "team 0"}
        self.drafted: dict[str, str] = {}
        self.said: list[str] = []
        server.publish(put("team.md", "team 0"))
        home.run()
        self.long = self.new(home, "long.md", "long 0")
        self.spare = self.new(home, "spare.md", "spare 0")
        home.run()
        other.run()

    def new(self, machine: Home, path: str, text: str) -> str:
        """A draft of a new memory; its id, which is also the memory's."""
        receipt = machine.store(create(path, text))
        self.drafted[path] = text
        self.said.append(text)
        return receipt.draft_id

    def begin(self) -> None:
        """Have something ready for every kind of request."""
        self.number += 1
        n = self.number
        self.new(self.other, f"theirs {n}.md", f"theirs {n}")
        self.other.run()
        self.server.publish(put("team.md", f"team {n}"))
        self.home.store(discard(self.spare))
        del self.drafted[f"spare{self.suffix(n - 1)}.md"]
        self.home.store(update(self.long, f"long {n}"))
        self.drafted["long.md"] = f"long {n}"
        self.said.append(f"long {n}")
        self.spare = self.new(self.home, f"spare{self.suffix(n)}.md", f"spare {n}")

    @staticmethod
    def suffix(n: int) -> str:
        return f" {n}" if n else ""

    def check_nothing_lost(self) -> None:
        """What was stored here is seen here, the installed memory is whole, nothing is doubled."""
        found = self.home.contents()
        mine = {p: t for p, t in self.drafted.items() if not p.startswith("theirs")}
        assert {path: found.get(path) for path in mine} == mine
        assert found["team.md"] in (f"team {self.number - 1}", f"team {self.number}")
        place = self.home.storage.location(SERVER_URL, PROJECT)
        with self.home.database.reader() as connection:
            ref = read_ref(connection, project_key(PROJECT))
        assert ref is not None
        GenerationStore(place.generations, PROJECT).verify_files(ref.commit_id)
        said = Counter(self.server.texts())
        assert max(said.values()) == 1
        assert set(said) <= set(self.said)

    def check_together(self) -> None:
        """Everybody has everything, once."""
        wanted = {**self.drafted, "team.md": f"team {self.number}"}
        assert self.home.contents() == wanted
        assert Counter(self.server.texts()) == Counter(self.said)
        status_now = self.home.sync.status(PROJECT)
        assert status_now.pending_operation_count == status_now.failed_operation_count == 0
        assert status_now.draft_sync.last_error is status_now.commit_sync.last_error is None


@pytest.fixture
def rounds(home: Home, other: Home, server: TestServer) -> Rounds:
    return Rounds(home, other, server)


TOGETHER = [
    ("me",),
    ("read",),
    ("feed",),
    ("create", "org state"),
    ("append", "project state"),
    ("discard", "commit"),
]
"""Requests of one channel go wrong together with some of the other: each fails for itself."""


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("names", TOGETHER, ids=" and ".join)
def test_a_cycle_in_which_a_request_goes_wrong(
    rounds: Rounds, names: tuple[str, ...], group: str
) -> None:
    script = rounds.home.script
    for fault in GROUPS[group]:
        rounds.begin()
        acted = len(script.acted)
        for name in names:
            method, path = REQUESTS[name]
            script.plan(fault, method=method, path=path)
        with suppress(ClumsiesError):
            rounds.home.sync.run_once()
        assert len(script.acted) == acted + len(names), str(fault)
        rounds.check_nothing_lost()
        if rounds.home.sync.status().failed_operation_count:
            rounds.home.sync.retry()
        rounds.home.run()
        rounds.check_together()
    rounds.other.run()
    assert rounds.other.contents() == rounds.home.contents()


SOCKET_FAULTS = [fault for fault in network_faults() if fault.breaks is not None]


@pytest.fixture
def wired(rounds: Rounds) -> Iterator[tuple[Rounds, FaultServer]]:
    """The same with real sockets between home and Server, and little patience."""
    answers = AsgiAnswers(rounds.server.app)
    with FaultServer(answers) as between:
        yield rounds, between
    answers.close()


def over_sockets(home: Home, url: str, patience: Patience) -> RemoteClient:
    client = RemoteClient(FixedSession(url, "ann"), patience=patience)
    home.sync.set_accounts([Account(SERVER_URL, client)])
    return client


@pytest.mark.parametrize("request_name", ["create", "append", "discard", "commit"])
def test_the_network_itself_fails(wired: tuple[Rounds, FaultServer], request_name: str) -> None:
    rounds, between = wired
    method, path = REQUESTS[request_name]
    for fault in SOCKET_FAULTS:
        rounds.begin()
        with over_sockets(rounds.home, between.url, Patience(1.0, 1.0)):
            between.script.plan(fault, method=method, path=path)
            with suppress(ClumsiesError):
                rounds.home.sync.run_once()
            rounds.check_nothing_lost()
        between.script.clear()
        with over_sockets(rounds.home, between.url, Patience(30.0, 30.0)):
            rounds.home.run()
        rounds.check_together()


def test_nobody_listens(rounds: Rounds) -> None:
    rounds.begin()
    unheard = over_sockets(rounds.home, refused_url(), Patience(5.0, 5.0))
    with unheard, pytest.raises(ClumsiesError) as caught:
        rounds.home.run()
    assert caught.value.code == "server_request_failed"
    rounds.check_nothing_lost()
    rounds.home.sync.set_accounts([rounds.home.account])
    rounds.home.run()
    rounds.check_together()


class Killed(BaseException):
    """The process ends here."""


class DiesAt:
    """Answers, and at the request of this number (from 1) does what is asked and ends the
    process."""

    def __init__(self, answer: Answer, number: int):
        self._answer = answer
        self._left = number

    def __call__(self, asked: Asked) -> Reply:
        reply = self._answer(asked)
        self._left -= 1
        if self._left == 0:
            raise Killed
        return reply

    @property
    def survived(self) -> bool:
        return self._left > 0


def test_a_process_that_ends_between_any_two_requests_loses_nothing(rounds: Rounds) -> None:
    """The cycle ends with its first request, then with its second, and so on."""
    home, number = rounds.home, 0
    survived = False
    while not survived:
        number += 1
        rounds.begin()
        dying = home.transport.answer = DiesAt(rounds.server.answers, number)
        with suppress(Killed):
            home.sync.run_once()
        survived = dying.survived
        home.transport.answer = rounds.server.answers
        home.restart()
        rounds.check_nothing_lost()
        home.run()
        rounds.check_together()
    assert number > len(REQUESTS)
