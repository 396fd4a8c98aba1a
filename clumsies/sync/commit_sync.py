"""Keeping an organisation's and its projects' Refs in step with the Server's.

Base commits of drafts come first, then every payload is fetched, verified and built into a
generation beside the installed one; last, one transaction moves the Refs. Refs of one account move
together, so that what a new draft stands on is what the project shows. A failure of one project
leaves that one where it was; one of the organisation's Ref leaves all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import apsw

from clumsies.errors import ClumsiesError, Conflict, NotReady, StoreFailed, SyncFailed
from clumsies.memory.refs import (
    ACTIVE,
    InstalledRef,
    etag_of,
    move_ref,
    organization_key,
    project_key,
    read_ref,
)
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.generations import GenerationStore
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import insert_payload, read_payload
from clumsies.storage.objects import CommitPayload
from clumsies.storage.payload_checks import Authority
from clumsies.storage.project_storage import Location, ProjectStorage
from clumsies.storage.timestamps import row_time
from clumsies.sync.accounts import Account
from clumsies.sync.commit_transfer import CommitTransfers, RefState
from clumsies.sync.membership import Membership
from clumsies.sync.merged_drafts import awaiting_commit, settle_merged

CONCURRENT_PROJECTS = 4
_ATTEMPTS = 3
_AT_THE_SERVER = (
    f"SELECT 1 FROM local_drafts WHERE server_draft_id IS NOT NULL AND {ACTIVE} LIMIT 1"
)
_RESTORABLE = frozenset({"commit_generation_missing", "commit_generation_corrupt"})


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A Ref that may move: its objects and its generation are in place."""

    ref: InstalledRef
    location: Location | None = None
    merged: tuple[str, ...] = ()


@dataclass(slots=True)
class CommitReport:
    """What a cycle did: whether a Ref moved, and each project's error."""

    moved: bool = False
    errors: dict[str, ClumsiesError] = field(default_factory=dict)


