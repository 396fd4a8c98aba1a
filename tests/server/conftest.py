"""A migrated database of each kind, two organisations in it, and clients of the application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from clumsies.server.acting import Acting, Principal
from clumsies.server.context import ServerContext, random_id
from clumsies.server.database import Database, sqlite_url
from clumsies.server.http.app import make_app
from clumsies.server.migrations import migrate
from tests.server.in_process import InProcess
from tests.server.world import World, make_world

START_NS = 1_780_000_000_000_000_000
ORIGIN = "https://memory.example"


class Clock:
    """Moves on by a millisecond with every look, and as far as a test says."""

    def __init__(self) -> None:
        self._ticks = count(START_NS, 1_000_000)
        self._added_ns = 0

    def __call__(self) -> int:
        return next(self._ticks) + self._added_ns

    def advance(self, seconds: float) -> None:
        self._added_ns += int(seconds * 1_000_000_000)


class NamedBearers:
    """A bearer is a user's name: `Bearer ann`."""

    def __init__(self, world: World):
        self._world = world

    def authenticate(self, bearer: str) -> Principal | None:
        return self._world.principal(bearer) if bearer in self._world.users else None


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "server" / "server.db")
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database, SQLite and PostgreSQL in turn."""
    made = Database(database_url)
    migrate(made)
    yield made
    made.close()


@pytest.fixture
def world(database: Database) -> World:
    """See tests.server.world."""
    return make_world(database)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def context(world: World, clock: Clock) -> ServerContext:
    """A Server over the world whose bearers are the users' names."""
    return ServerContext(world.database, NamedBearers(world), clock_ns=clock)


@pytest.fixture
def acting(world: World, clock: Clock) -> Callable[[str], Acting]:
    """Acts of a user by name, for tests of services below HTTP."""

    def make(user: str) -> Acting:
        return Acting(world.database, world.principal(user), clock, random_id, "req_test")

    return make


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as opened:
        yield opened


@pytest.fixture
def connect(portal: BlockingPortal) -> Iterator[Callable[..., httpx.Client]]:
    """Clients of any application: `connect(app, bearer="ann")`."""
    opened: list[httpx.Client] = []

    def make(app: Any, bearer: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        made = httpx.Client(transport=InProcess(app, portal), base_url=ORIGIN, headers=headers)
        opened.append(made)
        return made

    yield make
    for item in opened:
        item.close()


@pytest.fixture
def client(
    context: ServerContext, connect: Callable[..., httpx.Client]
) -> Callable[[str | None], httpx.Client]:
    """A client of one application by its user's name; None has no bearer."""
    app = make_app(context)
    return lambda user: connect(app, user)
