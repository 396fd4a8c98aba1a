"""Projects without a Server: the authority in this process, and this daemon as its client.

The list of local projects is in `local.db`, so that nothing of the authority is loaded before it is
needed. Its own truth is `authority.db` beside it. What an older version made without an authority
is taken over, ids and all, when it is first opened.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clumsies.api.imports import ImportAnswer, ImportedFile
from clumsies.errors import InvalidRequest
from clumsies.logs import EventLog
from clumsies.memory.drafts import random_id
from clumsies.memory.projects import KnownProject
from clumsies.memory.refs import ACTIVE, organization_key, project_key, read_ref
from clumsies.storage.database import all_rows
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import read_payload
from clumsies.storage.objects import CommitPayload
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.storage.timestamps import row_time
from clumsies.sync.accounts import Account
from clumsies.sync.answers import Response
from clumsies.sync.remote import RemoteClient, in_process_transport
from clumsies.sync.remote.shared import shared_transport
from clumsies.sync.sessions import FixedSession

if TYPE_CHECKING:  # A daemon whose projects are all a Server's never loads the authority.
    from clumsies.server.local import LocalServer

DATABASE_NAME = "authority.db"
_SECRET_BYTES = 32
_MAX_NAME = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Row:
    project_id: str
    org_id: str
    name: str
    created_at: str


class LocalProjects:
    """Makes local projects and speaks for them; any thread may use it."""

    def __init__(
        self,
        database: LocalDatabase,
        log: EventLog | None = None,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        new_id: Callable[[str], str] = random_id,
    ):
        self._database = database
        self._log = log
        self._clock_ns = clock_ns
        self._new_id = new_id
        self._mutex = threading.Lock()
        self._server: LocalServer | None = None
        self._transport: Any = None
        self._clients: dict[str, _LazyClient] = {}
        self._closed = False

    @property
    def path(self) -> Path:
        """The file of the authority's truth."""
        return self._database.directory / DATABASE_NAME

    def create(self, name: str) -> KnownProject:
        """A new project, alone in an organisation of its own; nothing of it is installed yet."""
        name = name.strip()
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise InvalidRequest(
                "invalid_request",
                f"A project needs a printable name of 1 to {_MAX_NAME} characters.",
            )
        row = _Row(self._new_id("proj"), self._new_id("org"), name, row_time(self._clock_ns()))
        self._opened().ensure_project(row.project_id, row.org_id, row.name, row.created_at)
        with self._database.writer() as connection:
            connection.execute(
                "INSERT INTO local_projects VALUES (?, ?, ?, ?)",
                (row.project_id, row.org_id, row.name, row.created_at),
            )
        return KnownProject(
            LOCAL_AUTHORITY, row.project_id, row.org_id, row.name, True, row.created_at
        )

    def import_files(self, project: KnownProject, files: Iterable[ImportedFile]) -> ImportAnswer:
        """Make the files part of the project's memory, in one commit; nothing is installed yet."""
        from clumsies.server.memory.imports import ImportedText

        texts = [ImportedText(file.path, file.content, file.description) for file in files]
        report = self._opened().import_texts(project.project_id, project.org_id, texts, False)
        return ImportAnswer(
            created=len(report.created),
            updated=len(report.updated),
            unchanged=len(report.unchanged),
            removed=len(report.removed),
            commit_id=report.commit_id,
        )

    def accounts(self) -> list[Account]:
        """One for each local project; the authority is opened when one is first asked."""
        return [self._account(row) for row in self._rows()]

    def client(self, project_id: str, org_id: str) -> RemoteClient:
        """The client that speaks for the project's owner."""
        return self._lazy(project_id, org_id).made()

    def close(self) -> None:
        """Give up what runs and close the authority's database."""
        with self._mutex:
            self._closed = True
            clients, self._clients = list(self._clients.values()), {}
            transport, self._transport = self._transport, None
            server, self._server = self._server, None
        for client in clients:
            client.close()
        if transport is not None:
            transport.close()
        if server is not None:
            server.close()

    def _account(self, row: _Row) -> Account:
        client = self._lazy(row.project_id, row.org_id)
        return Account(LOCAL_AUTHORITY, client, row.project_id, row.org_id)

    def _lazy(self, project_id: str, org_id: str) -> _LazyClient:
        with self._mutex:
            if project_id not in self._clients:
                self._clients[project_id] = _LazyClient(lambda: self._new_client(org_id))
            return self._clients[project_id]

    def _new_client(self, org_id: str) -> RemoteClient:
        server = self._opened()
        with self._mutex:
            if self._transport is None:
                self._transport = in_process_transport(server.app)
            transport = shared_transport(self._transport)
        return RemoteClient(
            FixedSession(LOCAL_AUTHORITY, server.token(org_id)), transport=transport, log=self._log
        )

    def _opened(self) -> LocalServer:
        from clumsies.server.local import LocalServer

        with self._mutex:
            if self._closed:
                raise InvalidRequest("invalid_request", "The daemon ends; start it again.")
            if self._server is None:
                server = LocalServer(
                    self.path,
                    secrets.token_bytes(_SECRET_BYTES),
                    clock_ns=self._clock_ns,
                    new_id=self._new_id,
                )
                try:
                    self._take_over(server)
                except BaseException:
                    server.close()
                    raise
                self._server = server
            return self._server

    def _take_over(self, server: LocalServer) -> None:
        """Have the authority know every project that this machine knows as local."""
        known = {project.project_id for project in server.projects()}
        for row in self._rows():
            if row.project_id in known:
                continue
            server.ensure_project(row.project_id, row.org_id, row.name, row.created_at)
            organization, project, bases = self._installed(row)
            server.adopt(row.project_id, row.org_id, organization, project, bases)

    def _installed(
        self, row: _Row
    ) -> tuple[CommitPayload | None, CommitPayload | None, list[CommitPayload]]:
        """What is installed of a project: at its Refs, and where its drafts stand."""
        with self._database.reader() as connection:
            refs = [
                read_ref(connection, key)
                for key in (organization_key(row.org_id), project_key(row.project_id))
            ]
            names = [None if ref is None else ref.commit_id for ref in refs]
            bases = all_rows(
                connection,
                "SELECT DISTINCT base_commit_id FROM local_drafts WHERE project_id = ? "
                f"AND {ACTIVE} AND base_commit_id IS NOT NULL",
                (row.project_id,),
            )
            organization, project = (
                None if name is None else read_payload(connection, name) for name in names
            )
            older = [read_payload(connection, str(base[0])) for base in bases]
        return organization, project, [payload for payload in older if payload is not None]

    def _rows(self) -> list[_Row]:
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                "SELECT project_id, org_id, name, created_at FROM local_projects "
                "ORDER BY created_at, project_id",
            )
        return [_Row(*map(str, row)) for row in rows]


class _LazyClient:
    """A client that is made when it is first used."""

    def __init__(self, make: Callable[[], RemoteClient]):
        self._make = make
        self._mutex = threading.Lock()
        self._client: RemoteClient | None = None

    def made(self) -> RemoteClient:
        with self._mutex:
            if self._client is None:
                self._client = self._make()
            return self._client

    def call(self, method: str, path: str, answer: type[T], **request: Any) -> T:
        return self.made().call(method, path, answer, **request)

    def exchange(
        self, method: str, path: str, answer: type[T], **request: Any
    ) -> tuple[T, Response]:
        return self.made().exchange(method, path, answer, **request)

    def request(self, method: str, path: str, **request: Any) -> Response:
        return self.made().request(method, path, **request)

    def close(self) -> None:
        with self._mutex:
            client, self._client = self._client, None
        if client is not None:
            client.close()
