"""The author's feed: what happened to their drafts, on this machine and on others.

A page is kept whole or not at all: its events, what its drafts are now, and the cursor behind it,
in one transaction. So a crash or a failure reads the page again, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

import apsw

from clumsies.api.drafts import DraftDetail, DraftEvent, DraftEvents
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.timestamps import row_time
from clumsies.sync.accounts import Account, broken
from clumsies.sync.answers import MAX_COMMIT_BODY_BYTES
from clumsies.sync.draft_projection import project_draft
from clumsies.sync.membership import CURSOR_KEY, DEFERRED_KEY, Membership
from clumsies.sync.meta import write_meta

PAGE_EVENTS = 200
CONCURRENT_DRAFTS = 8
FetchBases = Callable[[Collection[DraftDetail]], None]


@dataclass(frozen=True, slots=True)
class _Page:
    """Events, and what the drafts of accessible projects are now."""

    events: list[DraftEvent]
    details: list[DraftDetail]
    next_cursor: str


class DraftFeed:
    """One account's feed. `fetch_bases` brings base commits here that drafts need."""

    def __init__(
        self,
        database: LocalDatabase,
        account: Account,
        fetch_bases: FetchBases,
        clock_ns: Callable[[], int],
    ):
        self._database = database
        self._account = account
        self._fetch_bases = fetch_bases
        self._clock_ns = clock_ns

    def pull(self, membership: Membership) -> int:
        """Read the feed to its end; how many events there were.

        Raises what a request raises, and SyncFailed("server_sync_failed") for a feed or a draft
        that cannot be true; the pages before it are kept.
        """
        key = self._account.meta_key(CURSOR_KEY)
        cursor = self._database.meta(key)
        count, more = 0, True
        while more:
            answer = self._page(cursor)
            if not answer.events:
                if answer.next_cursor is not None and cursor is None:
                    self._database.set_meta(key, answer.next_cursor)
                break
            page = self._read(answer, membership)
            with self._database.writer() as connection:
                self._keep(connection, page, membership)
            cursor, more, count = page.next_cursor, answer.has_more, count + len(page.events)
        return count

    def _page(self, cursor: str | None) -> DraftEvents:
        query: dict[str, str | int | None] = {"after_cursor": cursor, "limit": PAGE_EVENTS}
        answer = self._account.client.call("GET", "/api/v1/draft-events", DraftEvents, query=query)
        if not answer.events and answer.has_more:
            raise broken("the feed of drafts has more events and gives none")
        if answer.events and answer.next_cursor is None:
            raise broken("the feed of drafts gives no cursor")
        if answer.events and answer.next_cursor == cursor:
            raise broken("the feed of drafts does not move on")
        return answer

    def _read(self, answer: DraftEvents, membership: Membership) -> _Page:
        versions: dict[str, int] = {}
        for event in answer.events:
            if event.project_id in membership.projects:
                known = versions.get(event.draft_id, 0)
                versions[event.draft_id] = max(known, event.version)
        details = self._details(versions)
        self._fetch_bases(details)
        return _Page(answer.events, details, str(answer.next_cursor))

    def _details(self, versions: Mapping[str, int]) -> list[DraftDetail]:
        """The drafts as they are now, at least as new as their events say."""
        if not versions:
            return []
        with ThreadPoolExecutor(min(CONCURRENT_DRAFTS, len(versions))) as readers:
            details = list(readers.map(self._detail, versions))
        for (draft_id, version), detail in zip(versions.items(), details, strict=True):
            if detail.draft.draft_id != draft_id:
                raise broken("it answered with another draft", draft_id=draft_id)
            if detail.draft.version < version:
                raise broken("a draft is older than its events", draft_id=draft_id)
        return details

    def _detail(self, draft_id: str) -> DraftDetail:
        return self._account.client.call(
            "GET",
            f"/api/v1/drafts/{quote(draft_id, safe='')}",
            DraftDetail,
            max_bytes=MAX_COMMIT_BODY_BYTES,
        )

    def _keep(self, connection: apsw.Connection, page: _Page, membership: Membership) -> None:
        now = row_time(self._clock_ns())
        connection.executemany(
            "INSERT OR REPLACE INTO remote_draft_events VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    event.event_id,
                    event.draft_id,
                    event.project_id,
                    event.event_type,
                    event.version,
                    event.daemon_installation_id,
                    event.created_at,
                )
                for event in page.events
            ],
        )
        for project_id in {event.project_id for event in page.events} - membership.projects:
            write_meta(connection, f"{DEFERRED_KEY}:{project_id}", now)
        for detail in page.details:
            if detail.draft.project_id not in membership.projects:
                raise broken("a draft is another project's", draft_id=detail.draft.draft_id)
            project_draft(connection, detail, now)
        write_meta(connection, self._account.meta_key(CURSOR_KEY), page.next_cursor)
