"""Machines of one person beside a whole Server: each home has its own database and files.

`ann` works in the project alpha of the organisation acme; `owner` merges. The Server is the real
application over SQLite, in this process, behind a script of faults.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from clumsies.api.drafts import DraftDetail, DraftPage, ResourceState
from clumsies.memory.draft_rows import DraftDetail as LocalDraft
from clumsies.memory.draft_rows import get_draft, list_drafts
from clumsies.memory.drafts import DraftStore, StoreReceipt
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.operations import (
    Create,
    Rename,
    StoreOperation,
    StoreRequest,
    Update,
    decode_operation,
)
from clumsies.memory.projects import ProjectDirectory
from clumsies.server.acting import Acting
from clumsies.server.context import ServerContext, random_id
from clumsies.server.database import Database, sqlite_url
from clumsies.server.http.app import make_app
from clumsies.server.memory.publication import ResourceChange
from clumsies.server.migrations import migrate
from clumsies.server.schema import draft_operations, draft_revisions, drafts, project_members
from clumsies.storage.database import all_rows
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import ProjectStorage
from clumsies.sync.accounts import Account
from clumsies.sync.remote import Patience, RemoteClient
from clumsies.sync.reviews import Reviews
from clumsies.sync.sessions import FixedSession
from clumsies.sync.synchroniser import Synchroniser
from tests.server.conftest import NamedBearers
from tests.server.memories import check_everything, paths, publish, put, ref_at
from tests.server.world import BEGAN, World, make_world
from tests.sync.fault_server import AsgiAnswers, Fault, FaultTransport, Reply

SERVER_URL = "https://memory.example"
PROJECT = "proj_alpha"
ORG = "org_acme"
START_NS = 1_780_000_000_000_000_000


class Clock:
    """Every reading is a millisecond after the one before, whoever reads."""

    def __init__(self) -> None:
        self._readings = itertools.count(START_NS, 1_000_000)

    def __call__(self) -> int:
        return next(self._readings)


class _Past(msgspec.Struct):
    """An operation as a draft had it before a rebase."""

    operation: StoreOperation


class TestServer:
    """The authority, and what people do there without a daemon."""

    __test__ = False

    def __init__(self, directory: Path, clock: Clock):
        self.clock = clock
        self.database = Database(sqlite_url(directory / "server.db"))
        migrate(self.database)
        self.world: World = make_world(self.database)
        context = ServerContext(self.database, NamedBearers(self.world), clock_ns=clock)
        self.app = make_app(context)
        self.answers = AsgiAnswers(self.app)

    def client(self, user: str, transport: FaultTransport | None = None) -> RemoteClient:
        return RemoteClient(
            FixedSession(SERVER_URL, user),
            transport=transport or FaultTransport(self.answers),
            patience=Patience(2.0, 10.0),
        )

    def acting(self, user: str = "owner") -> Acting:
        return Acting(self.database, self.world.principal(user), self.clock, random_id, "req_test")

    def publish(self, *changes: ResourceChange) -> None:
        """Change the team's memory past every review."""
        publish(self.acting(), *changes, carrying=PROJECT)

    def publish_texts(self, **texts: str) -> None:
        """`publish_texts(a="text")` publishes `a.md` as `mem_a_md`."""
        self.publish(*(put(f"{name}.md", text) for name, text in texts.items()))

    @property
    def memory(self) -> dict[str, str]:
        return paths(self.database, ref_at(self.database, f"org:{ORG}").commit_id)

    def drafts(self) -> list[DraftDetail]:
        """Every draft of `ann` with its operations, the first created first."""
        with self.client("ann") as client:
            page = client.call("GET", "/api/v1/drafts", DraftPage, query={"limit": 200})
            found = [Reviews(client).draft(item.draft_id) for item in page.items]
        return found[::-1]

    def texts(self) -> list[str]:
        """What the operations of all drafts say, in order of draft and operation."""
        query = (
            select(draft_operations.c.operation_json)
            .join(drafts, drafts.c.draft_id == draft_operations.c.draft_id)
            .order_by(drafts.c.created_at, drafts.c.draft_id, draft_operations.c.ordinal)
        )
        with self.database.read() as connection:
            found = [decode_operation(text.encode()) for text in connection.scalars(query)]
        return [said(operation) for operation in found]

    def taken(self) -> Counter[str]:
        """How often each text was ever taken into a draft, before rebases too."""
        with self.database.read() as connection:
            past = connection.scalars(select(draft_revisions.c.operations_json))
            rebased = [row for text in past for row in msgspec.json.decode(text, type=list[_Past])]
        return Counter(self.texts()) + Counter(said(row.operation) for row in rebased)

    def set_member(self, is_member: bool, user: str = "ann") -> None:
        """Let a user be a member of alpha, or not."""

        def work(connection: Connection) -> None:
            table = project_members
            if is_member:
                connection.execute(
                    insert(table).values(
                        project_id=PROJECT, user_id=f"user_{user}", role="member", joined_at=BEGAN
                    )
                )
            else:
                connection.execute(
                    delete(table).where(
                        table.c.project_id == PROJECT, table.c.user_id == f"user_{user}"
                    )
                )

        self.database.write(work)

    def submit(self, *server_draft_ids: str) -> str:
        """A review of these drafts; its id."""
        with self.client("ann") as client:
            return Reviews(client).submit(list(server_draft_ids), None, None).review_id

    def rebase(self, server_draft_id: str, resolved: ResourceState | None = None) -> None:
        """Carry a rebase of a draft out: a clean one, or with a conflict's resolution."""
        with self.client("ann") as client:
            reviews = Reviews(client)
            candidate = reviews.candidate(reviews.draft(server_draft_id).draft)
            assert candidate is not None
            assert (candidate.status == "clean") == (resolved is None)
            reviews.rebase(candidate, resolved)

    def merge(self, review_id: str) -> None:
        with self.client("owner") as client:
            Reviews(client).merge(review_id)

    def close(self) -> None:
        check_everything(self.database)
        self.answers.close()
        self.database.close()