class CommitSync:
    """Commits of one account."""

    def __init__(
        self,
        database: LocalDatabase,
        storage: ProjectStorage,
        account: Account,
        clock_ns: Callable[[], int],
        installing: threading.Lock,
    ):
        """`installing` is held by whoever builds or removes generations."""
        self._database = database
        self._storage = storage
        self._installing = installing
        self._account = account
        self._clock_ns = clock_ns
        self._transfers = CommitTransfers(database, account)

    def run(self, membership: Membership, pull: Callable[[], object]) -> CommitReport:
        """Bring the organisation's Ref and every target's to where the Server has them.

        Before a Ref moves under drafts that the Server has, `pull` reads the feed once more: the
        new commit may have one of them, and the feed tells so. Raises the error of the
        organisation's Ref: nothing moved then. Those of projects are in the report.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            report = CommitReport()
            organization, prepared = self._prepare(membership, report)
            known = self._awaiting(membership)
            if attempt == _ATTEMPTS or not self._moves_under_drafts(prepared, organization):
                break
            with suppress(ClumsiesError):  # Commits do not wait for the feed.
                pull()
            if self._awaiting(membership) == known:
                break
        report.moved = self._move(prepared, organization, report)
        return report

    def _prepare(
        self, membership: Membership, report: CommitReport
    ) -> tuple[_Prepared, list[_Prepared]]:
        """The organisation's and the projects' Refs, ready to be moved."""
        projects: list[str] = []
        for project_id in membership.targets:
            try:
                self._fetch_bases(project_id, membership.org_id)
                projects.append(project_id)
            except ClumsiesError as error:
                report.errors[project_id] = error
        organization = self._organization(membership)
        prepared: list[_Prepared] = []
        with ThreadPoolExecutor(CONCURRENT_PROJECTS) as workers:
            outcomes = workers.map(lambda name: self._attempt(name, membership.org_id), projects)
            for project_id, outcome in zip(projects, outcomes, strict=True):
                if isinstance(outcome, ClumsiesError):
                    report.errors[project_id] = outcome
                else:
                    prepared.append(outcome)
        return organization, prepared

    def _awaiting(self, membership: Membership) -> list[list[str]]:
        with self._database.reader() as connection:
            return [awaiting_commit(connection, name) for name in membership.targets]

    def _moves_under_drafts(self, prepared: Sequence[_Prepared], organization: _Prepared) -> bool:
        """Whether a Ref is to move while drafts here might be merged."""
        with self._database.reader() as connection:
            if all(_stands(connection, item) for item in (*prepared, organization)):
                return False
            return first_row(connection, _AT_THE_SERVER) is not None

    def _fetch_bases(self, project_id: str, org_id: str) -> None:
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                "SELECT DISTINCT base_commit_id, resource_scope FROM local_drafts WHERE "
                f"project_id = ? AND {ACTIVE} AND base_commit_id IS NOT NULL",
                (project_id,),
            )
        for commit_id, scope in rows:
            authority = Authority(scope, org_id, project_id if scope == "project" else None)
            self._transfers.fetch_base(commit_id, authority)

    def _organization(self, membership: Membership) -> _Prepared:
        org_id = membership.org_id
        authority = Authority("org", org_id)
        old = self._installed(organization_key(org_id))
        local = None if old is None else old.commit_id
        state = self._transfers.state(authority, local)
        if state.latest is not None:
            self._bring(authority, state, local)
        return _Prepared(_ref(authority, state))

    def _attempt(self, project_id: str, org_id: str) -> _Prepared | ClumsiesError:
        try:
            return self._project(project_id, org_id)
        except ClumsiesError as error:
            return error

    def _project(self, project_id: str, org_id: str) -> _Prepared:
        with self._database.reader() as connection:  # before the Server is asked: see merged_drafts
            merged = tuple(awaiting_commit(connection, project_id))
        authority = Authority("project", org_id, project_id)
        old = self._installed(project_key(project_id))
        local = None if old is None else old.commit_id
        state = self._transfers.state(authority, local)
        location = self._storage.prepare(self._account.server_url, project_id)
        generations = GenerationStore(location.generations, project_id)
        if not (state.commit_id == local and _is_installed(generations, local)):
            payload = self._bring(authority, state, local)
            with self._installing:
                install(generations, payload, local)
        return _Prepared(_ref(authority, state), location, merged)

    def _bring(
        self, authority: Authority, state: RefState, local: str | None
    ) -> CommitPayload | None:
        """The payload that the Ref stands at, with its objects kept; None for an empty Ref."""
        if state.latest is None:
            return None
        with self._database.reader() as connection:
            try:
                known = read_payload(connection, state.latest.commit_id)
            except StoreFailed:  # Derived from what the Server has: fetched again.
                known = None
        if known is not None and known.commit == state.latest:
            return known
        have = local if state.incremental and known is None else None
        payload = self._transfers.fetch(authority, state.latest, have)
        try:
            with self._database.writer() as connection:
                insert_payload(connection, payload)
        except StoreFailed as error:
            if error.code != "object_corrupt":
                raise
            raise SyncFailed("commit_sync_failed", error.message, error.details) from error
        return payload

    def _installed(self, key: str) -> InstalledRef | None:
        with self._database.reader() as connection:
            return read_ref(connection, key)

    def _move(
        self, prepared: Sequence[_Prepared], organization: _Prepared, report: CommitReport
    ) -> bool:
        """Every Ref in one transaction, the projects' first; whether one moved.

        A project whose place changed meanwhile stays where it is, and its error is reported.
        """
        with self._database.reader() as connection:
            drafted = any(item.merged for item in prepared)
            same = all(_stands(connection, item) for item in (*prepared, organization))
        if same and not drafted:
            return False
        now = row_time(self._clock_ns())
        with self._database.writer() as connection:
            here = [item for item in prepared if self._is_in_place(item, report)]
            moved = [move_ref(connection, item.ref, now) for item in (*here, organization)]
            for item in here:
                for draft_id in item.merged:
                    settle_merged(connection, draft_id, now)
        return any(moved)

    def _is_in_place(self, item: _Prepared, report: CommitReport) -> bool:
        project_id = str(item.ref.project_id)
        if self._storage.location(self._account.server_url, project_id) == item.location:
            return True
        report.errors[project_id] = Conflict(
            "storage_move_conflict",
            f"The place of the project {project_id} changed while its memory was brought here; "
            "it is tried again.",
            {"project_id": project_id},
        )
        return False


def _ref(authority: Authority, state: RefState) -> InstalledRef:
    return InstalledRef(
        "org" if authority.project_id is None else "project",
        authority.org_id,
        authority.project_id,
        state.commit_id,
        etag_of(state.commit_id),
        state.updated_at,
    )


def _stands(connection: apsw.Connection, item: _Prepared) -> bool:
    """Whether the Ref is here as it is to be."""
    return read_ref(connection, item.ref.key) == item.ref


def _is_installed(generations: GenerationStore, commit_id: str | None) -> bool:
    try:
        generations.verify(commit_id)
    except (NotReady, StoreFailed) as error:
        if error.code in _RESTORABLE:
            return False
        raise
    return True


def install(
    generations: GenerationStore, payload: CommitPayload | None, previous_commit_id: str | None
) -> None:
    """Put a generation in its place; one that is there and damaged is made anew."""
    commit_id = None if payload is None else payload.commit.commit_id
    try:
        generations.install(payload, previous_commit_id=previous_commit_id)
        generations.verify(commit_id)
    except StoreFailed as error:
        if error.code != "commit_generation_corrupt":
            raise
        generations.discard(commit_id)
        generations.install(payload, previous_commit_id=previous_commit_id)
