"""How far synchronization is, for people: facts from the database, beside what runs now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import apsw
import msgspec

from clumsies.memory.refs import ACTIVE, project_key, read_ref
from clumsies.storage.database import all_rows, only_row
from clumsies.sync.accounts import Account
from clumsies.sync.membership import (
    CURSOR_KEY,
    SELECTED_KEY,
    Unavailable,
    unavailable_projects,
)
from clumsies.sync.meta import read_meta, write_meta

ChannelName = Literal["draft_sync", "commit_sync"]
ChannelState = Literal["idle", "queued", "syncing", "retrying", "degraded", "failed"]


@dataclass(frozen=True, slots=True)
class Channel:
    """Drafts or commits: what is being done, and how the last time ended."""

    state: ChannelState
    server_cursor: str | None
    last_attempt_at: str | None
    last_success_at: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """Counts are of projects that are available; what waits for access is in `unavailable`."""

    unavailable: tuple[Unavailable, ...]
    draft_sync: Channel
    commit_sync: Channel
    pending_operation_count: int
    failed_operation_count: int
    behind_draft_count: int
    reconciliation_conflict_count: int

    @property
    def last_success_at(self) -> str | None:
        """When both channels had succeeded."""
        ends = (self.draft_sync.last_success_at, self.commit_sync.last_success_at)
        return None if None in ends else min(str(end) for end in ends)


def stamp_attempt(
    connection: apsw.Connection, account: Account, channel: ChannelName, now: str
) -> None:
    write_meta(connection, account.meta_key(f"{channel}_last_attempt_at"), now)


def stamp_outcome(
    connection: apsw.Connection,
    account: Account,
    channel: ChannelName,
    error_code: str | None,
    success_at: str | None,
) -> None:
    """Note how an attempt ended; without `success_at` the last success stays what it was."""
    write_meta(connection, account.meta_key(f"{channel}_error"), error_code)
    if success_at is not None:
        write_meta(connection, account.meta_key(f"{channel}_last_success_at"), success_at)


def project_error_key(project_id: str) -> str:
    """Where the code of a project's own failure stands; none where it is in step."""
    return f"commit_sync_project_error:{project_id}"


def read_status(
    connection: apsw.Connection,
    accounts: Sequence[Account],
    running: frozenset[str],
    project_id: str | None = None,
) -> SyncStatus:
    """The facts of one project's account, else of the Server's, else of the first.

    `running` names the channels at work now.
    """
    account = _account(accounts, project_id)
    unavailable = tuple(
        found for each in accounts for found in unavailable_projects(connection, each)
    )
    usable = (msgspec.json.encode(_usable(connection, accounts)).decode(),)
    counts = only_row(connection, _OPERATIONS, usable)
    queued, retrying, failed = (int(value or 0) for value in counts)
    behind, conflicts = (int(value or 0) for value in only_row(connection, _DRAFTS, usable))
    selected = project_id or read_meta(connection, SELECTED_KEY)
    ref = read_ref(connection, project_key(selected)) if selected else None
    drafts = _facts(connection, account, "draft_sync")
    commits = _facts(connection, account, "commit_sync")
    own = read_meta(connection, project_error_key(selected)) if selected else None
    return SyncStatus(
        unavailable,
        Channel(
            _draft_state("draft_sync" in running, (queued, retrying, failed), drafts[2]),
            None if account is None else read_meta(connection, account.meta_key(CURSOR_KEY)),
            *drafts,
        ),
        Channel(
            _commit_state(
                "commit_sync" in running, commits[2], own, _has_project_error(connection)
            ),
            None if ref is None else ref.commit_id,
            commits[0],
            commits[1],
            own or commits[2],
        ),
        queued + retrying,
        failed,
        behind,
        conflicts,
    )


def _account(accounts: Sequence[Account], project_id: str | None) -> Account | None:
    own = [each for each in accounts if project_id is not None and each.project_id == project_id]
    servers = [each for each in accounts if not each.is_local]
    return next(iter([*own, *servers, *accounts]), None)


def _usable(connection: apsw.Connection, accounts: Sequence[Account]) -> list[str]:
    """Projects that the accounts may keep in step, as the last membership had them."""
    found = [str(each.project_id) for each in accounts if each.is_local]
    query = "SELECT project_id FROM server_projects WHERE server_url = ? AND available"
    for each in accounts:
        if not each.is_local:
            found += [str(row[0]) for row in all_rows(connection, query, (each.server_url,))]
    return found


def _facts(
    connection: apsw.Connection, account: Account | None, channel: ChannelName
) -> tuple[str | None, str | None, str | None]:
    """Last attempt, last success and the code of the last attempt's error."""
    if account is None:
        return (None, None, None)
    attempt, success, error = (
        read_meta(connection, account.meta_key(f"{channel}_{name}"))
        for name in ("last_attempt_at", "last_success_at", "error")
    )
    return (attempt, success, error)


def _draft_state(running: bool, counts: tuple[int, int, int], error: str | None) -> ChannelState:
    queued, retrying, failed = counts
    if running:
        return "syncing"
    if failed:
        return "failed"
    if retrying:
        return "retrying"
    if queued:
        return "queued"
    return "degraded" if error else "idle"


def _commit_state(running: bool, error: str | None, own: str | None, others: bool) -> ChannelState:
    if running:
        return "syncing"
    if own:
        return "failed"
    if error:
        return "retrying"
    return "degraded" if others else "idle"


def _has_project_error(connection: apsw.Connection) -> bool:
    (count,) = only_row(
        connection,
        "SELECT count(*) FROM daemon_meta WHERE key >= ?1 || ':' AND key < ?1 || ';'",
        ("commit_sync_project_error",),
    )
    return bool(count)


_OPERATIONS = (
    "SELECT sum(sync_status IN ('queued', 'syncing')), sum(sync_status = 'retrying'), "
    "sum(sync_status = 'failed') FROM local_draft_operations JOIN local_drafts USING (draft_id) "
    "WHERE sync_status <> 'synced' AND project_id IN (SELECT value FROM json_each(?))"
)
_DRAFTS = (
    "SELECT sum(freshness = 'behind'), sum(reconciliation = 'conflicts') FROM local_drafts "
    f"WHERE {ACTIVE} AND project_id IN (SELECT value FROM json_each(?))"
)
