"""Bringing commits here: asking where a Ref stands, and fetching what it stands at.

Nothing is believed for where it came from. A commit-state is checked against what was asked, and
a payload is whole, consistent and hashes to the ids it claims before anything of it is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from clumsies.api.commits import CommitState, CommitTransfer
from clumsies.api.common import API_PREFIX
from clumsies.api.drafts import DraftDetail
from clumsies.errors import ClumsiesError, StoreFailed, SyncFailed
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.object_store import (
    content_hashes,
    has_commit,
    insert_payload,
    read_text,
)
from clumsies.storage.objects import (
    MAIN_REF,
    Blob,
    Commit,
    CommitPayload,
    Tree,
    canonical_order,
)
from clumsies.storage.payload_checks import Authority, verify_payload
from clumsies.sync.accounts import Account, broken
from clumsies.sync.answers import MAX_COMMIT_BODY_BYTES

EMPTY_ETAG = "ref-none"


@dataclass(frozen=True, slots=True)
class RefState:
    """Where a Ref stands at the Server; `latest` is None for an empty one."""

    latest: Commit | None
    etag: str
    updated_at: str
    incremental: bool

    @property
    def commit_id(self) -> str | None:
        return None if self.latest is None else self.latest.commit_id


class CommitTransfers:
    """Commits of one account."""

    def __init__(self, database: LocalDatabase, account: Account):
        self._database = database
        self._account = account

    def state(self, authority: Authority, local_commit_id: str | None) -> RefState:
        """Where the Ref of `authority` stands, beside the commit that is installed here.

        Raises SyncFailed("server_sync_failed") for an answer that cannot be true.
        """
        if authority.project_id is None:
            path = f"{API_PREFIX}/org/commit-state"
        else:
            path = f"{API_PREFIX}/projects/{authority.project_id}/commit-state"
        state, response = self._account.client.exchange(
            "GET", path, CommitState, query={"local_commit_id": local_commit_id}
        )
        return checked_state(state, response.headers.get("etag"), authority, local_commit_id)

    def fetch(self, authority: Authority, latest: Commit, have: str | None = None) -> CommitPayload:
        """The verified payload of a commit; with `have`, only what that one lacks is asked for.

        Raises SyncFailed("commit_sync_failed") for a payload that is not the commit's.
        """
        if have is not None:
            transfer = self._transfer(latest.commit_id, have)
            named = transfer.base_commit_id in (have, None)
            completed = self._completed(transfer) if named else None
            if completed is not None and not _problem(completed, authority, latest):
                return _canonical(completed)
        payload = self._whole(latest.commit_id)
        _require_sound(payload, authority, latest)
        return _canonical(payload)

    def fetch_bases(self, details: Collection[DraftDetail], org_id: str) -> None:
        """Bring the base commits of active drafts here, before the drafts themselves."""
        for detail in details:
            draft = detail.draft
            if draft.base_commit_id is not None and draft.status in ("open", "submitted"):
                project_id = draft.project_id if draft.resource.scope == "project" else None
                authority = Authority(draft.resource.scope, org_id, project_id)
                self.fetch_base(draft.base_commit_id, authority)

    def fetch_base(self, commit_id: str, authority: Authority) -> None:
        """Bring a commit here that a draft stands on; nothing where it is here."""
        with self._database.reader() as connection:
            if has_commit(connection, commit_id):
                return
        try:
            payload = self._whole(commit_id)
        except ClumsiesError as error:
            if error.code != "not_found":
                raise
            raise SyncFailed(
                "commit_sync_failed",
                f"The Server does not have the commit {commit_id}, which a draft stands on; "
                "rebase or discard the draft.",
                {"commit_id": commit_id},
            ) from error
        if payload.commit.commit_id != commit_id:
            raise _refused("it is another commit than was asked for")
        _require_sound(payload, authority, None)
        with self._database.writer() as connection:
            insert_payload(connection, payload)

    def _whole(self, commit_id: str) -> CommitPayload:
        transfer = self._transfer(commit_id, None)
        if transfer.base_commit_id is not None:
            raise _refused("a part was sent where the whole was asked for")
        return _payload(transfer, transfer.blobs)

    def _transfer(self, commit_id: str, have: str | None) -> CommitTransfer:
        return self._account.client.call(
            "GET",
            f"{API_PREFIX}/commits/{commit_id}",
            CommitTransfer,
            query={"have": have},
            max_bytes=MAX_COMMIT_BODY_BYTES,
        )

    def _completed(self, transfer: CommitTransfer) -> CommitPayload | None:
        """The payload with the texts that are here; None where one is missing or damaged."""
        wanted = {entry.blob_id for entry in transfer.tree.entries}
        missing = wanted - {blob.blob_id for blob in transfer.blobs}
        with self._database.reader() as connection:
            if len(content_hashes(connection, missing)) != len(missing):
                return None
            try:
                texts = [Blob(name, read_text(connection, name)) for name in sorted(missing)]
            except StoreFailed:
                return None
        return _payload(transfer, [*transfer.blobs, *texts])


def checked_state(
    state: CommitState, etag: str | None, authority: Authority, local_commit_id: str | None
) -> RefState:
    """The state, if it can be true; the checks are in the order of the contract."""
    ref, latest = state.ref, state.latest
    if not etag:
        raise broken("the state of a Ref has no ETag")
    if ref.name != MAIN_REF:
        raise broken("a Ref has another name")
    if (ref.scope, ref.project_id) != (authority.scope, authority.project_id):
        raise broken("a Ref is another project's or scope's")
    if state.update_available != (ref.commit_id != local_commit_id):
        raise broken("it is wrong about whether there is an update")
    if etag.strip('"') != (ref.commit_id or EMPTY_ETAG) or etag.startswith("W/"):
        raise broken("the ETag of a Ref is not its commit")
    if (None if latest is None else latest.commit_id) != ref.commit_id:
        raise broken("a Ref and its latest commit differ")
    wanted = None if latest is None else f"{API_PREFIX}/commits/{latest.commit_id}"
    if state.download_url != wanted:
        raise broken("a commit is to be had from another place")
    if ref.org_id != authority.org_id:
        raise broken("a Ref is another organisation's")
    return RefState(latest, etag, ref.updated_at, state.incremental_supported)


def _payload(transfer: CommitTransfer, blobs: list[Blob]) -> CommitPayload:
    return CommitPayload(transfer.commit, transfer.tree, blobs, transfer.project_org_selection)


def _problem(payload: CommitPayload, authority: Authority, latest: Commit | None) -> str | None:
    try:
        verify_payload(payload, authority, latest)
    except StoreFailed as error:
        return error.message
    return None


def _require_sound(payload: CommitPayload, authority: Authority, latest: Commit | None) -> None:
    problem = _problem(payload, authority, latest)
    if problem is not None:
        raise SyncFailed("commit_sync_failed", problem)


def _refused(what: str) -> SyncFailed:
    return SyncFailed(
        "commit_sync_failed",
        f"A commit's payload was refused because {what}; nothing was changed. Fetch it again, and "
        "if that repeats, ask whoever runs the Server.",
    )


def _canonical(payload: CommitPayload) -> CommitPayload:
    """The payload in the one order in which it is read back from the objects, so that a
    generation's marker is the same whichever way the commit came here."""
    entries = canonical_order(payload.tree.entries)
    texts = {blob.blob_id: blob.content for blob in payload.blobs}
    names = dict.fromkeys(entry.blob_id for entry in entries)
    return CommitPayload(
        payload.commit,
        Tree(payload.tree.tree_id, entries),
        [Blob(name, texts[name]) for name in names],
        payload.project_org_selection,
    )
