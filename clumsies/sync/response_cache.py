"""Answers to reads that were heard before, for a person to look at while the Server is away.

Synchronization never reads them. Entries belong to one session: whoever signs in or out starts
with none, also when it happened while no daemon ran. One thread writes, beside the requests; what
it cannot keep up with is not kept. `server_response_cache` holds at most `MAX_ENTRIES` rows and
`MAX_TOTAL_BYTES`, the oldest give way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import apsw
import msgspec

from clumsies.errors import ClumsiesError
from clumsies.logs import WorkerLog
from clumsies.storage.database import first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import canonical_authority
from clumsies.storage.timestamps import row_time
from clumsies.sync.answers import Response, has_envelope, is_json
from clumsies.sync.sessions import FixedSession, KeyringSession

MAX_ENTRIES = 512
MAX_ENTRY_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""Of paths, headers and bodies together."""
MAX_PENDING = 16
KEPT_HEADERS = ("content-type", "etag")
SESSION_KEY = "response_cache_session"
"""Whose the entries are, in `daemon_meta`; there is no token in it."""

_EVICT = """
DELETE FROM server_response_cache WHERE rowid IN (
  SELECT rowid FROM (
    SELECT rowid, row_number() OVER newest AS place,
      sum(length(body) + length(headers_json) + length(path)) OVER newest AS total
    FROM server_response_cache
    WINDOW newest AS (ORDER BY updated_at DESC, rowid DESC ROWS UNBOUNDED PRECEDING))
  WHERE place > ? OR total > ?)
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    status: int
    headers_json: str
    body: bytes
    updated_at: str


class ResponseCache:
    """The cached answers of one Server and session. Safe for several threads; close it."""

    def __init__(
        self,
        database: LocalDatabase,
        sessions: FixedSession | KeyringSession,
        *,
        log: WorkerLog | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ):
        self._database = database
        self._server_url = canonical_authority(sessions.server_url)
        self._log = log
        self._clock_ns = clock_ns
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._pending: dict[str, _Entry] = {}
        self._epoch = 0
        self._foreign = False
        self._closed = False
        self._begin_session(f"{self._server_url} {sessions.label}")
        if isinstance(sessions, KeyringSession):
            sessions.on_change(self.invalidate)
        self._thread = threading.Thread(target=self._run, name="response-cache", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is pending and end the writer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def epoch(self) -> int:
        """Names the session's time; what was asked in another one is not kept."""
        return self._epoch

    def keep(self, epoch: int, path: str, response: Response) -> bool:
        """Whether the answer to a GET that was asked in `epoch` is going to be kept.

        Kept are successes and "not found", in JSON and of the Server itself, up to 1 MiB.
        """
        good = response.ok or (response.status == 404 and has_envelope(response))
        if not good or not is_json(response) or len(response.body) > MAX_ENTRY_BYTES:
            return False
        headers = {n: response.headers[n] for n in KEPT_HEADERS if n in response.headers}
        entry = _Entry(
            response.status,
            msgspec.json.encode(headers).decode(),
            response.body,
            row_time(self._clock_ns()),
        )
        with self._changed:
            full = len(self._pending) >= MAX_PENDING and path not in self._pending
            if self._closed or epoch != self._epoch or full:
                return False
            self._pending[path] = entry
            self._changed.notify_all()
        return True

    def find(self, epoch: int, path: str) -> Response | None:
        """The last kept answer to that GET in this session, or None; raises StoreFailed."""
        with self._changed:
            if epoch != self._epoch:
                return None
            entry = self._pending.get(path)
            if entry is None and self._foreign:
                return None
        if entry is None:
            with self._database.reader() as connection:
                row = first_row(
                    connection,
                    "SELECT status, headers_json, body, updated_at FROM server_response_cache "
                    "WHERE server_url = ? AND path = ?",
                    (self._server_url, path),
                )
            if row is None or epoch != self._epoch:
                return None
            entry = _Entry(*row)
        headers: Mapping[str, str] = msgspec.json.decode(entry.headers_json, type=dict[str, str])
        return Response(entry.status, headers, entry.body)

    def invalidate(self) -> None:
        """Forget every answer; when this returns, none is found and none comes late.

        Rows that cannot be deleted now are not read either, and deleted before the next is written.
        """
        with self._changed:
            self._epoch += 1
            self._pending.clear()
            self._foreign = True
        try:
            with self._writing:
                self._delete_foreign()
        except ClumsiesError as error:
            if self._log is not None:
                self._log.failed(error)

    def _delete_foreign(self) -> None:
        if self._foreign:
            with self._database.writer() as connection:
                connection.execute("DELETE FROM server_response_cache")
            self._foreign = False

    def flush(self) -> None:
        """Write what is pending now, in the caller's thread; raises StoreFailed and IoFailed."""
        with self._writing:
            with self._changed:
                epoch, batch = self._epoch, dict(self._pending)
            if not batch:
                return
            try:
                self._delete_foreign()
                with self._database.writer() as connection:
                    self._write(connection, batch)
            finally:
                # An entry that was renewed meanwhile is another one, and stays.
                with self._changed:
                    if epoch == self._epoch:
                        for path, entry in batch.items():
                            if self._pending.get(path) is entry:
                                del self._pending[path]

    def _write(self, connection: apsw.Connection, batch: Mapping[str, _Entry]) -> None:
        for path, entry in batch.items():
            connection.execute(
                "INSERT OR REPLACE INTO server_response_cache VALUES (?, ?, ?, ?, ?, ?)",
                (
                    self._server_url,
                    path,
                    entry.status,
                    entry.headers_json,
                    entry.body,
                    entry.updated_at,
                ),
            )
        connection.execute(_EVICT, (MAX_ENTRIES, MAX_TOTAL_BYTES))

    def _begin_session(self, identity: str) -> None:
        if self._database.meta(SESSION_KEY) == identity:
            return
        with self._database.writer() as connection:
            connection.execute("DELETE FROM server_response_cache")
            connection.execute(
                "INSERT OR REPLACE INTO daemon_meta VALUES (?, ?)", (SESSION_KEY, identity)
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                if not self._pending:
                    return
            try:
                self.flush()
            except ClumsiesError as error:
                if self._log is not None:
                    self._log.failed(error)
            else:
                if self._log is not None:
                    self._log.recovered()
