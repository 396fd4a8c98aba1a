"""The authority of one person without a Server: the same application over a file of their own.

Every local project is in an organisation of its own, whose owner the person is. Nothing listens:
the application is called in-process, with a bearer that only this process can make.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sqlalchemy import insert, select, update

from clumsies.errors import Conflict
from clumsies.server.acting import Act, Acting, Principal
from clumsies.server.context import ServerContext, random_id
from clumsies.server.database import Database, sqlite_url
from clumsies.server.http.app import make_app
from clumsies.server.http.request_ids import AsgiApp
from clumsies.server.memory.imports import ImportedText, ImportReport, import_texts
from clumsies.server.memory.objects import (
    insert_blobs,
    insert_commits,
    insert_new,
    insert_tree,
    read_commits,
)
from clumsies.server.memory.refs import ensure_refs, move_refs, org_key, project_key, read_ref
from clumsies.server.memory.resource_rows import write_resources
from clumsies.server.memory.selection_rows import SelectionChange, change_selection
from clumsies.server.migrations import migrate
from clumsies.server.schema import (
    orgs,
    project_members,
    project_org_selection_states,
    projects,
    users,
)
from clumsies.storage.objects import CommitPayload
from clumsies.storage.payload_checks import Authority, verify_payload

_EMAIL = "you@localhost"


@dataclass(frozen=True, slots=True)
class LocalProject:
    """A project that exists on this machine alone; names need not be unique."""

    project_id: str
    org_id: str
    name: str
    created_at: str


def local_user_id(org_id: str) -> str:
    """The id of a local organisation's only user."""
    return f"user_{org_id}"