def altered(name: str, change: Callable[[Any], object]) -> Fault:
    """The application's answer with its JSON changed in place, or by what `change` returns."""

    def alter(reply: Reply | None) -> Reply:
        assert reply is not None
        body = gzip.decompress(reply.body) if reply.headers.get("content-encoding") else reply.body
        value = json.loads(body)
        new = change(value)
        kept = {n: v for n, v in reply.headers.items() if n != "content-encoding"}
        return Reply(reply.status, kept, json.dumps(value if new is None else new).encode())

    return Fault(name, True, alter)


def said(operation: StoreOperation) -> str:
    """The text, new path or action of an operation."""
    part = operation.only()
    if isinstance(part, Create) or (isinstance(part, Update) and part.content is not None):
        return str(part.content and part.content.content)
    return part.new_path if isinstance(part, Rename) else type(part).__name__.lower()


class Home:
    """One machine of `ann`."""

    def __init__(self, directory: Path, server: TestServer, *, bound: bool = True):
        self.directory = directory
        self.server = server
        self.transport = FaultTransport(server.answers)
        self.script = self.transport.script
        self.changes = 0
        self._open()
        if bound:
            self.bind()

    def _open(self) -> None:
        clock: Callable[[], int] = self.server.clock
        self.database = LocalDatabase(self.directory / "data", clock_ns=clock)
        self.storage = ProjectStorage(self.directory / "cache")
        authority_of = ProjectDirectory(self.database).authority_of
        self.effective = EffectiveMemory(self.database, self.storage, authority_of)
        self.drafts = DraftStore(self.database, self.effective, clock_ns=clock)
        self.client = self.server.client("ann", self.transport)
        self.account = Account(SERVER_URL, self.client)
        self.sync = Synchroniser(
            self.database, self.storage, clock_ns=clock, changed=self._note_change
        )
        self.sync.set_accounts([self.account])

    def _note_change(self) -> None:
        self.changes += 1

    def bind(self) -> None:
        """Have a directory here that belongs to alpha."""
        with self.database.writer() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO project_bindings VALUES (?, '/w', ?, 1, 'x', 'x')",
                (SERVER_URL, PROJECT),
            )

    def store(self, op: StoreOperation, draft_id: str | None = None) -> StoreReceipt:
        return self.drafts.store_draft_operation(
            StoreRequest(project_id=PROJECT, op=op, source="cli", draft_id=draft_id)
        )

    def run(self) -> None:
        """A cycle that must succeed."""
        self.sync.run_once()

    def contents(self) -> dict[str, str]:
        """Path to text of everything in Effective Memory."""
        view = self.effective.view(PROJECT)
        found = list(self.effective.resources(view))
        assert len({resource.path for resource in found}) == len(found)
        return {resource.path: resource.content for resource in found}

    def id_of(self, path: str) -> str:
        [found] = self.effective.load(PROJECT, [path])
        return found.resource_id

    def draft(self, draft_id: str) -> LocalDraft:
        return get_draft(self.database, draft_id)

    def all_drafts(self) -> list[LocalDraft]:
        found = list_drafts(self.database).drafts
        return [self.draft(draft.draft_id) for draft in reversed(found)]

    def server_id(self, draft_id: str) -> str:
        found = self.draft(draft_id).draft.server_draft_id
        assert found is not None
        return found

    def statuses(self, draft_id: str) -> list[str]:
        return [operation.sync_status for operation in self.draft(draft_id).operations]

    def rows(self, sql: str, *bindings: str) -> list[tuple[object, ...]]:
        with self.database.reader() as connection:
            return all_rows(connection, sql, bindings)

    def restart(self) -> None:
        """End the process and begin another one over the same files."""
        self.close()
        self._open()

    def close(self) -> None:
        self.sync.stop()
        self.client.close()
        self.database.close()
