"""Synchronization as the rest of the daemon sees it.

A cycle of an account asks who is signed in, then sends and receives drafts, then brings commits.
Cycles of the Server exclude each other, and so do those of local accounts, which never wait for a
Server. The two channels fail each for itself, and the first error is the one that is reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from clumsies.api.drafts import DraftDetail
from clumsies.errors import ClumsiesError
from clumsies.logs import EventLog, WorkerLog
from clumsies.memory.drafts import random_id
from clumsies.storage.database import first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import ProjectStorage
from clumsies.storage.timestamps import row_time
from clumsies.sync.accounts import Account
from clumsies.sync.collection import Collector
from clumsies.sync.commit_sync import CommitReport, CommitSync
from clumsies.sync.commit_transfer import CommitTransfers
from clumsies.sync.draft_events import DraftFeed, FetchBases
from clumsies.sync.draft_queue import DraftQueue, requeue
from clumsies.sync.membership import Membership, refresh_membership
from clumsies.sync.meta import write_meta
from clumsies.sync.status import (
    ChannelName,
    SyncStatus,
    project_error_key,
    read_status,
    stamp_attempt,
    stamp_outcome,
)
from clumsies.sync.worker import SyncWorker

RetryChannel = Literal["drafts", "commits", "all"]
STOP_TIMEOUT_S = 40.0
"""More than one request may take; closing the clients first ends them at once."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry that was asked for; `started` says whether the worker was there to do it."""

    retry_id: str
    started: bool


class _Lane:
    """Cycles that exclude each other: those of local accounts, or the Server's."""

    def __init__(self, is_local: bool):
        self.is_local = is_local
        self.cycling = threading.Lock()
        self.running: frozenset[str] = frozenset()

    def of(self, accounts: Sequence[Account]) -> list[Account]:
        return [account for account in accounts if account.is_local == self.is_local]