class LocalAuthenticator:
    """Bearers `<org id>.<HMAC-SHA256>` under a secret that leaves the process nowhere."""

    def __init__(self, database: Database, secret: bytes):
        self._database = database
        self._secret = secret

    def token(self, org_id: str) -> str:
        """The bearer of the organisation's owner."""
        made = hmac.new(self._secret, org_id.encode("utf-8"), hashlib.sha256)
        return f"{org_id}.{made.hexdigest()}"

    def authenticate(self, bearer: str) -> Principal | None:
        org_id = bearer.rpartition(".")[0]
        if not hmac.compare_digest(bearer.encode("utf-8"), self.token(org_id).encode("utf-8")):
            return None
        query = select(users.c.user_id, users.c.org_id, users.c.role).where(
            users.c.user_id == local_user_id(org_id), users.c.status == "active"
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else Principal(*row)


class LocalServer:
    """The local authority; any thread may use it."""

    def __init__(
        self,
        path: Path,
        secret: bytes,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        new_id: Callable[[str], str] = random_id,
    ):
        """Opens the database file at `path`, or makes it; raises StoreFailed for one of a newer
        program. `secret` is at least 32 random bytes and need not be the same next time."""
        self._database = Database(sqlite_url(path))
        self._clock_ns = clock_ns
        self._new_id = new_id
        self._authenticator = LocalAuthenticator(self._database, secret)
        migrate(self._database, clock_ns=clock_ns)

    @cached_property
    def app(self) -> AsgiApp:
        """The Server's application over this database."""
        return make_app(
            ServerContext(
                self._database, self._authenticator, clock_ns=self._clock_ns, new_id=self._new_id
            )
        )

    def token(self, org_id: str) -> str:
        """The bearer of a local organisation's owner, good for this process's life."""
        return self._authenticator.token(org_id)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def projects(self) -> list[LocalProject]:
        """Every project, in order of name."""
        query = select(
            projects.c.project_id, projects.c.org_id, projects.c.name, projects.c.created_at
        ).where(projects.c.deleted_at.is_(None))
        with self._database.read() as connection:
            found = [LocalProject(*row) for row in connection.execute(query)]
        return sorted(found, key=lambda project: (project.name, project.project_id))

    def ensure_project(self, project_id: str, org_id: str, name: str, created_at: str) -> None:
        """Have the project, alone in its organisation; one that is there stays as it is.

        Raises Conflict("already_exists") where it is another organisation's.
        """
        self.acting(org_id).write(lambda act: _ensure(act, project_id, name, created_at))

    def adopt(
        self,
        project_id: str,
        org_id: str,
        org_payload: CommitPayload | None,
        project_payload: CommitPayload | None,
        bases: Iterable[CommitPayload] = (),
    ) -> None:
        """Take over the commits at which an older authority's Refs stand, ids and all.

        `bases` are older commits of either Ref that drafts stand on. A repeat changes nothing,
        also after the Refs went on. Raises StoreFailed("object_corrupt") for a payload that is not
        genuine, and Conflict("already_exists") where a Ref stands at something else.
        """
        given = _Adopted(project_id, org_id, org_payload, project_payload, tuple(bases))
        given.verify()
        self.acting(org_id).write(lambda act: _adopt(act, given))

    def import_texts(
        self, project_id: str, org_id: str, texts: Iterable[ImportedText], remove_others: bool
    ) -> ImportReport:
        """See server.imports; without HTTP, so of any size."""
        wanted = list(texts)
        return self.acting(org_id).write(
            lambda act: import_texts(act, project_id, wanted, remove_others)
        )

    def acting(self, org_id: str) -> Acting:
        """Acts of the organisation's owner."""
        principal = Principal(local_user_id(org_id), org_id, "owner")
        return Acting(self._database, principal, self._clock_ns, self._new_id, self._new_id("req"))


def _ensure(act: Act, project_id: str, name: str, created_at: str) -> None:
    org_id, user_id = act.principal.org_id, act.principal.user_id
    query = select(projects.c.org_id).where(projects.c.project_id == project_id)
    owner = act.connection.scalar(query)
    if owner is not None:
        if owner != org_id:
            raise _elsewhere(project_id)
        return
    times = {"created_at": created_at, "updated_at": act.now}
    insert_new(act.connection, orgs, [{"org_id": org_id, "name": name} | times])
    user = {
        "user_id": user_id,
        "org_id": org_id,
        "email": _EMAIL,
        "email_key": _EMAIL,
        "display_name": "You",
        "role": "owner",
        "status": "active",
        "revision": 1,
    }
    insert_new(act.connection, users, [user | times])
    project = {"project_id": project_id, "org_id": org_id, "name": name, "description": ""}
    act.connection.execute(insert(projects).values(project | times | {"revision": 1}))
    member = {"project_id": project_id, "user_id": user_id, "role": "admin"}
    act.connection.execute(insert(project_members).values(member | {"joined_at": created_at}))
    ensure_refs(act.connection, org_id, project_id, now=act.now)


def _elsewhere(name: str) -> Conflict:
    return Conflict(
        "already_exists",
        f"The local authority has {name} already, and otherwise; run `clumsies doctor`.",
    )


@dataclass(frozen=True, slots=True)
class _Adopted:
    project_id: str
    org_id: str
    org: CommitPayload | None
    project: CommitPayload | None
    bases: tuple[CommitPayload, ...]

    @property
    def payloads(self) -> list[CommitPayload]:
        return [payload for payload in (*self.bases, self.org, self.project) if payload]

    def verify(self) -> None:
        """Raise StoreFailed("object_corrupt") for a payload of anyone else or of other bytes."""
        of_org = Authority("org", self.org_id)
        of_project = Authority("project", self.org_id, self.project_id)
        if self.org is not None:
            verify_payload(self.org, of_org)
        if self.project is not None:
            verify_payload(self.project, of_project)
        for base in self.bases:
            verify_payload(base, of_org if base.commit.scope == "org" else of_project)


def _adopt(act: Act, given: _Adopted) -> None:
    known = read_commits(act.connection, (payload.commit.commit_id for payload in given.payloads))
    for payload in given.payloads:
        insert_blobs(act.connection, payload.blobs)
        insert_tree(act.connection, payload.tree)
        insert_commits(act.connection, [payload.commit], act.principal.user_id)
    keys = {org_key(given.org_id): given.org, project_key(given.project_id): given.project}
    moved: dict[str, str] = {}
    for key, latest in keys.items():
        ref = read_ref(act, key, lock=True)
        if latest is None or latest.commit.commit_id == ref.commit_id:
            continue
        if ref.commit_id is None:
            moved[key] = latest.commit.commit_id
        elif latest.commit.commit_id not in known:
            raise _elsewhere(key)
    move_refs(act, moved)
    if given.org is not None and org_key(given.org_id) in moved:
        texts = {blob.blob_id: blob.content for blob in given.org.blobs}
        write_resources(act, given.org.tree.entries, texts)
    if given.project is not None and project_key(given.project_id) in moved:
        _adopt_selection(act, given.project_id, given.project)


def _adopt_selection(act: Act, project_id: str, payload: CommitPayload) -> None:
    """The rows of the selection that the project's commit holds, with its revision."""
    chosen = frozenset(entry.item_id for entry in payload.tree.entries if entry.is_memory)
    change_selection(act, SelectionChange(project_id, chosen))
    revision = (payload.project_org_selection or {}).get("revision")
    if isinstance(revision, int):
        states = project_org_selection_states
        act.connection.execute(
            update(states)
            .where(states.c.project_id == project_id)
            .values(revision=revision, updated_at=act.now)
        )