class Synchroniser:
    """Keeps accounts in step; any thread may use it.

    `changed` is called after a cycle that may have changed what memory is. `installing` is held
    by whoever builds or removes generations.
    """

    def __init__(
        self,
        database: LocalDatabase,
        storage: ProjectStorage,
        *,
        interval_ms: int = 30_000,
        changed: Callable[[], None] = lambda: None,
        log: EventLog | None = None,
        installing: threading.Lock | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ):
        self._database = database
        self._storage = storage
        self._changed = changed
        self._log = log
        self._installing = installing or threading.Lock()
        self._clock_ns = clock_ns
        self._worker = SyncWorker(self._cycle, interval_ms)
        self._collector = Collector(database, storage, self._installing)
        self._local, self._remote = _Lane(True), _Lane(False)
        self._mutex = threading.Lock()
        self._accounts: tuple[Account, ...] = ()
        self._asked: set[str | None] = set()
        self._failures: dict[str, WorkerLog] = {}
        self._ending = False
        requeue(database, ["syncing"], self._now())  # of a process that ended meanwhile

    def set_accounts(self, accounts: Sequence[Account]) -> None:
        """Use these from the next cycle on, and send again what waited for another interval.

        Returns when no cycle runs that may be of an account which is left out now.
        """
        with ExitStack() as excluded:
            for lane in (self._local, self._remote):
                if set(lane.of(self._accounts)) - set(accounts):
                    excluded.enter_context(lane.cycling)
            with self._mutex:
                self._accounts = tuple(accounts)
            requeue(self._database, ["retrying"], self._now())
        self.notify()

    def start(self) -> None:
        """Begin to synchronize in the background."""
        self._worker.start()

    def notify(self, project_id: str | None = None) -> None:
        """Something was stored, in this project or in any: synchronize soon."""
        with self._mutex:
            self._asked.add(project_id)
        self._worker.wake()

    def retry(self, channel: RetryChannel = "all", project_id: str | None = None) -> Retry:
        """Try again now; what the Server refused is sent again too, unless commits are meant."""
        retry_id = random_id("retry")
        with self._database.writer() as connection:
            connection.execute(
                "INSERT INTO sync_retries VALUES (?, ?, ?, ?)",
                (retry_id, channel, project_id, self._now()),
            )
        if channel != "commits":
            requeue(self._database, ["retrying", "failed"], self._now(), project_id)
        with self._mutex:
            self._asked.add(project_id)
        self._worker.wake(as_tick=True)
        return Retry(retry_id, self._worker.is_running)

    def status(self, project_id: str | None = None) -> SyncStatus:
        """How far it is: of the project's account, else the Server's."""
        with self._mutex:
            accounts = self._accounts
        running = self._lane_of(project_id, accounts).running
        with self._database.reader() as connection:
            return read_status(connection, accounts, running, project_id)

    def run_once(self, project_id: str | None = None, *, tick: bool = True) -> None:
        """One cycle here and now, of the project's account or of all; raises the first error.

        `tick` sends again what waits for the next interval.
        """
        with self._mutex:
            accounts = self._accounts
        errors: list[Exception] = []
        if project_id is None:
            for lane in (self._local, self._remote):
                with lane.cycling:
                    errors += self._run(lane, self._chosen(lane, {None}, tick=tick), tick)
        else:
            lane = self._lane_of(project_id, accounts)
            with lane.cycling:
                errors += self._run(lane, self._of_project(project_id), tick)
        if errors:
            raise errors[0]

    def prepare_to_stop(self) -> None:
        """From now on a failure is no news: the clients are about to be closed."""
        self._ending = True

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End after the cycle that runs; whether it ended in time."""
        return self._worker.stop(timeout_s)

    def _now(self) -> str:
        return row_time(self._clock_ns())

    def _cycle(self, tick: bool) -> None:
        """A turn of the worker."""
        with self._mutex:
            asked, self._asked = self._asked, set()
        for lane in (self._local, self._remote):
            try:
                with lane.cycling:
                    self._run(lane, self._chosen(lane, asked, tick=tick), tick)
            except Exception as error:  # The worker's outermost turn: it goes on.
                if self._log is not None and not self._ending:
                    self._log.failed("sync_cycle_failed", error)

    def _lane_of(self, project_id: str | None, accounts: Sequence[Account]) -> _Lane:
        """Where the cycles of the project's account run; of the Server's, where there is one."""
        if project_id is None:
            return self._remote if self._remote.of(accounts) else self._local
        local = {account.project_id for account in self._local.of(accounts)}
        return self._local if project_id in local else self._remote

    def _chosen(self, lane: _Lane, asked: set[str | None], *, tick: bool) -> list[Account]:
        """The accounts of a cycle. The Server's is asked at each interval; a local one only for
        its own sake, as nobody else changes what it has."""
        with self._mutex:
            accounts = self._accounts
        local = {account.project_id for account in accounts if account.is_local}
        chosen: list[Account] = []
        for account in lane.of(accounts):
            wanted = tick or bool(asked - local)
            if account.is_local:
                wanted = account.project_id in asked or (
                    wanted and self._has_work(str(account.project_id))
                )
            if wanted:
                chosen.append(account)
        return chosen

    def _of_project(self, project_id: str) -> list[Account]:
        with self._mutex:
            accounts = self._accounts
        own = [account for account in accounts if account.project_id == project_id]
        return own or [account for account in accounts if not account.is_local]

    def _has_work(self, project_id: str) -> bool:
        with self._database.reader() as connection:
            row = first_row(
                connection,
                "SELECT 1 FROM local_draft_operations JOIN local_drafts USING (draft_id) "
                "WHERE project_id = ? AND sync_status IN ('queued', 'retrying') LIMIT 1",
                (project_id,),
            )
        return row is not None

    def _run(self, lane: _Lane, accounts: Sequence[Account], tick: bool) -> list[Exception]:
        # Cycles of a lane exclude each other: what is on its way was left so by a fault of ours.
        left = ["syncing", "retrying"] if tick else ["syncing"]
        requeue(self._database, left, self._now(), local=lane.is_local)
        errors: list[Exception] = []
        for account in accounts:
            error: Exception | None
            try:
                error = self._one(lane, account)
            except Exception as unexpected:  # One account's fault is no other's.
                error = unexpected
            finally:
                lane.running = frozenset()
            self._failure_log(account, error)
            if error is not None:
                errors.append(error)
        if accounts:
            self._collect(lane)
            self._changed()
        return errors

    def _collect(self, lane: _Lane) -> None:
        """Remove objects that nothing needs, unless a cycle of the other lane may be fetching
        what it will need; the next cycle tries again."""
        other = self._remote if lane.is_local else self._local
        if other.cycling.acquire(blocking=False):
            try:
                self._collector.collect_objects()
            finally:
                other.cycling.release()

    def _failure_log(self, account: Account, error: BaseException | None) -> None:
        if self._log is None or self._ending:
            return
        key = account.meta_key("sync")
        log = self._failures.setdefault(key, WorkerLog(self._log, "sync"))
        if error is None:
            log.recovered()
        else:
            log.failed(error)

    def _one(self, lane: _Lane, account: Account) -> ClumsiesError | None:
        """One cycle of one account; its first error."""
        lane.running = frozenset({"draft_sync", "commit_sync"})
        self._stamp(account, "draft_sync", "commit_sync")
        try:
            membership = refresh_membership(self._database, account, self._now())
        except ClumsiesError as error:
            self._ended(account, "draft_sync", error, None)
            self._ended(account, "commit_sync", error, None)
            return error
        transfers = CommitTransfers(self._database, account)

        def fetch_bases(details: Collection[DraftDetail]) -> None:
            transfers.fetch_bases(details, membership.org_id)

        feed = DraftFeed(self._database, account, fetch_bases, self._clock_ns)
        lane.running = frozenset({"draft_sync"})
        drafts = self._drafts(account, membership, feed, fetch_bases)
        lane.running = frozenset({"commit_sync"})
        commits = self._commits(account, membership, lambda: feed.pull(membership))
        return drafts or commits

    def _stamp(self, account: Account, *channels: ChannelName) -> None:
        with self._database.writer() as connection:
            for channel in channels:
                stamp_attempt(connection, account, channel, self._now())

    def _ended(
        self,
        account: Account,
        channel: ChannelName,
        error: ClumsiesError | None,
        success_at: str | None,
    ) -> None:
        code = None if error is None else error.code
        with self._database.writer() as connection:
            stamp_outcome(connection, account, channel, code, success_at)

    def _drafts(
        self, account: Account, membership: Membership, feed: DraftFeed, fetch_bases: FetchBases
    ) -> ClumsiesError | None:
        queue = DraftQueue(self._database, account, fetch_bases, self._clock_ns)
        error: ClumsiesError | None = None
        try:
            queue.drain(membership.targets)
            feed.pull(membership)
        except ClumsiesError as caught:
            error = caught
        converged = error is None and not any(map(self._has_work, membership.targets))
        self._ended(account, "draft_sync", error, self._now() if converged else None)
        return error

    def _commits(
        self, account: Account, membership: Membership, pull: Callable[[], object]
    ) -> ClumsiesError | None:
        sync = CommitSync(self._database, self._storage, account, self._clock_ns, self._installing)
        report = CommitReport()
        error: ClumsiesError | None = None
        try:
            report = sync.run(membership, pull)
        except ClumsiesError as caught:
            error = caught
        with self._database.writer() as connection:
            for project_id in membership.targets if error is None else ():
                failed = report.errors.get(project_id)
                code = None if failed is None else failed.code
                write_meta(connection, project_error_key(project_id), code)
        if report.moved:
            self._collector.collect_generations(account.server_url, membership.targets)
            self._follow(membership)
        succeeded = error is None and not report.errors
        self._ended(account, "commit_sync", error, self._now() if succeeded else None)
        return error or next(iter(report.errors.values()), None)

    def _follow(self, membership: Membership) -> None:
        """What was carried on from a merged draft waits to be sent: one more cycle, at once."""
        if any(map(self._has_work, membership.targets)):
            self.notify()
